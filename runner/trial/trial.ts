/**
 * One execution of one trial, from the first lease to what is known in the end. It never throws for what a trial can
 * do or suffer: every fault is ruled (who caused it, whether another execution may end differently) and measured.
 */
import { ClosedbookError } from '../../daemon/protocol/errors.ts'
import type { CanaryResult, EgressSummary, LeaseView, Usage } from '../../daemon/protocol/lease.ts'
import { RunnerError, messageOf } from '../errors.ts'
import { writeHarborFiles } from '../harbor/write.ts'
import { usesHarnessImage } from '../job/configuration.ts'
import { defaultAtifVersion } from '../harness/atif-schema.ts'
import type { OpenJob } from '../worker/open-job.ts'
import type { DaemonClient } from '../../daemon/protocol/client.ts'
import type { PlannedTrial } from '../job/plan.ts'
import {
  suiteNotRun,
  type Reported,
  type SuiteCounts,
  type TestResult,
  type TrialBlame,
  type TrialReason,
  type TrialResult,
  type Verdict,
} from '../result.ts'
import type { Suite, Task } from '../task/task.ts'
import { runAgentPhase, type AgentPhase } from './agent-phase.ts'
import { ruleFault, type TrialPhase } from './blame.ts'
import { PhaseClock, type ExecutionContext, type LeaseIds, type Watcher } from './context.ts'
import { Evidence } from './evidence.ts'
import type { PristineCache } from './pristine-cache.ts'
import type { Rewards } from './report-reward.ts'
import { collect, PristineSandbox, verify } from './verify-phase.ts'

export interface Measured {
  readonly verdict: Verdict
  readonly blame: TrialBlame | null
  readonly reason: TrialReason
  readonly suites: TrialResult['suites']
  readonly tests: readonly TestResult[]
  readonly usage: TrialResult['usage']
  readonly costUsd: number
  readonly steps: number
  readonly wallTimeMs: number
  readonly phasesMs: TrialResult['phasesMs']
  readonly egress: EgressSummary
  readonly proof: {
    readonly before: readonly CanaryResult[]
    readonly after: readonly CanaryResult[]
  }
  readonly patchDigest: string | null
  /** Of the policy in force, as every event of the audit has it; null where no sandbox was opened. */
  readonly policyDigest: string | null
  readonly host: TrialResult['host']
  readonly gpus: LeaseView['gpus']
  readonly reported: Reported | null
  readonly assisted: boolean
  readonly rewards: Rewards | null
  /** What went otherwise than the task says and isn't a fault. */
  readonly notes: readonly string[]
  readonly startedAt: string
  readonly endedAt: string
}

/** What an execution takes of its job; neither its ledger nor its queue. */
export interface ExecutionInput extends Omit<OpenJob, 'jobDir'> {
  readonly client: DaemonClient
  readonly signal: AbortSignal
  readonly planned: PlannedTrial
  readonly execution: string
  readonly leases: LeaseIds
  readonly directory: string
  readonly pristine: PristineCache
  readonly queueMs: number
}

type Ruled = Pick<Measured, 'verdict' | 'blame' | 'reason'> &
  Partial<Pick<Measured, 'suites' | 'tests' | 'patchDigest' | 'rewards'>>

