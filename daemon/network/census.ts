/**
 * The census: what the kernel counted in a sandbox's namespace, and the audit events that it yields. Listeners of
 * ours see TCP to ports 80, 443 and 53 and DNS over UDP with names and bytes, and record them; every other attempt is
 * refused by the kernel and counted once, so its exact count comes from here, as `census` events by address and
 * port. So do attempts that came to those ports while no daemon was there to listen.
 */
import type { AuditEvent, AuditRecord } from '../../policy/audit-event.ts'
import type { Reason } from '../../policy/decision.ts'
import { runInNamespace } from './namespace.ts'
import { ports } from './rules.ts'

type Protocol = 'tcp' | 'udp' | 'icmp' | 'other'

/** The sets of rules.ts, each with a counter of what it has no room to name. */
const setNames = [
  'tcp_attempts',
  'udp_attempts',
  'other_attempts',
  'tcp_unanswered',
  'udp_unanswered',
] as const
type SetName = (typeof setNames)[number]

export interface CensusEntry {
  readonly set: SetName
  readonly protocol: Protocol
  readonly address: string
  /** null for protocols without ports. */
  readonly port: number | null
  readonly packets: number
}

export interface CensusReading {
  readonly entries: readonly CensusEntry[]
  /** Counted beyond what the sets can name. */
  readonly more: Readonly<Record<SetName, number>>
  /** Datagrams to port 53, those among them that overran the listener's socket included. */
  readonly dnsQueries: number
}

interface NftElement {
  elem?: { val?: { concat?: [string, number | string] }; counter?: { packets?: number } }
}
interface NftObject {
  set?: { name?: string; elem?: NftElement[] }
  counter?: { name?: string; packets?: number }
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

const none: Readonly<Record<SetName, number>> = {
  tcp_attempts: 0,
  udp_attempts: 0,
  other_attempts: 0,
  tcp_unanswered: 0,
  udp_unanswered: 0,
}

export function parseCensus(text: string): CensusReading {
  const objects = (JSON.parse(text) as { nftables?: NftObject[] }).nftables ?? []
  const entries: CensusEntry[] = []
  const more: Record<SetName, number> = { ...none }
  let dnsQueries = 0
  for (const object of objects) {
    if (object.counter?.name === 'dns_queries') dnsQueries = object.counter.packets ?? 0
    const counted = setNames.find((name) => object.counter?.name === `${name}_more`)
    if (counted !== undefined) more[counted] = object.counter?.packets ?? 0
    const set = setNames.find((name) => object.set?.name === name)
    if (set === undefined) continue
    for (const { elem } of object.set?.elem ?? []) {
      const [address, second] = elem?.val?.concat ?? []
      if (address === undefined || second === undefined) continue
      const icmp = set === 'other_attempts' && (second === 'icmp' || second === 1)
      entries.push({
        set,
        protocol: icmp ? 'icmp' : protocolOf(set),
        address,
        port: set === 'other_attempts' ? null : Number(second),
        packets: elem?.counter?.packets ?? 0,
      })
    }
  }
  return { entries, more, dnsQueries }
}

const protocolOf = (set: SetName): 'tcp' | 'udp' | 'other' =>
  set === 'other_attempts' ? 'other' : set.startsWith('tcp') ? 'tcp' : 'udp'

const reasonOf: Readonly<Record<Protocol, Reason>> = {
  tcp: 'direct_tcp',
  udp: 'direct_udp',
  icmp: 'direct_icmp',
  other: 'direct_other',
}
const moreDetail = 'more addresses than the census keeps by name'
const overrunDetail = 'queries that came faster than they could be read'
const unansweredDetail = 'no daemon was there to answer'

/** Remembers what has been reported, so that each reading yields only what is new. */
export class Census {
  readonly #reported = new Map<string, number>()
  readonly #more: Record<SetName, number> = { ...none }
  #overrun = 0

  /** Takes in a census event that the audit log of an adopted lease already holds. */
  restore({ protocol, address, port, count, detail }: AuditEvent): void {
    if (protocol === 'dns') return
    if (address !== null) {
      const key = keyOf({ protocol, address, port })
      this.#reported.set(key, (this.#reported.get(key) ?? 0) + count)
      return
    }
    const unanswered = detail === unansweredDetail
    if (protocol === 'tcp') this.#more[unanswered ? 'tcp_unanswered' : 'tcp_attempts'] += count
    else if (protocol === 'udp') this.#more[unanswered ? 'udp_unanswered' : 'udp_attempts'] += count
    else this.#more.other_attempts += count
  }

  /** Queries of a flood that the listener's socket had no room for; `seen` is what it has read. */
  overrun({ dnsQueries }: CensusReading, seen: number): AuditRecord[] {
    const count = dnsQueries - seen - this.#overrun
    if (count <= 0) return []
    this.#overrun += count
    const reason = 'dns_query'
    const target = { protocol: 'dns', host: null, address: null, port: ports.dns } as const
    return [{ kind: 'census', action: 'deny', ...target, reason, count, detail: overrunDetail }]
  }

  /** Audit records for what is new in a reading. */
  delta(reading: CensusReading): AuditRecord[] {
    const records: AuditRecord[] = []
    for (const { set, protocol, address, port, packets } of reading.entries) {
      const key = keyOf({ protocol, address, port })
      const count = packets - (this.#reported.get(key) ?? 0)
      if (count <= 0) continue
      this.#reported.set(key, packets)
      records.push({ ...denied(set, { protocol, address, port }), count })
    }
    for (const set of setNames) {
      const count = reading.more[set] - this.#more[set]
      if (count <= 0) continue
      this.#more[set] += count
      const record = denied(set, { protocol: protocolOf(set), address: null, port: null })
      records.push({ detail: moreDetail, ...record, count })
    }
    return records
  }
}

type Target = Pick<AuditEvent, 'address' | 'port'> & { readonly protocol: Protocol }

/** The sets share no key: what a listener of ours serves is not among the attempts. */
const keyOf = ({
  protocol,
  address,
  port,
}: Pick<AuditEvent, 'protocol' | 'address' | 'port'>): string =>
  `${protocol} ${address ?? ''} ${port ?? ''}`

function denied(set: SetName, target: Target): AuditRecord {
  const record = { kind: 'census', action: 'deny', ...target } as const
  if (!set.endsWith('_unanswered')) return { ...record, reason: reasonOf[target.protocol] }
  return { ...record, reason: unansweredReason(target), detail: unansweredDetail }
}

/** Why it could have got no further than to us, had we been there; the proxy would have had a say. */
function unansweredReason({ protocol, address, port }: Target): Reason {
  if (protocol === 'udp' || port === ports.dns) return 'dns_query'
  return address?.startsWith('127.') === true ? 'internal_error' : 'direct_tcp'
}
