/**
 * Runs what is left of a job: each planned trial until it is recorded, a few side by side, each in as many executions
 * as infra faults allow. Before anything starts, what a dead process left is put in order: its leases are closed and
 * its executions ended as infra. Every step is in the ledger before it is done.
 */
import { randomBytes } from 'node:crypto'
import type { DaemonClient } from '../../daemon/protocol/client.ts'
import { ClosedbookError } from '../../daemon/protocol/errors.ts'
import { messageOf, RunnerError } from '../errors.ts'
import type { Phase, TrialReason, TrialResult } from '../result.ts'
import type { Step } from '../step-log.ts'
import type { Task } from '../task/task.ts'
import type { LeaseIds } from '../trial/context.ts'
import { delay } from '../trial/held-lease.ts'
import { PristineCache } from '../trial/pristine-cache.ts'
import { executeTrial, nothingMeasured, taskOf, type Measured } from '../trial/trial.ts'
import { recordTrial } from '../trial/record.ts'
import type { Configuration } from './configuration.ts'
import { executionDir } from './layout.ts'
import type { Ledger } from './ledger.ts'
import type { Plan, PlannedTrial } from './plan.ts'
import { maxExecutions } from './trial-state.ts'

export interface JobWatcher {
  started(trial: PlannedTrial, execution: string): void
  phase(trial: PlannedTrial, phase: Phase): void
  step(trial: PlannedTrial, step: Step): void
  note(trial: PlannedTrial, text: string): void
  faulted(trial: PlannedTrial, reason: TrialReason, again: boolean): void
  recorded(trial: PlannedTrial, result: TrialResult): void
}

export interface JobContext {
  readonly plan: Plan
  readonly jobDir: string
  readonly tasks: ReadonlyMap<string, Task>
  readonly configurations: ReadonlyMap<string, Configuration>
  readonly harnessImage: string | null
  readonly client: DaemonClient
  readonly ledger: Ledger
  readonly concurrency: number
  readonly watch: JobWatcher
  /** Aborts the whole job; what is under way is voided and can be resumed. */
  readonly signal: AbortSignal
}

const daemonWaitMs = 120_000
const daemonPollMs = 500

export async function runJob(context: JobContext): Promise<void> {
  const { plan, ledger } = context
  await settleDead(context)
  const pending = plan.trials.filter(({ trial }) => ledger.state(trial).status !== 'recorded')
  const pristine = new PristineCache()
  const queued = performance.now()
  const worker = async (): Promise<void> => {
    for (let trial = pending.shift(); trial !== undefined; trial = pending.shift()) {
      context.signal.throwIfAborted()
      await finishTrial(context, trial, pristine, Math.round(performance.now() - queued))
    }
  }
  const workers = Array.from({ length: Math.min(context.concurrency, pending.length) }, worker)
  const ends = await Promise.allSettled(workers)
  context.signal.throwIfAborted()
  for (const end of ends) if (end.status === 'rejected') throw end.reason
}

/** What a process that died had under way: leases closed (as far as they live), executions ended as infra. */
async function settleDead({ plan, ledger, client, signal }: JobContext): Promise<void> {
  for (const { trial } of plan.trials) {
    const state = ledger.state(trial)
    if (state.status !== 'running' || !state.dead) continue
    for (const lease of state.current.leases)
      await client.closeLease(lease, 'its runner died', { signal })
    await ledger.ended({
      trial,
      execution: state.current.execution,
      blame: 'infra',
      reason: {
        code: 'runner_died',
        message: 'the process that ran this execution ended before it did',
      },
    })
  }
}

async function finishTrial(
  context: JobContext,
  planned: PlannedTrial,
  pristine: PristineCache,
  queueMs: number,
): Promise<void> {
  const { ledger, jobDir, watch } = context
  const { trial } = planned
  while (true) {
    const before = ledger.state(trial)
    if (!before.mayExecute) return giveUp(context, planned)
    const number = before.executions.length + 1
    const execution = `x${number}-${opaque(4)}`
    const leases = newLeaseIds()
    await ledger.started(trial, execution, Object.values(leases))
    watch.started(planned, execution)
    const measured = await executeTrial({
      ...context,
      planned,
      execution,
      leases,
      directory: executionDir(jobDir, trial, execution),
      pristine,
      queueMs: number === 1 ? queueMs : 0,
    })
    await ledger.ended({ trial, execution, blame: measured.blame, reason: measured.reason })
    if (context.signal.aborted && measured.verdict === 'void') throw context.signal.reason
    const after = ledger.state(trial)
    const again = measured.verdict === 'void' && measured.blame === 'infra' && after.mayExecute
    if (measured.verdict === 'void') watch.faulted(planned, measured.reason, again)
    if (!again) return record(context, planned, execution, measured)
    await waitForDaemon(context)
    // A daemon that was gone could not be told, and its successor took them over.
    for (const lease of Object.values(leases))
      await context.client.closeLease(lease, 'its execution ended', { signal: context.signal })
  }
}

/** Faults of infrastructure, with runners that died among them, took every execution that the trial had. */
async function giveUp(context: JobContext, planned: PlannedTrial): Promise<void> {
  const last = context.ledger.state(planned.trial).executions.at(-1)
  const reason: TrialReason = {
    code: 'executions_spent',
    message: `${maxExecutions} executions ended by faults of infrastructure; the last: ${last?.reason?.message ?? 'unknown'}`,
  }
  context.watch.faulted(planned, reason, false)
  const measured = nothingMeasured(taskOf({ ...context, planned }), reason)
  return record(context, planned, last?.execution ?? '', measured)
}

async function record(
  { ledger, plan, jobDir, watch }: JobContext,
  planned: PlannedTrial,
  execution: string,
  measured: Measured,
): Promise<void> {
  const { executions } = ledger.state(planned.trial)
  const { result, digest, path } = await recordTrial({
    plan,
    planned,
    jobDir,
    measured,
    executions,
  })
  await ledger.recorded({
    trial: planned.trial,
    execution,
    verdict: result.verdict,
    result: path,
    digest,
  })
  watch.recorded(planned, result)
}

const unanswered = new Set([
  'daemon_unreachable',
  'connection_lost',
  'engine_unreachable',
  'engine_timeout',
])

/** An infra fault may be a daemon that is being restarted; without one nothing can go on. */
async function waitForDaemon({ client, plan, signal }: JobContext): Promise<void> {
  const deadline = performance.now() + daemonWaitMs
  while (true)
    try {
      await client.health({ signal })
      // the daemon answers without its engine too, and every execution would end at once
      const [task] = plan.tasks
      if (task !== undefined) await client.inspectImage(task.image, { signal })
      return
    } catch (error) {
      if (error instanceof ClosedbookError && !unanswered.has(error.code)) return
      if (!(error instanceof ClosedbookError) || performance.now() > deadline)
        throw new RunnerError(
          'daemon_unreachable',
          'infra',
          `the daemon or its engine has been gone for ${daemonWaitMs / 1000} s (${messageOf(error)}); start it with \`closedbook up\`, then resume the job. Executions allowed: ${maxExecutions}`,
          { cause: error },
        )
      await delay(daemonPollMs, signal)
    }
}

const letters = 'abcdefghijkmnpqrstuvwxyz23456789'
const opaque = (length: number): string =>
  Array.from(randomBytes(length), (byte) => letters[byte % 32]).join('')

function newLeaseIds(): LeaseIds {
  const id = (): string => `l${opaque(15)}`
  return { task: id(), harness: id(), pristine: id(), functional: id(), regression: id() }
}