export async function executeTrial(input: ExecutionInput): Promise<Measured> {
  const startedAt = new Date().toISOString()
  const started = performance.now()
  const clock = new PhaseClock()
  clock.ms.queue = input.queueMs
  const phase: { now: TrialPhase } = { now: 'lease' }
  const seen: { agent: AgentPhase | null; host: TrialResult['host']; remarks: string[] } = {
    agent: null,
    host: unknownHost,
    remarks: [],
  }
  const owned = new AsyncDisposableStack()
  let ruled: Ruled
  try {
    const context = await contextOf(input, clock, phase)
    seen.remarks = context.remarks
    const { name, engine, kernel, cpus } = await input.client.host({ signal: input.signal })
    seen.host = { name, engine, kernel, cpus }
    ruled = unlessAssisted(await work(context, owned, seen), seen.agent)
  } catch (error) {
    ruled = ruleThrown(error, phase.now, input.signal)
  }
  await clock.time('close', async () => {
    phase.now = 'close'
    // What could not be closed is closed by the daemon when nobody renews it: no reason to lose a result.
    await owned.disposeAsync().catch(() => {})
  })
  const { agent } = seen
  const usage = agent?.usage
  const measured: Measured = {
    verdict: ruled.verdict,
    blame: ruled.blame,
    reason: ruled.reason,
    suites: ruled.suites ?? notRun(taskOf(input)),
    tests: ruled.tests ?? [],
    usage: usageOf(usage),
    costUsd: usage?.costUsd ?? 0,
    steps: agent?.steps ?? 0,
    wallTimeMs: Math.round(performance.now() - started),
    phasesMs: clock.ms,
    egress: agent?.egress ?? nothingTried,
    proof: agent?.proof ?? { before: [], after: [] },
    patchDigest: ruled.patchDigest ?? null,
    policyDigest: agent === null ? null : `sha256:${agent.policyHash}`,
    host: seen.host,
    gpus: agent?.gpus ?? [],
    reported: agent?.reported ?? null,
    assisted: agent?.assisted ?? false,
    rewards: ruled.rewards ?? null,
    notes: seen.remarks,
    startedAt,
    endedAt: new Date().toISOString(),
  }
  await writeForHarbor(input, measured)
  return measured
}

/** For other tools; no reason to lose a result. */
async function writeForHarbor(input: ExecutionInput, measured: Measured): Promise<void> {
  const { planned, execution, directory } = input
  const configuration = input.configurations.get(planned.configuration)
  if (configuration === undefined) return
  const { trial } = planned
  const task = taskOf(input)
  await writeHarborFiles({ task, configuration, trial, execution, directory, measured }).catch(() =>
    input.watch.note(planned, "the files for Harbor's tools could not be written"),
  )
}

async function work(
  context: ExecutionContext,
  owned: AsyncDisposableStack,
  seen: { agent: AgentPhase | null },
): Promise<Ruled> {
  const { clock, watch } = context
  const fresh = owned.use(new PristineSandbox(context))
  const agent = await runAgentPhase(context, owned, {
    // It starts while the agent's sandbox is frozen and proven; not earlier, for it takes room.
    onEnd: () => {
      if (needsPristine(context)) fresh.open().catch(() => {})
    },
  })
  seen.agent = agent
  const { end } = agent
  if (!end.gradable)
    return {
      verdict: end.blame === 'agent' ? 'failed' : 'void',
      blame: end.blame,
      reason: end.reason,
    }
  watch.phase('collect')
  const outcome = await clock.time('collect', () =>
    collect(context, agent.task, fresh, { before: agent.before }),
  )
  if (!outcome.ok) return { verdict: 'failed', blame: 'agent', reason: outcome.failure }
  watch.phase('verify')
  // These sandboxes are no longer needed, and their room may be.
  await Promise.all([agent.task[Symbol.asyncDispose](), fresh[Symbol.asyncDispose]()])
  const verified = await clock.time('verify', () => verify(context, outcome.work, owned))
  const patchDigest = outcome.digest
  if (!verified.ok)
    return { verdict: 'failed', blame: 'agent', reason: verified.failure, patchDigest }
  const { decided } = verified
  return { ...decided, reason: withEnd(decided, end), patchDigest }
}

/** Graded all the same, so that a person sees what came of it; but never a score. */
const unlessAssisted = (ruled: Ruled, agent: AgentPhase | null): Ruled =>
  agent?.assisted === true
    ? {
        ...ruled,
        verdict: 'void',
        blame: 'operator',
        reason: {
          code: 'assisted',
          message: `a person ran a command in the sandbox, so the trial is not scored (${ruled.verdict}: ${ruled.reason.message})`,
        },
      }
    : ruled

/** A no-op changes nothing, so what the image holds is all it takes, and that is read once. */
const needsPristine = ({ task, configuration, images, pristine }: ExecutionContext): boolean =>
  task.verify !== 'artifacts' &&
  task.snapshotOf !== 'container' &&
  (configuration.harness.kind !== 'noop' || !pristine.knows(images.task))

/** A failed verdict also says when the agent did not end by itself. */
function withEnd(decided: Pick<Ruled, 'verdict' | 'reason'>, end: AgentPhase['end']): TrialReason {
  const { reason, verdict } = decided
  if (verdict !== 'failed' || end.kind === 'done') return reason
  return {
    code: reason.code,
    message: `${reason.message}; ${end.reason.message} (${end.reason.code})`,
  }
}

