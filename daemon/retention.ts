/**
 * Drops the records of leases that closed longer ago than an operator keeps them: audit, events, exchanges, terminals
 * and the journal's entry. Off unless it is set, for they are evidence; what a job needs of them lies with its results. A lease
 * that isn't closed is never touched.
 */
import { readdir, rm, stat } from 'node:fs/promises'
import path from 'node:path'
import type { Logger } from './logger.ts'

export interface RetentionOptions {
  /** null: for ever. */
  readonly days: number | null
  readonly closed: string
  /** Where files are called by the lease's id and an ending, or a directory by the id alone. */
  readonly records: readonly string[]
  readonly log: Logger
}

const everyMs = 3_600_000
const dayMs = 86_400_000

export class Retention implements Disposable {
  readonly #options: RetentionOptions
  readonly #timer: NodeJS.Timeout | null

  constructor(options: RetentionOptions) {
    this.#options = options
    const sweep = (): void =>
      void this.sweep().catch((error: unknown) =>
        options.log.warn({ err: error }, 'retention.failed'),
      )
    this.#timer = options.days === null ? null : setInterval(sweep, everyMs)
    this.#timer?.unref()
    if (this.#timer !== null) sweep()
  }

  /** Ids of the leases whose records were dropped. */
  async sweep(now = Date.now()): Promise<string[]> {
    const { days, closed, records, log } = this.#options
    if (days === null) return []
    const dropped: string[] = []
    for (const name of await readdir(closed)) {
      if (!name.endsWith('.json')) continue
      const entry = path.join(closed, name)
      const { mtimeMs } = await stat(entry)
      if (now - mtimeMs < days * dayMs) continue
      const lease = path.basename(name, '.json')
      // The journal's entry last: what is half dropped is found again.
      for (const directory of records) await removeOf(directory, lease)
      await rm(entry, { force: true })
      dropped.push(lease)
    }
    if (dropped.length > 0) log.info({ leases: dropped.length, days }, 'retention.dropped')
    return dropped
  }

  [Symbol.dispose](): void {
    if (this.#timer !== null) clearInterval(this.#timer)
  }
}

async function removeOf(directory: string, lease: string): Promise<void> {
  for (const name of await readdir(directory).catch(() => []))
    if (name === lease || name.startsWith(`${lease}.`))
      await rm(path.join(directory, name), { recursive: true, force: true })
}
