/**
 * Grades the stored work of a job's trials again, with the tests that its tasks have now, in fresh offline containers by
 * the same path as a trial's own verification. No agent runs, no model is asked, and nothing of the source is written.
 * What was not the tests' doing stays: a trial without any work keeps its verdict, an assisted one is never scored.
 */
import path from 'node:path'
import type { DaemonClient } from '../../daemon/protocol/client.ts'
import { ClosedbookError } from '../../daemon/protocol/errors.ts'
import { packageVersion } from '../../daemon/protocol/version.ts'
import { defaultAtifVersion } from '../harness/atif-schema.ts'
import { resolveConfiguration, type Configuration } from '../job/configuration.ts'
import { executionDir, resultFile } from '../job/layout.ts'
import { trialId, type Plan, type PlannedTrial } from '../job/plan.ts'
import { writeJsonAtomic } from '../json-file.ts'
import { opaque } from '../opaque.ts'
import { regradeFile } from '../report/records.ts'
import { suiteNotRun, writeResult, type Execution, type TrialResult } from '../result.ts'
import { ruleFault } from '../trial/blame.ts'
import { newLeaseIds, PhaseClock, type ExecutionContext } from '../trial/context.ts'
import { Evidence, evidenceNames } from '../trial/evidence.ts'
import { PristineCache } from '../trial/pristine-cache.ts'
import { PristineSandbox, verify } from '../trial/verify-phase.ts'
import { workdirOf } from '../trial/workdir.ts'
import type { RegradeRecord, RegradeTrial } from './record.ts'
import { readStored, workOf, type Stored } from './stored-work.ts'
import type { CurrentTask } from './tasks.ts'

export interface RegradeInput {
  readonly client: DaemonClient
  readonly signal: AbortSignal
  readonly source: { readonly plan: Plan; readonly directory: string }
  /** Of the source, by trial. */
  readonly results: ReadonlyMap<string, TrialResult>
  readonly tasks: ReadonlyMap<string, CurrentTask>
  readonly plan: Plan
  readonly directory: string
  readonly concurrency: number
  readonly onTrial: (trial: RegradeTrial, done: number, of: number) => void
}

type Ruled = Pick<TrialResult, 'verdict' | 'blame' | 'reason' | 'suites' | 'tests'> &
  Partial<Pick<TrialResult, 'rewards'>>

/** Faults of infrastructure are tried so often before the trial is void. */
const attempts = 3

export async function regradeJob(input: RegradeInput): Promise<RegradeRecord> {
  const { source, plan, directory, results, tasks } = input
  const pristine = new PristineCache()
  const pairs = source.plan.trials.flatMap((before) => {
    const result = results.get(before.trial)
    const after = plan.trials.find(
      (one) =>
        one.task === before.task &&
        one.configuration === before.configuration &&
        one.run === before.run,
    )
    return result === undefined || after === undefined ? [] : [{ before, after, result }]
  })
  const trials: RegradeTrial[] = []
  const records: RegradeRecord['records'] = []
  const waiting = [...pairs]
  const worker = async (): Promise<void> => {
    for (let pair = waiting.shift(); pair !== undefined; pair = waiting.shift()) {
      input.signal.throwIfAborted()
      const { told, digest } = await regradeTrial(input, pair, pristine)
      const result = path.relative(directory, resultFile(directory, pair.after.trial))
      records.push({ trial: pair.after.trial, result, digest })
      trials.push(told)
      input.onTrial(told, trials.length, pairs.length)
    }
  }
  const width = Math.min(input.concurrency, pairs.length)
  const ends = await Promise.allSettled(Array.from({ length: width }, worker))
  for (const end of ends) if (end.status === 'rejected') throw end.reason
  const order = new Map(plan.trials.map(({ trial }, index) => [trial, index]))
  const inOrder = (a: { trial: string }, b: { trial: string }): number =>
    (order.get(a.trial) ?? 0) - (order.get(b.trial) ?? 0)
  const record: RegradeRecord = {
    schema: 'closedbook.regrade/1',
    job: plan.job,
    source: { job: source.plan.job, directory: source.directory },
    createdAt: plan.createdAt,
    closedbookVersion: packageVersion,
    tasks: [...tasks.values()]
      .filter(
        ({ before, now }) => before.testsDigest !== now.testsDigest || before.image !== now.image,
      )
      .map(({ before, now }) => ({
        name: now.name,
        testsBefore: before.testsDigest,
        tests: now.testsDigest,
        imageBefore: before.image,
        image: now.image,
      })),
    trials: trials.toSorted(inOrder),
    records: records.toSorted(inOrder),
  }
  await writeJsonAtomic(regradeFile(directory), record)
  return record
}