function ruleThrown(error: unknown, phase: TrialPhase, signal: AbortSignal): Ruled {
  if (signal.aborted)
    return {
      verdict: 'void',
      blame: 'operator',
      reason: { code: 'interrupted', message: 'the runner was interrupted' },
    }
  if (!(error instanceof ClosedbookError))
    return {
      verdict: 'void',
      blame: 'infra',
      reason: { code: 'bug', message: `a bug of ours: ${String((error as Error).stack)}` },
    }
  const { verdict, blame } = ruleFault(phase, error)
  return { verdict, blame, reason: { code: error.code, message: messageOf(error) } }
}

async function contextOf(
  input: ExecutionInput,
  clock: PhaseClock,
  phase: { now: TrialPhase },
): Promise<ExecutionContext> {
  const { plan, planned, client, watch, signal } = input
  const configuration = input.configurations.get(planned.configuration)
  const images = plan.tasks.find(({ name }) => name === planned.task)
  const driver = plan.configurations.find(({ name }) => name === planned.configuration)
  if (configuration === undefined || images === undefined || driver === undefined)
    throw new RunnerError('plan_invalid', 'operator', `trial ${planned.trial} is not in its plan`)
  const watcher: Watcher = {
    phase: (now) => {
      if (now !== 'queue') phase.now = now
      watch.phase(planned, now)
    },
    step: (step) => watch.step(planned, step),
    note: (text) => watch.note(planned, text),
  }
  return {
    client,
    job: plan.job,
    trial: planned.trial,
    run: planned.run,
    task: taskOf(input),
    configuration,
    images: {
      task: images.image,
      harness: usesHarnessImage(configuration) ? driver.harnessDigest : null,
      verifier: images.verifierImage ?? null,
    },
    leases: input.leases,
    atif: plan.trajectory?.atif ?? defaultAtifVersion,
    evidence: await Evidence.open(input.directory),
    remarks: [],
    pristine: input.pristine,
    watch: watcher,
    clock,
    signal,
  }
}

export function taskOf({ tasks, planned }: Pick<ExecutionInput, 'tasks' | 'planned'>): Task {
  const task = tasks.get(planned.task)
  if (task === undefined)
    throw new RunnerError('plan_invalid', 'operator', `the job has no task ${planned.task}`)
  return task
}

/** Of a trial that is recorded as void without another execution. */
export function nothingMeasured(task: Task, reason: TrialReason): Measured {
  const now = new Date().toISOString()
  return {
    verdict: 'void',
    blame: 'infra',
    reason,
    suites: notRun(task),
    tests: [],
    usage: usageOf(undefined),
    costUsd: 0,
    steps: 0,
    wallTimeMs: 0,
    phasesMs: new PhaseClock().ms,
    egress: nothingTried,
    proof: { before: [], after: [] },
    patchDigest: null,
    policyDigest: null,
    host: unknownHost,
    gpus: [],
    reported: null,
    assisted: false,
    rewards: null,
    notes: [],
    startedAt: now,
    endedAt: now,
  }
}

const nothingTried: EgressSummary = { attempts: 0, denied: 0, allowed: 0, byReason: {} }

function notRun({ suites }: Task): TrialResult['suites'] {
  const counts = (suite: Suite | null): SuiteCounts =>
    suiteNotRun(suite?.command ?? null, suite?.expected?.length ?? 0)
  return { functional: counts(suites.functional), regression: counts(suites.regression) }
}

const usageOf = (usage: Usage | undefined): TrialResult['usage'] => ({
  inputTokens: usage?.inputTokens ?? 0,
  cachedInputTokens: usage?.cachedInputTokens ?? 0,
  ...(usage?.cacheWriteInputTokens ? { cacheWriteInputTokens: usage.cacheWriteInputTokens } : {}),
  outputTokens: usage?.outputTokens ?? 0,
  reasoningTokens: usage?.reasoningTokens ?? 0,
  calls: usage?.calls ?? 0,
})

const unknownHost: TrialResult['host'] = {
  name: 'unknown',
  engine: 'unknown',
  kernel: 'unknown',
  cpus: 1,
}
