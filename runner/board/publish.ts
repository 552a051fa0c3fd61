/**
 * Publishes a job on the daemon's board while it runs: the plan, each trial's live state and steps, then its result and
 * the files of its last execution. It is a JobWatcher, to be put beside the one that shows progress. It never throws
 * and never makes a trial wait; what it could not send is missing on the dashboard alone, for the records are files.
 */
import os from 'node:os'
import type { DaemonClient } from '../../daemon/protocol/client.ts'
import { signOfLifeMs, type AliveDocument } from '../../daemon/protocol/board-life.ts'
import type { JobDocument, TrialDocument } from '../../daemon/protocol/board-documents.ts'
import { executionDir, resultFile } from '../job/layout.ts'
import type { Plan, PlannedTrial } from '../job/plan.ts'
import type { JobWatcher } from '../job/watcher.ts'
import { readResult, type Phase, type TrialReason, type TrialResult } from '../result.ts'
import type { Step } from '../step-log.ts'
import { evidenceDocument, evidenceFiles } from './evidence-documents.ts'
import { Outbox } from './outbox.ts'
import { reportDocument } from './report-document.ts'

export interface PublishedJob {
  readonly plan: Plan
  readonly jobDir: string
  /** Whether every trial is recorded, for one whose directory doesn't have all results; absent: as the directory says. */
  readonly isOver?: () => Promise<boolean>
}

/** Dispose tells how the job stands then: ended, where every trial is recorded. */
export type Publisher = JobWatcher & AsyncDisposable

type Live = { -readonly [K in keyof TrialDocument]: TrialDocument[K] }

export function publisher(
  client: Pick<DaemonClient, 'call' | 'callText'>,
  { plan, jobDir, isOver = async () => false }: PublishedJob,
  onTrouble: (message: string) => void = () => {},
): Publisher {
  const outbox = new Outbox(client, onTrouble)
  const live = new Map<string, Live>()
  const results = new Map<string, TrialResult>()
  const evidence = new Set<Promise<void>>()
  // also of trials that other processes record
  let earlier = readRecorded({ plan, jobDir }, results)

  const id = (trial: string): string => `${plan.job}.${trial}`
  const publish = (trial: Live): void => outbox.put('trial', id(trial.trial), () => ({ ...trial }))
  const of = (planned: PlannedTrial, execution = ''): Live => {
    const known = live.get(planned.trial)
    if (known !== undefined) return known
    const fresh = fresher(plan.job, planned, execution)
    live.set(planned.trial, fresh)
    return fresh
  }
  const change = (planned: PlannedTrial, changes: Partial<Live>): void =>
    publish(Object.assign(of(planned), changes))

  const figures = (): void =>
    outbox.put('report', plan.job, async () => {
      await earlier
      return reportDocument(plan, results)
    })
  const job = (state: JobDocument['state']): void => {
    outbox.put('job', plan.job, () => jobDocument({ plan, jobDir }, state))
    figures()
  }
  job('running')
  // of a runner that is killed the daemon hears nothing, and that is how it is known
  const signOfLife = (): void =>
    outbox.put('alive', plan.job, (): AliveDocument => ({ job: plan.job, host: os.hostname() }))
  signOfLife()
  const living = setInterval(signOfLife, signOfLifeMs)
  living.unref()

  return {
    started(planned, execution) {
      live.set(planned.trial, fresher(plan.job, planned, execution))
      publish(of(planned))
    },
    phase: (planned: PlannedTrial, phase: Phase) => change(planned, { phase }),
    step(planned: PlannedTrial, step: Step) {
      const trial = of(planned)
      trial.steps = Math.max(trial.steps, step.step)
      trial.inputTokens += step.tokens?.input ?? 0
      trial.cachedInputTokens += step.tokens?.cachedInput ?? 0
      trial.outputTokens += step.tokens?.output ?? 0
      trial.costUsd += step.costUsd
      trial.denied += step.denied.reduce((sum, { count }) => sum + count, 0)
      outbox.line('steps', `${id(planned.trial)}.${trial.execution}`, JSON.stringify(step))
      publish(trial)
    },
    note: (planned: PlannedTrial, note: string) => change(planned, { note }),
    faulted: (planned: PlannedTrial, reason: TrialReason, again: boolean) =>
      change(planned, {
        note: `${reason.message}${again ? '; another execution begins' : ''}`,
        phase: null,
      }),
    recorded(planned: PlannedTrial, result: TrialResult) {
      results.set(planned.trial, result)
      const execution = result.executions.at(-1)?.id ?? of(planned).execution
      Object.assign(of(planned, execution), endOf(result), { execution })
      outbox.put('result', id(planned.trial), () => result)
      const published = publishEvidence(
        of(planned),
        executionDir(jobDir, planned.trial, execution),
      ).finally(() => evidence.delete(published))
      evidence.add(published)
      figures()
    },
    async [Symbol.asyncDispose]() {
      clearInterval(living)
      await Promise.all(evidence)
      earlier = readRecorded({ plan, jobDir }, results)
      await earlier
      const endedAt = new Date().toISOString()
      for (const trial of live.values())
        if (trial.state === 'running' && !results.has(trial.trial)) {
          const wallTimeMs = Date.parse(endedAt) - Date.parse(trial.startedAt)
          publish(Object.assign(trial, { state: 'stopped', phase: null, endedAt, wallTimeMs }))
        }
      const over = results.size === plan.trials.length || (await isOver().catch(() => false))
      job(over ? 'ended' : 'interrupted')
      await outbox[Symbol.asyncDispose]()
    },
  }

  async function publishEvidence(trial: Live, directory: string): Promise<void> {
    publish(trial)
    const files = await evidenceFiles(directory)
    trial.evidence = files.map(({ name, bytes, shown }) => ({
      name,
      bytes,
      id: shown ? `${id(trial.trial)}.${name}` : null,
    }))
    for (const file of files)
      if (file.shown)
        outbox.put('evidence', `${id(trial.trial)}.${file.name}`, () => evidenceDocument(file))
    publish(trial)
  }
}

