/**
 * Refused requests: counted, logged without flooding the log, and slowed down. A good credential is never slowed: the
 * limit is on answers to bad ones, by address, so that nobody can lock another out who shares the address.
 */
import type { Logger } from '../../logger.ts'

export interface Refusal {
  readonly code: string
  readonly address: string
  readonly method: string
  readonly path: string
}

const linesPerWindow = 30
const windowMs = 10_000
const burst = 20
const refillPerSecond = 1
const maxAddresses = 1_000

export class Refusals implements Disposable {
  readonly #log: Logger
  readonly #now: () => number
  readonly #counts = new Map<string, number>()
  readonly #buckets = new Map<string, { left: number; at: number }>()
  readonly #window: NodeJS.Timeout
  #lines = 0
  #held = 0

  constructor(log: Logger, now: () => number = Date.now) {
    this.#log = log
    this.#now = now
    this.#window = setInterval(() => this.#turn(), windowMs)
    this.#window.unref()
  }

  /** By code, since the start. */
  get counts(): ReadonlyMap<string, number> {
    return this.#counts
  }

  note(refusal: Refusal): void {
    this.#counts.set(refusal.code, (this.#counts.get(refusal.code) ?? 0) + 1)
    if (this.#lines >= linesPerWindow) {
      this.#held += 1
      return
    }
    this.#lines += 1
    // what a stranger sent is cut and shown as JSON shows it
    this.#log.info({ ...refusal, path: refusal.path.slice(0, 200) }, 'auth.refused')
  }

  /** Takes one of the address's tries; false when it has none left. */
  spend(address: string): boolean {
    const now = this.#now()
    const known = this.#buckets.get(address)
    const left = Math.min(
      burst,
      known === undefined ? burst : known.left + ((now - known.at) / 1000) * refillPerSecond,
    )
    this.#buckets.delete(address)
    if (this.#buckets.size >= maxAddresses)
      for (const oldest of this.#buckets.keys()) {
        this.#buckets.delete(oldest)
        break
      }
    this.#buckets.set(address, { left: Math.max(0, left - 1), at: now })
    return left >= 1
  }

  [Symbol.dispose](): void {
    clearInterval(this.#window)
  }

  #turn(): void {
    if (this.#held > 0) this.#log.warn({ more: this.#held }, 'auth.refused-more')
    this.#lines = 0
    this.#held = 0
  }
}
