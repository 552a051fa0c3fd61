/**
 * How an execution ends in the store: its end, its result and the queue's entry change in one transaction, or not at
 * all. Whoever no longer holds the entry is `superseded`, and nothing of his counts. Safe to repeat after a commit
 * whose answer was lost.
 */
import type { TrialBlame, TrialReason, Verdict } from '../result.ts'
import type { Sql } from './database.ts'
import { addEvent } from './events.ts'
import type { Attempt, HardwareClass } from './queue.ts'
import type { Store } from './store.ts'

export interface Held {
  readonly job: string
  readonly trial: string
  readonly hardware: HardwareClass
  readonly attempt: Attempt
}

export interface ResultRow {
  readonly verdict: Verdict
  readonly blame: TrialBlame | null
  readonly digest: string
  readonly body: string
  readonly costUsd: number
  readonly wallTimeMs: number
}

export interface End {
  readonly execution: string
  readonly blame: TrialBlame | null
  readonly reason: TrialReason
  readonly costUsd: number
  readonly endedAt: string
  /** null: the trial goes back into the queue. */
  readonly result: ResultRow | null
}

export type Settled = 'settled' | 'superseded'

class Superseded extends Error {}

export async function settle(store: Store, held: Held, end: End): Promise<Settled> {
  const { trial, job } = held
  const { execution } = end
  return fenced(store, { ...held, execution }, async (sql) => {
    const [row] = await sql.rows<{ code: string | null; worker: string }>(
      `select reason ->> 'code' as code, worker from closedbook.executions where trial = $1 and execution = $2 for update`,
      [trial, execution],
    )
    if (row === undefined || (row.code !== null && row.code !== end.reason.code))
      throw new Superseded()
    // done already; the answer was lost
    if (row.code !== null) return
    await leaveQueue(store, sql, held, end.result === null)
    await sql.rows(
      `update closedbook.executions set ended_at = greatest(started_at, $3), blame = $4, reason = $5, cost_usd = $6
       where trial = $1 and execution = $2`,
      [trial, execution, end.endedAt, end.blame, JSON.stringify(end.reason), end.costUsd],
    )
    await sql.rows('delete from closedbook.endpoint_slots where trial = $1 and execution = $2', [
      trial,
      execution,
    ])
    const { worker } = row
    await addEvent(sql, { kind: 'ended', job, trial, execution, worker, body: end.reason })
    if (end.result !== null) await addResult(sql, held, execution, end.result)
  })
}

/** A trial that is recorded without another execution: those that it may have are spent. */
export async function settleSpent(
  store: Store,
  held: Held,
  execution: string,
  result: ResultRow,
): Promise<Settled> {
  return fenced(store, { ...held, execution }, async (sql) => {
    const [standing] = await sql.rows<{ digest: string }>(
      'select digest from closedbook.results where trial = $1 and superseded_at is null',
      [held.trial],
    )
    if (standing?.digest === result.digest) return
    await leaveQueue(store, sql, held, false)
    await addResult(sql, held, execution, result)
  })
}

async function fenced(
  store: Store,
  where: { job: string; trial: string; execution: string },
  work: (sql: Sql) => Promise<void>,
): Promise<Settled> {
  const { job, trial, execution } = where
  try {
    await store.transaction(work)
    return 'settled'
  } catch (error) {
    if (!(error instanceof Superseded)) throw error
    await addEvent(store.database, { kind: 'superseded', job, trial, execution })
    return 'superseded'
  }
}

async function leaveQueue(
  store: Store,
  sql: Sql,
  { hardware, attempt, trial }: Held,
  again: boolean,
): Promise<void> {
  const held = again
    ? await store.queue.putBack(hardware, attempt, sql)
    : await store.queue.complete(hardware, attempt, sql)
  if (!held) throw new Superseded()
  if (again)
    await sql.rows('update closedbook.trials set queued_at = now() where trial = $1', [trial])
}

async function addResult(
  sql: Sql,
  { trial, job }: Held,
  execution: string,
  result: ResultRow,
): Promise<void> {
  await sql.rows(
    `insert into closedbook.results (trial, execution, verdict, blame, digest, cost_usd, wall_time_ms, body)
     values ($1, $2, $3, $4, $5, $6, $7, $8)`,
    [
      trial,
      execution,
      result.verdict,
      result.blame,
      result.digest,
      result.costUsd,
      result.wallTimeMs,
      result.body,
    ],
  )
  await addEvent(sql, {
    kind: 'recorded',
    job,
    trial,
    execution,
    body: { verdict: result.verdict, digest: result.digest },
  })
}
