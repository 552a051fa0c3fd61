/** What agents tried to reach and were refused, folded from audit events: one row for each target and reason. */
import { isAttempt, type AuditEvent } from '../../policy/audit-event.ts'

export interface BlockedRow {
  /** Name asked for, else null. */
  readonly host: string | null
  readonly address: string | null
  readonly port: number | null
  readonly protocol: AuditEvent['protocol']
  readonly reason: string
  readonly count: number
  /** Trials, or leases outside a job, that tried it. */
  readonly trials: readonly string[]
}

export type BlockedEvent = Pick<
  AuditEvent,
  | 'action'
  | 'canary'
  | 'kind'
  | 'host'
  | 'port'
  | 'protocol'
  | 'address'
  | 'reason'
  | 'trial'
  | 'lease'
  | 'count'
>

/** Our own canaries are left out; most frequent first. */
export function foldBlocked(events: Iterable<BlockedEvent>): BlockedRow[] {
  const rows = new Map<string, Omit<BlockedRow, 'trials'> & { readonly trials: Set<string> }>()
  for (const event of events) {
    if (event.action !== 'deny' || event.canary === true || !isAttempt(event)) continue
    const { host, port, protocol } = event
    // An address says more only where no name was asked for: a name goes to whatever the sandbox resolves it to.
    const address = host === null ? event.address : null
    const reason = event.reason ?? 'denied'
    const key = JSON.stringify([host, address, port, protocol, reason])
    const row = rows.get(key)
    const trials = row?.trials ?? new Set<string>()
    trials.add(event.trial ?? event.lease)
    rows.set(key, {
      host,
      address,
      port,
      protocol,
      reason,
      count: (row?.count ?? 0) + event.count,
      trials,
    })
  }
  return [...rows.values()]
    .map((row) => ({ ...row, trials: [...row.trials] }))
    .sort((a, b) => b.count - a.count || targetOf(a).localeCompare(targetOf(b)))
}

export const targetOf = (row: Pick<BlockedRow, 'host' | 'address'>): string =>
  row.host ?? row.address ?? '-'
