/**
 * Denials are cheap for a sandbox and not for the daemon, which all leases share. Up to so many a second a lease is answered
 * at once; beyond it each answer waits for its turn, so that a flood goes at our pace and its neighbours feel nothing. The
 * record of a denial never waits.
 */
import { setTimeout as delay } from 'node:timers/promises'

export interface PaceRules {
  readonly perSecond: number
  /** So many at once are no flood. */
  readonly burst: number
  /** Who asks on without waiting for answers is cut off when so many are waiting. */
  readonly waiting: number
}

export const paceRules: PaceRules = { perSecond: 2_000, burst: 2_000, waiting: 1_024 }

export class Pace {
  readonly #rules: PaceRules
  #left: number
  #at = performance.now()
  #waiting = 0

  constructor(rules: PaceRules = paceRules) {
    this.#rules = rules
    this.#left = rules.burst
  }

  /** Resolves when one more denial may be answered: true; or at once with false, if too many wait already. */
  async turn(): Promise<boolean> {
    const { perSecond, burst, waiting } = this.#rules
    const now = performance.now()
    this.#left = Math.min(burst, this.#left + ((now - this.#at) * perSecond) / 1000)
    this.#at = now
    if (this.#left < 1 && this.#waiting >= waiting) return false
    this.#left -= 1
    if (this.#left >= 0) return true
    this.#waiting += 1
    await delay((-this.#left * 1000) / perSecond)
    this.#waiting -= 1
    return true
  }
}
