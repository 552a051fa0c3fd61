/**
 * What a process that died had under way on this host is put in order by whoever comes next, without waiting for its
 * heartbeat to be missed: its leases are closed, its executions end as infra, and its trials go back into the queue. A
 * finished execution whose report was not delivered is delivered.
 */
import { DaemonClient } from '../../daemon/protocol/client.ts'
import type { TrialReason } from '../result.ts'
import { settle, type Held } from '../store/settle.ts'
import type { Store } from '../store/store.ts'
import { isGone, workerColumns, type WorkerRow } from '../store/workers.ts'
import { keptOutcome } from './outcome.ts'
import { logEnded, writeRecorded } from './job-files.ts'

interface LiveRow extends WorkerRow {
  readonly job: string
  readonly trial: string
  readonly execution: string
  readonly hardware: Held['hardware']
  readonly queueJob: string
  readonly attempt: number
  readonly leases: readonly string[]
  readonly jobDir: string
}

const died: TrialReason = {
  code: 'runner_died',
  message: 'the process that ran this execution ended before it did',
}

export interface ReapOptions {
  readonly worker: string
  /** null: of every job. */
  readonly job: string | null
  /** Where this process writes evidence of a job; null where it has no place for it. */
  readonly jobDirOf: (job: string, planned: string) => string
  readonly signal: AbortSignal
}

export async function reapDead(store: Store, options: ReapOptions): Promise<number> {
  const rows = await store.database.rows<LiveRow>(
    `select ${workerColumns}, t.job, e.trial, e.execution, t.hardware, e.queue_job as "queueJob", e.attempt, e.leases, p.job_dir as "jobDir"
     from closedbook.executions e join closedbook.workers w using (worker)
     join closedbook.trials t on t.trial = e.trial join closedbook.plans p on p.job = t.job
     where e.ended_at is null and e.worker <> $1 and ($2::text is null or t.job = $2)`,
    [options.worker, options.job],
  )
  let reaped = 0
  for (const row of rows) {
    if (!(await isGone(row, store.heartbeatSeconds))) continue
    await reap(store, row, options)
    reaped += 1
  }
  return reaped
}

async function reap(store: Store, row: LiveRow, { jobDirOf, signal }: ReapOptions): Promise<void> {
  const { job, trial, execution, hardware, leases } = row
  await using client = new DaemonClient(row.daemon)
  for (const lease of leases) await client.closeLease(lease, 'its runner died', { signal })
  const held: Held = {
    job,
    trial,
    hardware,
    attempt: { id: row.queueJob, retryCount: row.attempt },
  }
  const jobDir = jobDirOf(job, row.jobDir)
  const endedAt = new Date().toISOString()
  const end = (await keptOutcome(jobDir, trial, execution)) ?? {
    execution,
    blame: 'infra' as const,
    reason: died,
    costUsd: 0,
    endedAt,
    result: null,
  }
  const settled = await store.persist(() => settle(store, held, end), signal)
  if (settled === 'superseded') return
  const { blame, reason } = end
  await logEnded(jobDir, { trial, execution, blame, reason, time: end.endedAt })
  if (end.result !== null) await writeRecorded(jobDir, { trial, execution, ...end.result }, endedAt)
}
