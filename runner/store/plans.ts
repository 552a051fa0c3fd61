/**
 * Jobs in the store: locking a plan puts every trial into the queue in one transaction; resuming puts back what is
 * missing there. Pausing and cancelling only change the plan's state, which every claim looks at.
 */
import { createHash, randomUUID } from 'node:crypto'
import { hostname } from 'node:os'
import { RunnerError } from '../errors.ts'
import { canonicalJson } from '../job/configuration.ts'
import { planSchema, type Plan } from '../job/plan.ts'
import { sourcesSchema, type Sources } from '../job/sources.ts'
import type { Sql } from './database.ts'
import { addEvent } from './events.ts'
import { packNamesSchema, type PackNames } from './packs.ts'
import type { QueueEntry } from './queue.ts'
import type { Store } from './store.ts'
import { isGone, readWorker } from './workers.ts'

/** Serializes what must not happen twice at once: claims and changes of a plan's state. */
export const claimLock = 7_220_232
export const lockClaims = (sql: Sql) => sql.rows('select pg_advisory_xact_lock($1)', [claimLock])

export interface JobLimits {
  readonly trialsAtOnce: number
  readonly perConfiguration: number | null
  readonly perEndpoint: number | null
  readonly budgetUsd: number | null
}

/** What scheduling needs to know of a configuration. */
export interface ConfigurationLoad {
  /** Where its model is; null where nothing is shared. */
  readonly endpoint: string | null
  /** What one trial may cost at most. */
  readonly ceilingUsd: number
  readonly harnessImage: string | null
}

export type PlanState = 'open' | 'paused' | 'cancelled' | 'done'

export interface StoredPlan {
  readonly plan: Plan
  readonly sources: Sources
  readonly jobDir: string
  readonly host: string
  readonly state: PlanState
  readonly digest: string
  readonly limits: JobLimits
  /** null: the store has no files of it. */
  readonly packs: PackNames | null
  /** null: no task of it takes a value from the host. */
  readonly hostKey: string | null
}

export const planDigest = (plan: Plan): string =>
  `sha256:${createHash('sha256').update(canonicalJson(plan)).digest('hex')}`

export async function lockPlan(
  store: Store,
  input: {
    readonly plan: Plan
    readonly sources: Sources
    readonly jobDir: string
    readonly limits: JobLimits
    /** Absent: no other host can have the job's files from the store. */
    readonly packs?: PackNames
    /** Where the plan has sealed values. */
    readonly hostKey?: string | null
    readonly loads: ReadonlyMap<string, ConfigurationLoad>
  },
): Promise<void> {
  const { plan, sources, jobDir, limits, packs = null, hostKey = null, loads } = input
  await store.persist(() =>
    store.transaction(async (sql) => {
      const inserted = await sql.rows(
        `insert into closedbook.plans (job, name, plan, sources, digest, job_dir, host, trials_at_once, per_configuration, per_endpoint, budget_usd, packs, host_key)
         values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13) on conflict (job) do nothing returning job`,
        [
          plan.job,
          plan.name,
          JSON.stringify(plan),
          JSON.stringify(sources),
          planDigest(plan),
          jobDir,
          hostname(),
          limits.trialsAtOnce,
          limits.perConfiguration,
          limits.perEndpoint,
          limits.budgetUsd,
          packs === null ? null : JSON.stringify(packs),
          hostKey,
        ],
      )
      // the answer to an earlier commit was lost
      if (inserted.length === 0) return
      const entries = plan.trials.map((planned, position) => {
        const task = plan.tasks.find(({ name }) => name === planned.task)
        const load = loads.get(planned.configuration)
        if (task === undefined || load === undefined)
          throw new RunnerError(
            'plan_invalid',
            'operator',
            `trial ${planned.trial} names a task or configuration that its plan lacks`,
          )
        return {
          ...planned,
          ...load,
          position,
          hardware: task.hardware,
          image: task.image,
          group: `${plan.job}/${planned.configuration}/${task.image.slice(7, 19)}`,
          id: randomUUID(),
        }
      })
      await sql.rows(
        `insert into closedbook.trials (trial, job, task, configuration, run, position, hardware, image, harness_image, endpoint, ceiling_usd, scheduling_group, queue_job, queued_at)
         select trial, $1, task, configuration, run, position, hardware, image, "harnessImage", endpoint, "ceilingUsd", "group", id, now()
         from jsonb_to_recordset($2) as t(trial text, task text, configuration text, run int, position int, hardware text, image text, "harnessImage" text, endpoint text, "ceilingUsd" float8, "group" text, id uuid)`,
        [plan.job, JSON.stringify(entries)],
      )
      await insertEntries(
        store,
        sql,
        entries.map((entry) => ({ ...entry, priority: -entry.position })),
      )
      await addEvent(sql, { kind: 'planned', job: plan.job, body: { trials: entries.length } })
    }),
  )
}

const insertEntries = (store: Store, sql: Sql, entries: readonly QueueEntry[]): Promise<void> =>
  store.queue.insert(entries, { sql, heartbeatSeconds: store.heartbeatSeconds })

