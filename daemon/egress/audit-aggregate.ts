/**
 * Keeps a flood of equal denials from becoming a flood of lines. The first 20 of a key (protocol, target, port, reason)
 * within 10 s are written in full; what comes beyond is counted, and each second one `aggregate` event a key
 * says how many there were. Nothing is dropped: a count leaves the memory only as an event. A process that is killed
 * loses the counts of its last second, and no more. Memory is bounded: the key that began first makes room for
 * a new one, and its count is written then.
 */
import type { AuditEvent, AuditRecord } from '../../policy/audit-event.ts'
import { targetKey } from '../../policy/audit-summary.ts'

export interface AggregateRules {
  readonly inFull: number
  readonly windowMs: number
  readonly everyMs: number
  readonly keys: number
}

export const aggregateRules: AggregateRules = {
  inFull: 20,
  windowMs: 10_000,
  everyMs: 1_000,
  keys: 4_096,
}

interface Entry {
  readonly since: number
  inFull: number
  /** The last one that was written in full. */
  event: AuditEvent
  pending: (AuditRecord & { count: number; first: string; last: string }) | null
}

export interface AggregateDeps {
  /** Writes an aggregate. */
  readonly write: (record: AuditRecord) => void
  /** Told of a denial that no line of its own will tell. */
  readonly count: (record: AuditRecord) => void
}

export class DenialAggregate {
  readonly #deps: AggregateDeps
  readonly #rules: AggregateRules
  /** In the order in which their windows began. */
  readonly #entries = new Map<string, Entry>()
  #pending = 0
  #timer: NodeJS.Timeout | null = null

  constructor(deps: AggregateDeps, rules: AggregateRules = aggregateRules) {
    this.#deps = deps
    this.#rules = rules
  }

  /** The event that stands for a denial: its own, or the last of its key that was written in full. */
  take(record: AuditRecord, write: () => AuditEvent): AuditEvent {
    const { host = null, address = null, port = null } = record
    const key = targetKey({ ...record, host, address, port })
    const now = performance.now()
    const known = this.#entries.get(key)
    if (known !== undefined && now - known.since < this.#rules.windowMs) {
      if (known.inFull >= this.#rules.inFull) {
        this.#count(known, record)
      } else {
        known.event = write()
        known.inFull += 1
      }
      return known.event
    }
    if (known !== undefined) this.#forget(key, known)
    const [oldest] = this.#entries
    if (oldest !== undefined && this.#entries.size >= this.#rules.keys) this.#forget(...oldest)
    const event = write()
    this.#entries.set(key, { since: now, inFull: 1, event, pending: null })
    return event
  }

  /** Writes what has been counted. Throws where the log takes no more. */
  drain(): void {
    if (this.#pending === 0) return
    for (const entry of this.#entries.values()) this.#tell(entry)
  }

  stop(): void {
    if (this.#timer !== null) clearTimeout(this.#timer)
    this.#timer = null
  }

  #count(entry: Entry, record: AuditRecord): void {
    const time = new Date().toISOString()
    const count = record.count ?? 1
    const { pending } = entry
    if (pending === null) {
      const { connection: _connection, ...rest } = { address: null, ...record }
      entry.pending = { ...rest, kind: 'aggregate', count, first: time, last: time, canary: false }
      this.#pending += 1
    } else {
      pending.count += count
      pending.last = time
      // One name may have been asked for at several addresses.
      if (pending.address !== (record.address ?? null)) pending.address = null
      if (record.detail !== undefined) pending.detail = record.detail
    }
    this.#deps.count(record)
    this.#timer ??= setTimeout(() => {
      this.#timer = null
      try {
        this.drain()
      } catch {
        // The log has failed; its owner is told by the log.
      }
    }, this.#rules.everyMs).unref()
  }

  #tell(entry: Entry): void {
    const { pending } = entry
    if (pending === null) return
    entry.pending = null
    this.#pending -= 1
    this.#deps.write(pending)
  }

  #forget(key: string, entry: Entry): void {
    this.#entries.delete(key)
    this.#tell(entry)
  }
}
