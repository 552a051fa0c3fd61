/**
 * Tells the store that this worker's trials live, and learns from it which of them are no longer its own or were
 * cancelled. A trial that went to somebody else is aborted here: two agents at one trial cost twice and count once.
 */
import type { Held } from '../store/settle.ts'
import type { Store } from '../store/store.ts'
import { hardwareClasses } from '../store/queue.ts'
import { beat } from '../store/workers.ts'

export class TrialCancelled extends Error {}
export class TrialSuperseded extends Error {}

export interface RunningTrial extends Held {
  readonly abort: AbortController
}

const cancelPollMs = 1_500

export class Heartbeat implements Disposable {
  readonly #store: Store
  readonly #worker: string
  readonly #running: ReadonlyMap<string, RunningTrial>
  readonly #timers: readonly NodeJS.Timeout[]
  #beating = false
  #asking = false

  constructor(store: Store, worker: string, running: ReadonlyMap<string, RunningTrial>) {
    this.#store = store
    this.#worker = worker
    this.#running = running
    const beatMs = (store.heartbeatSeconds * 1000) / 4
    this.#timers = [
      setInterval(() => void this.#beat(), beatMs),
      setInterval(() => void this.#ask(), cancelPollMs),
    ]
  }

  /** A database that is gone is waited for by those who write to it; here the next beat is soon enough. */
  async #beat(): Promise<void> {
    if (this.#beating) return
    this.#beating = true
    try {
      await beat(this.#store, this.#worker)
      for (const hardware of hardwareClasses) {
        const own = [...this.#running.values()].filter((one) => one.hardware === hardware)
        if (own.length === 0) continue
        const held = await this.#store.queue.touch(
          hardware,
          own.map(({ attempt }) => attempt),
        )
        for (const { attempt, abort, trial } of own)
          // one that has been settled meanwhile is not held either
          if (!held.includes(attempt.id) && this.#running.get(trial)?.attempt === attempt)
            abort.abort(new TrialSuperseded('the trial was given to another worker'))
      }
    } catch {
      // said and handled where something waits for it
    } finally {
      this.#beating = false
    }
  }

  async #ask(): Promise<void> {
    const jobs = [...new Set([...this.#running.values()].map(({ job }) => job))]
    if (this.#asking || jobs.length === 0) return
    this.#asking = true
    try {
      const cancelled = await this.#store.database.rows<{ job: string }>(
        `select job from closedbook.plans where job = any($1) and state = 'cancelled'`,
        [jobs],
      )
      for (const { job, abort } of this.#running.values())
        if (cancelled.some((one) => one.job === job))
          abort.abort(new TrialCancelled('the job was cancelled'))
    } catch {
      // asked again
    } finally {
      this.#asking = false
    }
  }

  [Symbol.dispose](): void {
    for (const timer of this.#timers) clearInterval(timer)
  }
}
