/**
 * Keeps trials from being taken while the daemon or its engine is gone: each would end at once, and infra may spoil
 * only a few executions. Whoever ended by such a fault closes the gate until it answers again.
 */
import type { DaemonClient } from '../../daemon/protocol/client.ts'
import { ClosedbookError } from '../../daemon/protocol/errors.ts'
import { messageOf, RunnerError } from '../errors.ts'
import { delay } from '../trial/held-lease.ts'
import { maxExecutions } from '../job/trial-state.ts'

const pollMs = 500

const unanswered = new Set([
  'daemon_unreachable',
  'connection_lost',
  'engine_unreachable',
  'engine_timeout',
])

export class DaemonGate {
  readonly #client: DaemonClient
  /** null: waits for as long as it takes. */
  readonly #limitMs: number | null
  #waiting: Promise<void> | null = null

  constructor(client: DaemonClient, limitMs: number | null) {
    this.#client = client
    this.#limitMs = limitMs
  }

  get open(): boolean {
    return this.#waiting === null
  }

  /** `image`: some image that the engine has; the daemon answers without its engine too. */
  async pass(image: string, signal: AbortSignal): Promise<void> {
    this.#waiting ??= this.#wait(image, signal).finally(() => (this.#waiting = null))
    await this.#waiting
  }

  async #wait(image: string, signal: AbortSignal): Promise<void> {
    const deadline = this.#limitMs === null ? Infinity : performance.now() + this.#limitMs
    while (true)
      try {
        await this.#client.health({ signal })
        await this.#client.inspectImage(image, { signal })
        return
      } catch (error) {
        signal.throwIfAborted()
        if (error instanceof ClosedbookError && !unanswered.has(error.code)) return
        if (!(error instanceof ClosedbookError) || performance.now() > deadline)
          throw new RunnerError(
            'daemon_unreachable',
            'infra',
            `the daemon or its engine has been gone for ${(this.#limitMs ?? 0) / 1000} s (${messageOf(error)}); start it with \`closedbook up\`, then resume the job. Executions allowed: ${maxExecutions}`,
            { cause: error },
          )
        await delay(pollMs, signal)
      }
  }
}