const planColumns = `p.plan, p.sources, p.packs, p.job_dir as "jobDir", p.host, p.state, p.digest, p.trials_at_once as "trialsAtOnce",
  p.host_key as "hostKey", p.per_configuration as "perConfiguration", p.per_endpoint as "perEndpoint", p.budget_usd as "budgetUsd"`

type PlanRow = Omit<StoredPlan, 'limits' | 'plan' | 'sources' | 'packs'> &
  JobLimits & { plan: unknown; sources: unknown; packs: unknown }

export async function readStoredPlan(sql: Sql, job: string): Promise<StoredPlan | null> {
  const [row] = await sql.rows<PlanRow>(
    `select ${planColumns} from closedbook.plans p where p.job = $1`,
    [job],
  )
  if (row === undefined) return null
  const { trialsAtOnce, perConfiguration, perEndpoint, budgetUsd } = row
  return {
    jobDir: row.jobDir,
    host: row.host,
    state: row.state,
    digest: row.digest,
    hostKey: row.hostKey,
    plan: planSchema.parse(row.plan),
    sources: sourcesSchema.parse(row.sources),
    packs: packNamesSchema.nullable().parse(row.packs),
    limits: { trialsAtOnce, perConfiguration, perEndpoint, budgetUsd },
  }
}

export async function setPlanState(
  store: Store,
  job: string,
  state: PlanState,
  event: 'paused' | 'cancelled' | 'finished',
): Promise<void> {
  await store.transaction(async (sql) => {
    await lockClaims(sql)
    const changed = await sql.rows(
      `update closedbook.plans set state = $2 where job = $1 and state <> $2 returning job`,
      [job, state],
    )
    if (changed.length > 0) await addEvent(sql, { kind: event, job })
  })
}

/** One process at a time decides about a job; throws `job_locked` while another lives. */
export async function takeJob(store: Store, job: string, worker: string): Promise<void> {
  await store.transaction(async (sql) => {
    await lockClaims(sql)
    const [plan] = await sql.rows<{ runner: string | null }>(
      'select runner from closedbook.plans where job = $1',
      [job],
    )
    const runner = plan?.runner ?? null
    const holder = runner === null || runner === worker ? null : await readWorker(sql, runner)
    if (holder !== null && !(await isGone(holder, store.heartbeatSeconds)))
      throw new RunnerError(
        'job_locked',
        'operator',
        `job ${job} is being run by process ${holder.pid} on ${holder.host}; wait for it, or stop it`,
        { facts: { job, pid: holder.pid, host: holder.host } },
      )
    await sql.rows('update closedbook.plans set runner = $2 where job = $1', [job, worker])
  })
}

export const releaseJob = async (store: Store, job: string, worker: string): Promise<void> => {
  await store.database.rows(
    'update closedbook.plans set runner = null where job = $1 and runner = $2',
    [job, worker],
  )
}

export interface Reopened {
  /** Void trials that get another chance. */
  readonly retried: number
}

/** Opens the job again: what is not recorded stands in the queue afterwards, each trial once. */
export async function reopenJob(
  store: Store,
  job: string,
  options: { readonly retryVoid: boolean; readonly budgetUsd: number | null },
): Promise<Reopened> {
  return store.persist(() =>
    store.transaction(async (sql) => {
      await lockClaims(sql)
      await sql.rows(
        `update closedbook.plans set state = 'open', budget_usd = coalesce($2, budget_usd) where job = $1`,
        [job, options.budgetUsd],
      )
      const retried = options.retryVoid ? await retryVoid(sql, job) : 0
      const missing = await sql.rows<Omit<QueueEntry, 'id'> & { position: number }>(
        `select t.trial, t.hardware, t.scheduling_group as "group", t.position
         from closedbook.trials t
         left join closedbook_queue.job q on q.id = t.queue_job and q.state in ('created', 'retry', 'active')
         where t.job = $1 and q.id is null
           and not exists (select from closedbook.results r where r.trial = t.trial and r.superseded_at is null)`,
        [job],
      )
      const entries = missing.map((entry) => ({
        ...entry,
        id: randomUUID(),
        priority: -entry.position,
      }))
      for (const { trial, id } of entries)
        await sql.rows(
          'update closedbook.trials set queue_job = $2, queued_at = now() where trial = $1',
          [trial, id],
        )
      await insertEntries(store, sql, entries)
      await addEvent(sql, { kind: 'resumed', job, body: { retried, queued: entries.length } })
      return { retried }
    }),
  )
}

async function retryVoid(sql: Sql, job: string): Promise<number> {
  const rows = await sql.rows<{ trial: string }>(
    `update closedbook.results r set superseded_at = now() from closedbook.trials t
     where t.trial = r.trial and t.job = $1 and r.superseded_at is null and r.verdict = 'void' and r.blame in ('infra', 'operator')
     returning r.trial`,
    [job],
  )
  const trials = rows.map(({ trial }) => trial)
  await sql.rows('update closedbook.trials set allowance_from = now() where trial = any($1)', [
    trials,
  ])
  for (const trial of trials) await addEvent(sql, { kind: 'void-retried', job, trial })
  return trials.length
}
