/**
 * The census: what the kernel counted in a sandbox's namespace, and the audit events that it yields. Listeners of
 * ours see TCP to ports 80, 443 and 53 and DNS over UDP with names and bytes; every other attempt is refused before
 * a listener could name its port, so its exact count comes from here, once, as a `census` event by address and port.
 */
import type { AuditRecord } from '../../policy/audit-event.ts'
import type { Reason } from '../../policy/decision.ts'
import { runInNamespace } from './namespace.ts'
import { ports } from './rules.ts'

export interface CensusEntry {
  readonly protocol: 'tcp' | 'udp' | 'icmp' | 'other'
  readonly address: string
  /** null for protocols without ports. */
  readonly port: number | null
  readonly packets: number
}

interface NftElement {
  elem?: { val?: { concat?: [string, number | string] }; counter?: { packets?: number } }
}
interface NftObject {
  set?: { name?: string; elem?: NftElement[] }
  counter?: { name?: string; packets?: number }
}

export interface CensusReading {
  readonly entries: readonly CensusEntry[]
  /** Exact even when a set is full. */
  readonly totals: { readonly tcp: number; readonly udp: number; readonly other: number }
}

export async function readCensus(
  pid: number,
  options: { signal?: AbortSignal } = {},
): Promise<CensusReading> {
  const text = await runInNamespace(
    pid,
    ['nft', '-j', 'list', 'table', 'ip', 'closedbook'],
    options,
  )
  return parseCensus(text)
}

export function parseCensus(text: string): CensusReading {
  const objects = (JSON.parse(text) as { nftables?: NftObject[] }).nftables ?? []
  const entries: CensusEntry[] = []
  const totals = { tcp: 0, udp: 0, other: 0 }
  for (const { set, counter } of objects) {
    if (counter?.name === 'tcp_total') totals.tcp = counter.packets ?? 0
    if (counter?.name === 'udp_total') totals.udp = counter.packets ?? 0
    if (counter?.name === 'other_total') totals.other = counter.packets ?? 0
    for (const { elem } of set?.elem ?? []) {
      const [address, second] = elem?.val?.concat ?? []
      if (address === undefined || second === undefined) continue
      const packets = elem?.counter?.packets ?? 0
      if (set?.name === 'tcp_attempts')
        entries.push({ protocol: 'tcp', address, port: Number(second), packets })
      else if (set?.name === 'udp_attempts')
        entries.push({ protocol: 'udp', address, port: Number(second), packets })
      else if (set?.name === 'other_attempts')
        entries.push({
          protocol: second === 'icmp' || second === 1 ? 'icmp' : 'other',
          address,
          port: null,
          packets,
        })
    }
  }
  return { entries, totals }
}

const seenByListeners = ({ protocol, port }: CensusEntry): boolean =>
  (protocol === 'tcp' && (port === ports.http || port === ports.tls || port === ports.dns)) ||
  (protocol === 'udp' && port === ports.dns)

const reasonOf: Record<CensusEntry['protocol'], Reason> = {
  tcp: 'direct_tcp',
  udp: 'direct_udp',
  icmp: 'direct_icmp',
  other: 'direct_other',
}

/** Remembers what has been reported, so that each reading yields only what is new. */
export class Census {
  readonly #reported = new Map<string, number>()
  readonly #overflow = { tcp: 0, udp: 0, other: 0 }

  /** Counts that the audit log of an adopted lease already holds. */
  restore(entry: CensusEntry): void {
    const key = keyOf(entry)
    this.#reported.set(key, (this.#reported.get(key) ?? 0) + entry.packets)
  }

  /** Audit records for what is new in a reading. */
  delta(reading: CensusReading): AuditRecord[] {
    const records: AuditRecord[] = []
    const named = { tcp: 0, udp: 0, other: 0 }
    for (const entry of reading.entries) {
      named[entry.protocol === 'icmp' ? 'other' : entry.protocol] += entry.packets
      if (seenByListeners(entry)) continue
      const key = keyOf(entry)
      const count = entry.packets - (this.#reported.get(key) ?? 0)
      if (count <= 0) continue
      this.#reported.set(key, entry.packets)
      records.push(recordOf(entry.protocol, entry.address, entry.port, count))
    }
    for (const protocol of ['tcp', 'udp', 'other'] as const) {
      const count = reading.totals[protocol] - named[protocol] - this.#overflow[protocol]
      if (count <= 0) continue
      this.#overflow[protocol] += count
      records.push({
        ...recordOf(protocol, null, null, count),
        detail: 'more addresses than the census keeps by name',
      })
    }
    return records
  }
}

const keyOf = (entry: CensusEntry): string =>
  `${entry.protocol} ${entry.address} ${entry.port ?? ''}`

const recordOf = (
  protocol: CensusEntry['protocol'],
  address: string | null,
  port: number | null,
  count: number,
): AuditRecord => ({
  kind: 'census',
  protocol,
  action: 'deny',
  reason: reasonOf[protocol],
  address,
  port,
  count,
})