/** One watcher that tells several. */
export function watchAll(...watchers: readonly JobWatcher[]): JobWatcher {
  return {
    started: (...given) => watchers.forEach((one) => one.started(...given)),
    phase: (...given) => watchers.forEach((one) => one.phase(...given)),
    step: (...given) => watchers.forEach((one) => one.step(...given)),
    note: (...given) => watchers.forEach((one) => one.note(...given)),
    faulted: (...given) => watchers.forEach((one) => one.faulted(...given)),
    recorded: (...given) => watchers.forEach((one) => one.recorded(...given)),
  }
}

async function readRecorded(
  { plan, jobDir }: PublishedJob,
  results: Map<string, TrialResult>,
): Promise<void> {
  for (const { trial } of plan.trials) {
    if (results.has(trial)) continue
    const result = await readResult(resultFile(jobDir, trial)).catch(() => null)
    if (result !== null && !results.has(trial)) results.set(trial, result)
  }
}

const jobDocument = ({ plan, jobDir }: PublishedJob, state: JobDocument['state']): JobDocument => ({
  job: plan.job,
  name: plan.name,
  createdAt: plan.createdAt,
  runs: plan.runs,
  state,
  tasks: plan.tasks.map(({ name, area, hardware }) => ({ name, area, hardware })),
  configurations: plan.configurations.map(({ name, model, harness }) => ({ name, model, harness })),
  trials: plan.trials.map(({ trial, task, configuration, run }) => ({
    ...{ trial, task, configuration, run },
  })),
  directory: jobDir,
  host: os.hostname(),
})

const fresher = (job: string, planned: PlannedTrial, execution: string): Live => ({
  ...{ job, execution },
  trial: planned.trial,
  task: planned.task,
  configuration: planned.configuration,
  run: planned.run,
  state: 'running',
  phase: null,
  startedAt: new Date().toISOString(),
  endedAt: null,
  steps: 0,
  inputTokens: 0,
  cachedInputTokens: 0,
  outputTokens: 0,
  costUsd: 0,
  denied: 0,
  verdict: null,
  blame: null,
  reason: null,
  functional: null,
  regression: null,
  wallTimeMs: null,
  assisted: false,
  note: null,
  evidence: [],
})

/** The result's own counts take the place of those that were added up on the way. */
const endOf = (result: TrialResult): Partial<Live> => ({
  state: 'recorded',
  phase: null,
  startedAt: result.startedAt,
  endedAt: result.endedAt,
  steps: result.steps,
  inputTokens: result.usage.inputTokens,
  cachedInputTokens: result.usage.cachedInputTokens,
  outputTokens: result.usage.outputTokens,
  costUsd: result.costUsd,
  denied: result.egress.denied,
  verdict: result.verdict,
  blame: result.blame,
  reason: result.reason,
  functional: suite(result.suites.functional),
  regression: suite(result.suites.regression),
  wallTimeMs: result.wallTimeMs,
  assisted: result.assisted,
})

const suite = ({ planned, passed }: { planned: number; passed: number }) => ({ planned, passed })
