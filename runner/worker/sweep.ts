/**
 * One process over all hosts puts entries whose worker fell silent back into the queue. It pauses for a whole heartbeat
 * after it began and after the database was gone: until then nobody could report, and everybody would look dead.
 */
import type { Sql } from '../store/database.ts'
import type { Store } from '../store/store.ts'

const everyMs = 15_000
const sweepLock = 7_220_233

export class Sweep implements AsyncDisposable {
  readonly #store: Store
  readonly #timer: NodeJS.Timeout
  readonly #unlisten: () => void
  #quietSince = performance.now()
  #lock: (Sql & AsyncDisposable) | null = null
  #sweeping: Promise<void> | null = null

  constructor(store: Store) {
    this.#store = store
    this.#unlisten = store.onLost(() => this.#pause())
    this.#timer = setInterval(
      () => {
        this.#sweeping ??= this.#sweep()
          .catch(() => this.#pause())
          .finally(() => (this.#sweeping = null))
      },
      Math.min(everyMs, (store.heartbeatSeconds * 1000) / 4),
    )
  }

  #pause(): void {
    this.#quietSince = performance.now()
  }

  async #sweep(): Promise<void> {
    if (performance.now() - this.#quietSince < this.#store.heartbeatSeconds * 1000) return
    if (!(await this.#isOnlyOne())) return
    await this.#store.queue.sweep()
  }

  /** A lock on a connection of its own: the database takes it back when this process dies. */
  async #isOnlyOne(): Promise<boolean> {
    if (this.#lock !== null) return true
    const connection = await this.#store.database.dedicated(() => {
      this.#lock = null
      this.#pause()
    })
    const [row] = await connection.rows<{ mine: boolean }>(
      'select pg_try_advisory_lock($1) as mine',
      [sweepLock],
    )
    if (row?.mine === true) this.#lock = connection
    else await connection[Symbol.asyncDispose]()
    return this.#lock !== null
  }

  async [Symbol.asyncDispose](): Promise<void> {
    clearInterval(this.#timer)
    this.#unlisten()
    await this.#sweeping
    await this.#lock?.[Symbol.asyncDispose]()
  }
}
