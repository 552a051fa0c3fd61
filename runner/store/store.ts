/**
 * The store of jobs: PostgreSQL with our schema and the queue. Opened by whoever plans, works on or looks at jobs; the
 * first on a host makes and starts the private cluster. What is in it is the truth about a job; files are evidence, and
 * copies for those who read a job without a store.
 */
import type { RunnerConfig } from '../config.ts'
import { RunnerError } from '../errors.ts'
import { clusterExists } from './cluster.ts'
import { Database, isStoreLost, sourceOf, type Sql } from './database.ts'
import { migrate } from './migrations.ts'
import { Queue } from './queue.ts'

export type StoreConfig = Pick<RunnerConfig, 'stateDir' | 'databaseUrl' | 'heartbeatSeconds'>

const retryMs = { first: 100, most: 3_000 }

export class Store implements AsyncDisposable {
  readonly database: Database
  readonly queue: Queue
  readonly heartbeatSeconds: number
  #reconnecting: Promise<void> | null = null
  readonly #lostListeners = new Set<(lost: boolean) => void>()

  private constructor(database: Database, queue: Queue, heartbeatSeconds: number) {
    this.database = database
    this.queue = queue
    this.heartbeatSeconds = heartbeatSeconds
  }

  static async open(config: StoreConfig, signal?: AbortSignal): Promise<Store> {
    await using undo = new AsyncDisposableStack()
    const source = sourceOf(config.databaseUrl ?? null, config.stateDir)
    // a directory that was named is another runner's: nothing is made there
    if (config.databaseUrl !== undefined && source.url === null)
      if (!(await clusterExists(source.stateDir)))
        throw new RunnerError(
          'store_unreachable',
          'operator',
          `no runner keeps a store in ${source.stateDir}; name the state directory of one, or a server as postgresql://…`,
        )
    const database = undo.use(await Database.open(source, signal))
    const queue = await prepared(database)
    undo.move()
    return new Store(database, queue, config.heartbeatSeconds)
  }

  /** For those who only look: null where no job was ever planned, so that nothing is made for them. */
  static async openIfThere(config: StoreConfig, signal?: AbortSignal): Promise<Store | null> {
    const { url, stateDir } = sourceOf(config.databaseUrl ?? null, config.stateDir)
    if (config.databaseUrl === undefined && url === null && !(await clusterExists(stateDir)))
      return null
    return Store.open(config, signal)
  }

  /** Told `true` when a statement found no database, `false` when one answers again. */
  onLost(listener: (lost: boolean) => void): () => void {
    this.#lostListeners.add(listener)
    return () => this.#lostListeners.delete(listener)
  }

  /**
   * Does it until it is done: a database that is gone is waited for, and started where it is ours. `work` may run
   * again after a commit whose answer was lost, so it must find out what is already done.
   */
  async persist<T>(work: () => Promise<T>, signal?: AbortSignal): Promise<T> {
    while (true)
      try {
        return await work()
      } catch (error) {
        if (!isStoreLost(error)) throw error
        await this.#comeBack(signal)
      }
  }

  transaction<T>(work: (sql: Sql) => Promise<T>): Promise<T> {
    return this.database.transaction(work)
  }

  async #comeBack(signal?: AbortSignal): Promise<void> {
    this.#reconnecting ??= this.#reconnect().finally(() => (this.#reconnecting = null))
    const back = this.#reconnecting
    if (signal === undefined) return back
    signal.throwIfAborted()
    const aborted = Promise.withResolvers<never>()
    const abort = (): void => aborted.reject(signal.reason)
    signal.addEventListener('abort', abort, { once: true })
    try {
      await Promise.race([back, aborted.promise])
    } finally {
      signal.removeEventListener('abort', abort)
    }
  }

  async #reconnect(): Promise<void> {
    for (const listener of this.#lostListeners) listener(true)
    let wait = retryMs.first
    while (true)
      try {
        await this.database.reconnect()
        for (const listener of this.#lostListeners) listener(false)
        return
      } catch (error) {
        if (!isStoreLost(error)) throw error
        await new Promise((resolve) => setTimeout(resolve, wait))
        wait = Math.min(retryMs.most, wait * 2)
      }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await using _database = this.database
    await this.queue[Symbol.asyncDispose]()
  }
}

/** Both schemas, made by one of those that come to an empty database: pg-boss's own lock lets some of them fail. */
async function prepared(database: Database): Promise<Queue> {
  const [found] = await database.rows<{ ready: boolean }>(
    `select to_regclass('closedbook_queue.queue') is not null and to_regclass('closedbook.migrations') is not null as ready`,
  )
  if (found?.ready === true) {
    await migrate(database)
    return Queue.open(database)
  }
  await using alone = await database.dedicated(() => {})
  await alone.rows('select pg_advisory_lock($1)', [preparing])
  await migrate(database)
  return await Queue.open(database)
}

const preparing = 7_220_230
