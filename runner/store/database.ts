/**
 * Connections to the store's PostgreSQL: the private cluster's, or those of DATABASE_URL. The one file that imports the
 * driver (and cluster.ts, which only asks whether a server answers). Every error is told apart here: `store_unreachable`
 * means that the statement may be tried again once the database is back, and that nobody knows whether it was done.
 */
import { closeSync } from 'node:fs'
import path from 'node:path'
import pg from 'pg'
import { RunnerError, messageOf, systemCode } from '../errors.ts'
import { openCluster, type ClusterAddress } from './cluster.ts'

export type Row = Readonly<Record<string, unknown>>

/** What statements are run on: the pool, or one transaction. */
export interface Sql {
  rows<T extends object = Row>(text: string, values?: readonly unknown[]): Promise<T[]>
}

export interface DatabaseSource {
  /** A server's URL; null: the private cluster of the state directory. */
  readonly url: string | null
  readonly stateDir: string
}

const connections = 4
const connectLimitMs = 10_000
/** No statement of ours takes long; one that does waits for a server that is gone. */
const statementLimitMs = 60_000

export class Database implements Sql, AsyncDisposable {
  readonly #source: DatabaseSource
  #pool: pg.Pool
  #address: ClusterAddress | null
  #closed = false

  private constructor(source: DatabaseSource, pool: pg.Pool, address: ClusterAddress | null) {
    this.#source = source
    this.#pool = pool
    this.#address = address
  }

  static async open(source: DatabaseSource, signal?: AbortSignal): Promise<Database> {
    const { pool, address } = await connect(source, signal)
    return new Database(source, pool, address)
  }

  async rows<T extends object = Row>(text: string, values: readonly unknown[] = []): Promise<T[]> {
    try {
      return rowsOf(await this.#pool.query<T>(text, [...values]))
    } catch (error) {
      throw translated(error)
    }
  }

  /** All or nothing. When it throws `store_unreachable` the commit may still have happened. */
  async transaction<T>(work: (sql: Sql) => Promise<T>): Promise<T> {
    let client: pg.PoolClient
    try {
      client = await this.#pool.connect()
    } catch (error) {
      throw translated(error)
    }
    let broken: Error | undefined
    // the statement that finds the connection broken says so itself
    const ignore = (): void => {}
    client.on('error', ignore)
    try {
      await client.query('begin')
      const result = await work({
        async rows<R extends object = Row>(text: string, values: readonly unknown[] = []) {
          try {
            return rowsOf(await client.query<R>(text, [...values]))
          } catch (error) {
            throw translated(error)
          }
        },
      })
      await client.query('commit')
      return result
    } catch (error) {
      await client.query('rollback').catch((failure: Error) => (broken = failure))
      throw translated(error)
    } finally {
      client.off('error', ignore)
      client.release(broken)
    }
  }

  /** A connection of its own, for locks that live as long as it; `onLost` is told when it ends by itself. */
  async dedicated(onLost: () => void): Promise<Sql & AsyncDisposable> {
    const client = new pg.Client(clientOptions(this.#source, this.#address))
    let closing = false
    const lost = (): void => {
      if (!closing) onLost()
      closing = true
    }
    client.on('error', lost)
    client.on('end', lost)
    try {
      await client.connect()
    } catch (error) {
      closing = true
      throw translated(error)
    }
    return {
      async rows<R extends object = Row>(text: string, values: readonly unknown[] = []) {
        try {
          return rowsOf(await client.query<R>(text, [...values]))
        } catch (error) {
          throw translated(error)
        }
      },
      async [Symbol.asyncDispose]() {
        closing = true
        await client.end().catch(() => {})
      },
    }
  }

  /** After `store_unreachable`: starts the private cluster where nobody has, and connects anew. */
  async reconnect(signal?: AbortSignal): Promise<void> {
    if (this.#closed) return
    const { pool, address } = await connect(this.#source, signal)
    const before = { pool: this.#pool, address: this.#address }
    this.#pool = pool
    this.#address = address
    await end(before.pool, before.address)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#closed) return
    this.#closed = true
    await end(this.#pool, this.#address)
  }
}

/** A text of several statements has a result for each. */
const rowsOf = <T extends object>(result: pg.QueryResult<T> | readonly pg.QueryResult<T>[]): T[] =>
  'rows' in result ? result.rows : result.flatMap((one) => one.rows)

async function connect(
  source: DatabaseSource,
  signal?: AbortSignal,
): Promise<{ pool: pg.Pool; address: ClusterAddress | null }> {
  const address = source.url === null ? await openCluster(source.stateDir, { signal }) : null
  const pool = new pg.Pool({ ...clientOptions(source, address), max: connections })
  // an idle connection that breaks is no news: the next statement says so
  pool.on('error', () => {})
  try {
    await pool.query('select 1')
    return { pool, address }
  } catch (error) {
    await end(pool, address)
    throw unreachable(source, error)
  }
}

const clientOptions = (
  { url }: DatabaseSource,
  address: ClusterAddress | null,
): pg.ClientConfig => ({
  ...(address === null
    ? { connectionString: url ?? '' }
    : { host: address.host, user: address.user, database: address.database, port: 5432 }),
  application_name: 'closedbook',
  connectionTimeoutMillis: connectLimitMs,
  query_timeout: statementLimitMs,
  keepAlive: true,
})

async function end(pool: pg.Pool, address: ClusterAddress | null): Promise<void> {
  await pool.end().catch(() => {})
  if (address !== null) closeSync(address.descriptor)
}

/** A URL, or the state directory of another's private cluster. */
export const sourceOf = (text: string | null, stateDir: string): DatabaseSource =>
  text === null || /^postgres(ql)?:\/\//.test(text)
    ? { url: text, stateDir }
    : { url: null, stateDir: path.resolve(text) }

const unreachable = ({ url }: DatabaseSource, error: unknown): RunnerError =>
  error instanceof RunnerError
    ? error
    : new RunnerError(
        'store_unreachable',
        'infra',
        `the store ${url === null ? 'of this state directory' : 'that DATABASE_URL names'} does not answer: ${messageOf(error)}`,
        { cause: error },
      )

/** Server shutting down or starting, connection trouble, and what a torn connection is called by the driver. */
const transientState = /^(08|57P0|53300$|25P03$)/
const transientSystem = new Set([
  'ECONNREFUSED',
  'ECONNRESET',
  'ENOENT',
  'EPIPE',
  'ETIMEDOUT',
  'EHOSTUNREACH',
  'ENETUNREACH',
  'ENOTFOUND',
  'EAI_AGAIN',
])
const transientText =
  /Connection terminated|timeout exceeded|Query read timeout|Client has encountered a connection error|not queryable|Cannot use a pool after/

function translated(error: unknown): unknown {
  if (error instanceof RunnerError) return error
  const code = systemCode(error) ?? ''
  if (
    transientState.test(code) ||
    transientSystem.has(code) ||
    transientText.test(messageOf(error))
  )
    return new RunnerError(
      'store_unreachable',
      'infra',
      `the store does not answer: ${messageOf(error)}`,
      { cause: error },
    )
  return error
}

export const isStoreLost = (error: unknown): boolean =>
  error instanceof RunnerError && error.code === 'store_unreachable'