/** The plan of the new record: the trials that were chosen, the tasks as they are now, and where it all came from. */
export function regradePlan(
  source: Plan,
  tasks: ReadonlyMap<string, CurrentTask>,
  trials: readonly PlannedTrial[],
  { job, now }: { readonly job: string; readonly now: Date },
): Plan {
  const used = new Set(trials.map(({ configuration }) => configuration))
  return {
    ...source,
    job,
    name: `${source.name} (graded again)`,
    createdAt: now.toISOString(),
    closedbookVersion: packageVersion,
    tasks: [...tasks.values()].map((one) => one.now),
    configurations: source.configurations
      .filter(({ name }) => used.has(name))
      .map((one) => ({ ...one, settings: { ...one.settings, regrade: { job: source.job } } })),
    trials: trials.map((one) => ({
      ...one,
      trial: trialId(job, one.task, one.configuration, one.run),
    })),
  }
}

async function regradeTrial(
  input: RegradeInput,
  pair: { before: PlannedTrial; after: PlannedTrial; result: TrialResult },
  pristine: PristineCache,
): Promise<{ told: RegradeTrial; digest: string }> {
  const { before, after, result } = pair
  const { source, directory, plan, tasks } = input
  const current = tasks.get(after.task)
  if (current === undefined) throw new TypeError(`task ${after.task} is not in the plan`)
  const clock = new PhaseClock()
  const { ruled, how, executions } = await ruleAgain(input, pair, current, { pristine, clock })
  const settings = plan.configurations.find(({ name }) => name === after.configuration)?.settings
  const { rewards: _before, ...rest } = result
  const next: TrialResult = {
    ...rest,
    ...ruled,
    trial: after.trial,
    job: plan.job,
    task: { ...result.task, digest: current.now.digest, area: current.now.area },
    configuration: { ...result.configuration, settings: settings ?? {} },
    phasesMs: { ...result.phasesMs, verify: clock.ms.verify },
    digests: { ...result.digests, image: current.image, tests: current.now.testsDigest },
    executions: [...executions],
    closedbookVersion: packageVersion,
    notes: [
      ...(result.notes ?? []),
      `graded again from trial ${before.trial} of job ${source.plan.job}, where it was ${result.verdict} (${result.reason.code})`,
    ],
  }
  const digest = await writeResult(resultFile(directory, after.trial), next)
  const judged = ({ verdict, blame, reason }: Ruled) => ({ verdict, blame, reason })
  return {
    digest,
    told: {
      trial: after.trial,
      source: before.trial,
      task: after.task,
      configuration: after.configuration,
      run: after.run,
      before: judged(result),
      after: judged(ruled),
      how,
      changed: result.verdict !== ruled.verdict,
    },
  }
}

interface RuledAgain {
  readonly ruled: Ruled
  readonly how: RegradeTrial['how']
  readonly executions: readonly Execution[]
}

