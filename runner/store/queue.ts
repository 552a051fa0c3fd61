/**
 * The queue of trials: pg-boss, one queue a hardware class, one entry a trial. An entry is fetched, touched and settled
 * by our own loop, always with `{id, retryCount}`: whoever was given the entry before has another count and changes
 * nothing. Which group may be fetched is the claim's to say (claim.ts); this file knows no job.
 */
import { PgBoss, type JobAttempt } from 'pg-boss'
import { z } from 'zod'
import type { PlannedTask } from '../job/plan.ts'
import type { Database, Sql } from './database.ts'

export type HardwareClass = PlannedTask['hardware']
export const hardwareClasses: readonly HardwareClass[] = ['cpu', 'h100']

/** pg-boss allows a day; an execution has limits of its own. */
const expireInSeconds = 86_399
/** Executions are bounded by our own rule; the queue only counts them. */
const retryLimit = 100_000
const retentionSeconds = 10 * 365 * 86_400
const schema = 'closedbook_queue'

export interface QueueEntry {
  readonly id: string
  readonly trial: string
  readonly hardware: HardwareClass
  readonly group: string
  readonly priority: number
}

export type Attempt = JobAttempt

export class Queue implements AsyncDisposable {
  readonly #boss: PgBoss

  private constructor(boss: PgBoss) {
    this.#boss = boss
  }

  static async open(database: Database): Promise<Queue> {
    const boss = new PgBoss({
      db: adapter(database),
      schema,
      supervise: false,
      schedule: false,
      registerInstance: false,
      monitorVacuum: false,
      monitorIntervalSeconds: 10,
    })
    // every call of ours is awaited and throws by itself; these are its own timers
    boss.on('error', () => {})
    await boss.start()
    for (const name of hardwareClasses)
      if ((await boss.getQueue(name)) === null)
        await boss.createQueue(name, { retryLimit, retentionSeconds, expireInSeconds })
    return new Queue(boss)
  }

  async insert(
    entries: readonly QueueEntry[],
    { sql, heartbeatSeconds }: { readonly sql: Sql; readonly heartbeatSeconds: number },
  ): Promise<void> {
    for (const [hardware, own] of Map.groupBy(entries, (entry) => entry.hardware))
      await this.#boss.insert(
        hardware,
        own.map(({ id, trial, group, priority }) => ({
          id,
          priority,
          data: { trial },
          group: { id: group },
          heartbeatSeconds,
          retryLimit,
          retentionSeconds,
          expireInSeconds,
        })),
        { db: adapter(sql) },
      )
  }

  /** The first entry whose group is not among those; it is the caller's until its heartbeat stops. */
  async fetch(
    hardware: HardwareClass,
    { sql, ignoreGroups }: { readonly sql: Sql; readonly ignoreGroups: readonly string[] },
  ): Promise<(Attempt & { readonly trial: string }) | null> {
    const [job] = await this.#boss.fetch<{ trial: string }>(hardware, {
      db: adapter(sql),
      ignoreGroups: [...ignoreGroups],
      includeMetadata: true,
    })
    return job === undefined
      ? null
      : { id: job.id, retryCount: job.retryCount, trial: job.data.trial }
  }

  /** Those that are still held by whoever calls; the others were given to somebody else. */
  async touch(hardware: HardwareClass, attempts: readonly Attempt[]): Promise<string[]> {
    return settledIds(await this.#boss.touch(hardware, [...attempts]))
  }

  /** False: the entry is no longer held, and nothing was changed. */
  async complete(hardware: HardwareClass, attempt: Attempt, sql: Sql): Promise<boolean> {
    const answer = await this.#boss.complete(hardware, attempt, null, { db: adapter(sql) })
    return settledIds(answer).length === 1
  }

  /** Back into the queue, to be fetched again. */
  async putBack(hardware: HardwareClass, attempt: Attempt, sql: Sql): Promise<boolean> {
    const answer = await this.#boss.fail(hardware, attempt, null, { db: adapter(sql) })
    return settledIds(answer).length === 1
  }

  async remove(hardware: HardwareClass, ids: readonly string[], sql: Sql): Promise<void> {
    if (ids.length > 0) await this.#boss.deleteJob(hardware, [...ids], { db: adapter(sql) })
  }

  /** Puts entries without a heartbeat back; one process at a time does it (worker/sweep.ts). */
  async sweep(): Promise<void> {
    await this.#boss.supervise()
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#boss.stop({ graceful: false, close: false })
  }
}

/** Ids of the entries that a call changed. */
const settledIds = (answer: unknown): string[] =>
  z.object({ settled: z.array(z.string()) }).parse(answer).settled

const adapter = (sql: Sql) => ({
  executeSql: async (text: string, values: unknown[] = []) => ({
    rows: await sql.rows(text, values),
  }),
})
