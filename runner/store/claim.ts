/**
 * Taking a trial out of the queue. All claims go one after another (an advisory lock, milliseconds), so limits hold
 * strictly: trials of a job and of a configuration at a time, slots of a model endpoint over all jobs, and a job's
 * spending cap with what running trials are expected to cost. Entry, execution and slot are taken in one transaction.
 */
import type { ExecutionState } from '../job/trial-state.ts'
import { maxExecutions } from '../job/trial-state.ts'
import { opaque } from '../opaque.ts'
import type { Sql } from './database.ts'
import { addEvent } from './events.ts'
import { lockClaims, type PlanState } from './plans.ts'
import type { Attempt, HardwareClass } from './queue.ts'
import type { Store } from './store.ts'
import { executionsOf } from './trials.ts'

/** Trials that are alike to a claim: of one job, one configuration, one image. */
export interface Group {
  readonly group: string
  readonly job: string
  readonly configuration: string
  readonly hardware: HardwareClass
  readonly endpoint: string | null
  readonly image: string
  readonly harnessImage: string | null
  readonly ceilingUsd: number
  /** Since the first of them came into the queue or back into it. */
  readonly waitingSeconds: number
  readonly state: PlanState
}

export interface Claim {
  readonly job: string
  readonly trial: string
  readonly hardware: HardwareClass
  readonly attempt: Attempt
  readonly execution: string
  readonly leases: readonly string[]
  /** Of this trial, the new one last. */
  readonly executions: readonly ExecutionState[]
  readonly queueMs: number
  /** Executions that infra has spoilt before. */
  readonly faults: number
}

export type ClaimOutcome =
  | { readonly kind: 'claimed'; readonly claim: Claim }
  /** Infra has spoilt as many executions as it may; the entry is held, so that this can be recorded. */
  | { readonly kind: 'spent'; readonly claim: Omit<Claim, 'execution' | 'leases'> }
  | { readonly kind: 'none'; readonly overBudget: readonly Budget[] }

export interface Budget {
  readonly job: string
  readonly usd: number
  readonly spentUsd: number
  /** What the trials that run now are expected to cost. */
  readonly reservedUsd: number
  readonly nextUsd: number
}

/** Groups with something in the queue, whether or not it may be claimed now. */
export const waitingGroups = (sql: Sql): Promise<Group[]> =>
  sql.rows<Group>(
    `select t.scheduling_group as "group", t.job, t.configuration, t.hardware, t.endpoint, t.image, t.harness_image as "harnessImage",
       max(t.ceiling_usd) as "ceilingUsd", p.state, extract(epoch from now() - min(t.queued_at))::float8 as "waitingSeconds"
     from closedbook_queue.job q
     join closedbook.trials t on t.queue_job = q.id
     join closedbook.plans p on p.job = t.job
     where q.state in ('created', 'retry')
     group by 1, 2, 3, 4, 5, 6, 7, p.state`,
  )

export interface Claimant {
  readonly worker: string
  readonly classes: readonly HardwareClass[]
  readonly leases: readonly string[]
  /** Whether this worker could run them; asked inside the transaction, so it must know. */
  readonly serves: (group: Group) => boolean
}

export async function claimTrial(store: Store, claimant: Claimant): Promise<ClaimOutcome> {
  return store.transaction(async (sql) => {
    await lockClaims(sql)
    await closeLost(sql)
    const groups = await waitingGroups(sql)
    const { eligible, overBudget } = await withinLimits(
      sql,
      groups.filter((group) => group.state === 'open' && claimant.serves(group)),
    )
    for (const hardware of claimant.classes) {
      if (!eligible.some((group) => group.hardware === hardware)) continue
      const entry = await store.queue.fetch(hardware, {
        sql,
        ignoreGroups: groups.filter((group) => !eligible.includes(group)).map(({ group }) => group),
      })
      if (entry !== null) return begin(sql, claimant, hardware, entry)
    }
    return { kind: 'none', overBudget }
  })
}

/** Executions whose entry went to somebody else, or back: their worker is gone for us, and its slot free. */
async function closeLost(sql: Sql): Promise<void> {
  const lost = await sql.rows<{ trial: string; execution: string; worker: string; job: string }>(
    `update closedbook.executions e
     set ended_at = now(), blame = 'infra', reason = jsonb_build_object('code', 'worker_lost', 'message', 'its worker was not heard of any more, and the trial was given to another')
     from closedbook.trials t
     where t.trial = e.trial and e.ended_at is null
       and not exists (select from closedbook_queue.job q where q.id = e.queue_job and q.state = 'active' and q.retry_count = e.attempt)
     returning e.trial, e.execution, e.worker, t.job`,
  )
  for (const { trial, execution, worker, job } of lost) {
    await sql.rows('delete from closedbook.endpoint_slots where trial = $1 and execution = $2', [
      trial,
      execution,
    ])
    await addEvent(sql, { kind: 'lost', job, trial, execution, worker })
  }
}

interface Load {
  readonly job: string
  readonly configuration: string
  readonly running: number
  readonly spentUsd: number
  /** Mean of its trials that ran to an end; null before the first. */
  readonly meanUsd: number | null
}