async function ruleAgain(
  input: RegradeInput,
  { before, after, result }: { before: PlannedTrial; after: PlannedTrial; result: TrialResult },
  current: CurrentTask,
  run: { pristine: PristineCache; clock: PhaseClock },
): Promise<RuledAgain> {
  const executions: Execution[] = []
  const end = (
    how: RegradeTrial['how'],
    ruled: Ruled,
    id: string,
    startedAt: string,
  ): RuledAgain => {
    const { blame, reason } = ruled
    executions.push({ id, startedAt, endedAt: new Date().toISOString(), blame, reason })
    return { ruled, how, executions }
  }
  for (let attempt = 1; ; attempt++) {
    const id = `x${attempt}-${opaque(4)}`
    const startedAt = new Date().toISOString()
    try {
      const last = path.basename(result.executions.at(-1)?.id ?? '')
      const directory = executionDir(input.source.directory, before.trial, last)
      const stored = await readStored(directory, current.task, result.digests.patch)
      if (stored === null || result.assisted) return end('kept', result, id, startedAt)
      const ruled = await grade(input, after, current, stored, { ...run, execution: id })
      return end('graded', ruled, id, startedAt)
    } catch (error) {
      input.signal.throwIfAborted()
      if (!(error instanceof ClosedbookError) || error.code === 'daemon_unreachable') throw error
      const { verdict, blame, retry } = ruleFault('verify', error)
      const ruled = { ...notGraded(current, blame, error), verdict }
      const told = end(verdict === 'failed' ? 'graded' : 'impossible', ruled, id, startedAt)
      if (!retry || attempt === attempts) return told
    }
  }
}

async function grade(
  input: RegradeInput,
  after: PlannedTrial,
  current: CurrentTask,
  stored: Stored,
  run: { pristine: PristineCache; clock: PhaseClock; execution: string },
): Promise<Ruled> {
  const { client, signal, plan, directory } = input
  const { task } = current
  const context: ExecutionContext = {
    client,
    job: plan.job,
    trial: after.trial,
    run: after.run,
    task,
    configuration: await passingConfiguration(plan, after.configuration),
    images: { task: current.image, harness: null, verifier: current.verifierImage },
    leases: newLeaseIds(),
    atif: defaultAtifVersion,
    evidence: await Evidence.open(executionDir(directory, after.trial, run.execution)),
    remarks: [],
    pristine: run.pristine,
    watch: { phase: () => {}, step: () => {}, note: () => {} },
    clock: run.clock,
    signal,
  }
  await using owned = new AsyncDisposableStack()
  const fresh = owned.use(new PristineSandbox(context))
  const work = await workOf(stored, async () =>
    run.pristine.get(current.image, task, await workdirOf(context), () => fresh.open(), signal),
  )
  await fresh[Symbol.asyncDispose]()
  if (stored.kind === 'patch')
    await context.evidence.write(evidenceNames.patch, stored.collected.patch)
  const verified = await run.clock.time('verify', () => verify(context, work, owned))
  if (!verified.ok) return { ...notGraded(current, 'agent', verified.failure), verdict: 'failed' }
  const { rewards, tests, ...decided } = verified.decided
  return { ...decided, tests: [...tests], ...(rewards !== null && { rewards: { ...rewards } }) }
}

/** Of a configuration only what decides about passing takes part in verification. */
function passingConfiguration(plan: Plan, name: string): Promise<Configuration> {
  const settings = plan.configurations.find((one) => one.name === name)?.settings ?? {}
  const pass = settings['pass']
  return resolveConfiguration(
    { name, harness: 'noop', ...(pass !== undefined && { pass }) },
    { path: `configuration ${name} of the plan`, defaultName: name, baseDir: '/' },
  )
}

function notGraded(
  { task }: CurrentTask,
  blame: TrialResult['blame'],
  error: { readonly code: string; readonly message: string },
): Ruled {
  const notRun = (suite: typeof task.suites.regression) =>
    suiteNotRun(suite?.command ?? null, suite?.expected?.length ?? 0)
  return {
    verdict: 'void',
    blame,
    reason: { code: error.code, message: error.message },
    suites: {
      functional: notRun(task.suites.functional),
      regression: notRun(task.suites.regression),
    },
    tests: [],
  }
}
