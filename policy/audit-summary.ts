/**
 * What a log of attempts comes to: exact counts, kept as events are appended and rebuilt when a log is read again, and
 * the targets that were tried most. Our own proof is left out of every count of attempts. Memory is bounded: targets
 * beyond a cap are counted together.
 */
import { z } from 'zod'
import { auditEventSchema, isAttempt, type AuditEvent } from './audit-event.ts'

const { protocol, host, address, port, action, reason, count } = auditEventSchema.shape

export const auditTargetSchema = z.strictObject({
  protocol,
  host,
  address,
  port,
  action,
  reason,
  count,
})
export type AuditTarget = z.infer<typeof auditTargetSchema>

export const auditCountsSchema = z.strictObject({
  attempts: z.int(),
  denied: z.int(),
  allowed: z.int(),
  byReason: z.record(z.string(), z.int()),
})
export type AuditCounts = z.infer<typeof auditCountsSchema>

export const auditSummarySchema = auditCountsSchema.extend({
  /** Lines of the log, our own proof's too. */
  events: z.int(),
  from: z.iso.datetime().nullable(),
  until: z.iso.datetime().nullable(),
  bytesUp: z.int(),
  bytesDown: z.int(),
  /** Most frequent first. */
  targets: z.array(auditTargetSchema),
  /** Attempts on targets that had no place among these. */
  moreTargets: z.int(),
})
export type AuditTotals = z.infer<typeof auditSummarySchema>

/** What of an attempt counts. */
export type Counted = Pick<
  AuditEvent,
  'kind' | 'protocol' | 'host' | 'address' | 'port' | 'action' | 'reason' | 'count' | 'canary'
>

const maxTargets = 512
/** No more than the kernel's census can hold. */
const maxUnnamed = 4096

/** Equal for attempts on one target that ended alike; an address says more only where no name was asked for. */
export const targetKey = (event: Omit<Counted, 'kind' | 'count' | 'canary'>): string =>
  `${event.protocol} ${event.action} ${event.reason} ${event.port} ${event.host === null ? `@${event.address}` : event.host}`

export class AuditSummary {
  #events = 0
  #from: string | null = null
  #until: string | null = null
  #attempts = 0
  #denied = 0
  #allowed = 0
  #bytesUp = 0
  #bytesDown = 0
  readonly #byReason = new Map<string, number>()
  readonly #targets = new Map<string, AuditTarget>()
  #moreTargets = 0
  /**
   * Connections that the tripwire saw: it knows the address, not the port. The census knows the port of the same
   * attempts, so what it tells of an address is counted only beyond what the tripwire told.
   */
  readonly #unnamed = new Map<string, number>()

  add(event: AuditEvent): void {
    this.note(event)
    this.count(event)
  }

  /** Takes in a line of the log; what it counts for comes by `count`. */
  note({ time, bytesUp, bytesDown, canary }: AuditEvent): void {
    this.#events += 1
    // Not the first and the last: a clock may be set back.
    if (this.#from === null || time < this.#from) this.#from = time
    if (this.#until === null || time > this.#until) this.#until = time
    if (canary === true) return
    this.#bytesUp += bytesUp
    this.#bytesDown += bytesDown
  }

  count(event: Counted): void {
    if (event.canary === true || !isAttempt(event)) return
    const count = event.kind === 'census' ? this.#beyondTripwire(event) : event.count
    if (event.kind !== 'census' && event.protocol === 'tcp' && event.address !== null) {
      const seen = this.#unnamed.get(event.address)
      if (seen !== undefined || this.#unnamed.size < maxUnnamed) {
        this.#unnamed.set(event.address, (seen ?? 0) + count)
      }
    }
    this.#attempts += count
    if (event.action === 'deny') this.#denied += count
    if (event.action === 'allow') this.#allowed += count
    if (count === 0) return
    const reason = event.reason ?? 'none'
    this.#byReason.set(reason, (this.#byReason.get(reason) ?? 0) + count)
    this.#countTarget(event, count)
  }

  #beyondTripwire(event: Counted): number {
    if (event.protocol !== 'tcp' || event.address === null) return event.count
    const seen = this.#unnamed.get(event.address) ?? 0
    const known = Math.min(seen, event.count)
    if (known > 0) this.#unnamed.set(event.address, seen - known)
    return event.count - known
  }

  #countTarget(event: Counted, count: number): void {
    const key = targetKey(event)
    const known = this.#targets.get(key)
    if (known !== undefined) known.count += count
    else if (this.#targets.size < maxTargets) this.#targets.set(key, targetOf(event, count))
    else this.#moreTargets += count
  }

  view(): AuditCounts {
    return {
      attempts: this.#attempts,
      denied: this.#denied,
      allowed: this.#allowed,
      byReason: Object.fromEntries([...this.#byReason].toSorted(([a], [b]) => (a < b ? -1 : 1))),
    }
  }

  totals(): AuditTotals {
    return {
      ...this.view(),
      events: this.#events,
      from: this.#from,
      until: this.#until,
      bytesUp: this.#bytesUp,
      bytesDown: this.#bytesDown,
      targets: [...this.#targets.values()]
        .map((target) => ({ ...target }))
        .toSorted((a, b) => b.count - a.count),
      moreTargets: this.#moreTargets,
    }
  }
}

const targetOf = (event: Counted, count: number): AuditTarget => ({
  protocol: event.protocol,
  host: event.host,
  address: event.host === null ? event.address : null,
  port: event.port,
  action: event.action,
  reason: event.reason,
  count,
})