async function withinLimits(
  sql: Sql,
  groups: readonly Group[],
): Promise<{ eligible: Group[]; overBudget: Budget[] }> {
  const jobs = [...new Set(groups.map(({ job }) => job))]
  if (jobs.length === 0) return { eligible: [], overBudget: [] }
  const plans = await sql.rows<{
    job: string
    trialsAtOnce: number
    perConfiguration: number | null
    perEndpoint: number | null
    budgetUsd: number | null
  }>(
    `select job, trials_at_once as "trialsAtOnce", per_configuration as "perConfiguration", per_endpoint as "perEndpoint", budget_usd as "budgetUsd"
     from closedbook.plans where job = any($1)`,
    [jobs],
  )
  const loads = await sql.rows<Load>(
    `select t.job, t.configuration, count(*) filter (where e.ended_at is null)::int as running,
       coalesce(sum(e.cost_usd), 0)::float8 as "spentUsd",
       (avg(e.cost_usd) filter (where e.ended_at is not null and (e.blame is null or e.blame = 'agent')))::float8 as "meanUsd"
     from closedbook.executions e join closedbook.trials t using (trial)
     where t.job = any($1) group by 1, 2`,
    [jobs],
  )
  const taken = await sql.rows<{ endpoint: string; slots: number }>(
    'select endpoint, count(*)::int as slots from closedbook.endpoint_slots group by 1',
  )
  const ceilings = await sql.rows<{ job: string; configuration: string; ceilingUsd: number }>(
    `select job, configuration, max(ceiling_usd) as "ceilingUsd" from closedbook.trials where job = any($1) group by 1, 2`,
    [jobs],
  )
  const expected = (job: string, configuration: string): number =>
    loads.find((load) => load.job === job && load.configuration === configuration)?.meanUsd ??
    ceilings.find((one) => one.job === job && one.configuration === configuration)?.ceilingUsd ??
    0
  const overBudget = new Map<string, Budget>()
  const eligible = groups.filter((group) => {
    const plan = plans.find(({ job }) => job === group.job)
    if (plan === undefined) return false
    const own = loads.filter(({ job }) => job === group.job)
    const running = own.reduce((sum, load) => sum + load.running, 0)
    const alike = own.find(({ configuration }) => configuration === group.configuration)
    const { perConfiguration, perEndpoint, budgetUsd } = plan
    if (budgetUsd !== null) {
      const spentUsd = own.reduce((sum, load) => sum + load.spentUsd, 0)
      const reservedUsd = own.reduce(
        (sum, load) => sum + load.running * expected(load.job, load.configuration),
        0,
      )
      const nextUsd = expected(group.job, group.configuration)
      if (spentUsd + reservedUsd + nextUsd > budgetUsd) {
        overBudget.set(group.job, {
          job: group.job,
          usd: budgetUsd,
          spentUsd,
          reservedUsd,
          nextUsd,
        })
        return false
      }
    }
    if (running >= plan.trialsAtOnce) return false
    if (perConfiguration !== null && (alike?.running ?? 0) >= perConfiguration) return false
    const slots = taken.find(({ endpoint }) => endpoint === group.endpoint)?.slots ?? 0
    return group.endpoint === null || perEndpoint === null || slots < perEndpoint
  })
  const open = new Set(eligible.map(({ job }) => job))
  return { eligible, overBudget: [...overBudget.values()].filter(({ job }) => !open.has(job)) }
}

async function begin(
  sql: Sql,
  { worker, leases }: Claimant,
  hardware: HardwareClass,
  entry: Attempt & { readonly trial: string },
): Promise<ClaimOutcome> {
  const { trial } = entry
  const attempt = { id: entry.id, retryCount: entry.retryCount }
  const [row] = await sql.rows<{
    job: string
    endpoint: string | null
    queueMs: number
    faults: number
  }>(
    `select t.job, t.endpoint, (extract(epoch from now() - t.queued_at) * 1000)::float8 as "queueMs",
       (select count(*)::int from closedbook.executions e where e.trial = t.trial and e.blame = 'infra' and e.started_at >= t.allowance_from) as faults
     from closedbook.trials t where t.trial = $1`,
    [trial],
  )
  if (row === undefined) throw new Error(`the queue has an entry for the unknown trial ${trial}`)
  const { job, endpoint, faults } = row
  const before = await executionsOf(sql, trial)
  const queueMs = Math.max(0, Math.round(row.queueMs))
  const common = { job, trial, hardware, attempt, queueMs, faults }
  if (faults >= maxExecutions) return { kind: 'spent', claim: { ...common, executions: before } }
  const execution = `x${before.length + 1}-${opaque(4)}`
  await sql.rows(
    `insert into closedbook.executions (trial, execution, queue_job, attempt, worker, leases) values ($1, $2, $3, $4, $5, $6)`,
    [trial, execution, attempt.id, attempt.retryCount, worker, [...leases]],
  )
  if (endpoint !== null)
    await sql.rows(
      `insert into closedbook.endpoint_slots (endpoint, slot, trial, execution)
       select $1, min(n), $2, $3 from generate_series(1, (select count(*) + 1 from closedbook.endpoint_slots where endpoint = $1)) n
       where not exists (select from closedbook.endpoint_slots where endpoint = $1 and slot = n)`,
      [endpoint, trial, execution],
    )
  await addEvent(sql, { kind: 'claimed', job, trial, execution, worker })
  const executions = await executionsOf(sql, trial)
  return { kind: 'claimed', claim: { ...common, execution, leases, executions } }
}
