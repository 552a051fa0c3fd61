/** Counts of one lease's attempts, kept as events are appended and rebuilt when a log is opened again. */
import type { AuditEvent } from '../../policy/audit-event.ts'
import type { EgressSummary } from '../protocol/lease.ts'

/** No more than the kernel's census can hold. */
const maxUnnamed = 4096

export class AuditSummary {
  #attempts = 0
  #denied = 0
  #allowed = 0
  readonly #byReason = new Map<string, number>()
  /**
   * Connections that the tripwire saw: it knows the address, not the port. The census knows the port of the same
   * attempts, so what it tells of an address is counted only beyond what the tripwire told.
   */
  readonly #unnamed = new Map<string, number>()

  add(event: AuditEvent): void {
    if (event.canary === true) return
    if (event.kind !== 'decision' && event.kind !== 'census') return
    const count = event.kind === 'census' ? this.#beyondTripwire(event) : event.count
    if (event.kind === 'decision' && event.protocol === 'tcp' && event.address !== null) {
      const seen = this.#unnamed.get(event.address)
      if (seen !== undefined || this.#unnamed.size < maxUnnamed) {
        this.#unnamed.set(event.address, (seen ?? 0) + count)
      }
    }
    this.#attempts += count
    if (event.action === 'deny') this.#denied += count
    if (event.action === 'allow') this.#allowed += count
    const reason = event.reason ?? 'none'
    if (count > 0) this.#byReason.set(reason, (this.#byReason.get(reason) ?? 0) + count)
  }

  #beyondTripwire(event: AuditEvent): number {
    if (event.protocol !== 'tcp' || event.address === null) return event.count
    const seen = this.#unnamed.get(event.address) ?? 0
    const known = Math.min(seen, event.count)
    if (known > 0) this.#unnamed.set(event.address, seen - known)
    return event.count - known
  }

  view(): EgressSummary {
    return {
      attempts: this.#attempts,
      denied: this.#denied,
      allowed: this.#allowed,
      byReason: Object.fromEntries([...this.#byReason].toSorted(([a], [b]) => (a < b ? -1 : 1))),
    }
  }
}
