/** Trials of a job as the store has them: executions, verdicts, what is still to come. */
import type { ExecutionState } from '../job/trial-state.ts'
import type { TrialBlame, TrialReason, Verdict } from '../result.ts'
import type { Sql } from './database.ts'

export async function executionsOf(sql: Sql, trial: string): Promise<ExecutionState[]> {
  const rows = await sql.rows<{
    execution: string
    leases: string[]
    startedAt: Date
    endedAt: Date | null
    blame: TrialBlame | null
    reason: TrialReason | null
  }>(
    `select execution, leases, started_at as "startedAt", ended_at as "endedAt", blame, reason
     from closedbook.executions where trial = $1 order by started_at, attempt`,
    [trial],
  )
  return rows.map((row) => ({
    ...row,
    startedAt: row.startedAt.toISOString(),
    endedAt: row.endedAt?.toISOString() ?? null,
  }))
}

export interface Standing {
  readonly state: string
  readonly recorded: number
  readonly live: number
  /** Neither recorded nor being run. */
  readonly waiting: number
}

export async function standingOf(sql: Sql, job: string): Promise<Standing | null> {
  const [row] = await sql.rows<Standing>(
    `select p.state, count(r.trial)::int as recorded,
       count(e.trial) filter (where r.trial is null)::int as live,
       count(*) filter (where r.trial is null and e.trial is null)::int as waiting
     from closedbook.plans p join closedbook.trials t using (job)
     left join closedbook.results r on r.trial = t.trial and r.superseded_at is null
     left join closedbook.executions e on e.trial = t.trial and e.ended_at is null
     where p.job = $1 group by p.job`,
    [job],
  )
  return row ?? null
}

export interface TrialStanding {
  readonly trial: string
  readonly status: 'pending' | 'running' | 'recorded'
  readonly verdict: Verdict | null
  readonly executions: number
  /** Host of the worker that runs it, or ran it last. */
  readonly host: string | null
}

export const trialsOf = (sql: Sql, job: string): Promise<TrialStanding[]> =>
  sql.rows<TrialStanding>(
    `select t.trial, r.verdict, (select count(*)::int from closedbook.executions e where e.trial = t.trial) as executions,
       case when r.trial is not null then 'recorded' when l.trial is not null then 'running' else 'pending' end as status,
       (select w.host from closedbook.executions e join closedbook.workers w using (worker) where e.trial = t.trial order by e.started_at desc limit 1) as host
     from closedbook.trials t
     left join closedbook.results r on r.trial = t.trial and r.superseded_at is null
     left join closedbook.executions l on l.trial = t.trial and l.ended_at is null
     where t.job = $1 order by t.position`,
    [job],
  )

export interface JobStanding {
  readonly job: string
  readonly name: string
  readonly jobDir: string
  readonly state: string
  readonly trials: number
  readonly recorded: number
  readonly running: number
  readonly passed: number
  readonly failed: number
  readonly void: number
  readonly costUsd: number
  readonly runner: string | null
}

export const allJobs = (sql: Sql): Promise<JobStanding[]> =>
  sql.rows<JobStanding>(
    `select p.job, p.name, p.job_dir as "jobDir", p.state, p.runner, count(*)::int as trials, count(r.trial)::int as recorded,
       count(e.trial)::int as running,
       count(*) filter (where r.verdict = 'passed')::int as passed,
       count(*) filter (where r.verdict = 'failed')::int as failed,
       count(*) filter (where r.verdict = 'void')::int as void,
       coalesce((select sum(x.cost_usd) from closedbook.executions x join closedbook.trials y using (trial) where y.job = p.job), 0)::float8 as "costUsd"
     from closedbook.plans p join closedbook.trials t using (job)
     left join closedbook.results r on r.trial = t.trial and r.superseded_at is null
     left join closedbook.executions e on e.trial = t.trial and e.ended_at is null
     group by p.job order by p.created_at`,
  )

export interface RecordedRow {
  readonly trial: string
  readonly execution: string
  readonly verdict: Verdict
  readonly digest: string
  readonly body: string
  readonly recordedAt: Date
}

/** Standing results of a job, for those whose files are to be written where the job is read. */
export const resultsOf = (sql: Sql, job: string, but: readonly string[]): Promise<RecordedRow[]> =>
  sql.rows<RecordedRow>(
    `select r.trial, r.execution, r.verdict, r.digest, r.body, r.recorded_at as "recordedAt"
     from closedbook.results r join closedbook.trials t using (trial)
     where t.job = $1 and r.superseded_at is null and r.trial <> all($2) order by r.recorded_at`,
    [job, [...but]],
  )
