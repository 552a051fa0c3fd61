/**
 * Claims trials and runs them, a few side by side, until there is nothing left for it to do. Each execution is in the
 * store before its first lease is opened, and its end is kept on disk before the store is told: a database that is gone
 * stops claims and nothing else.
 */
import type { DaemonClient } from '../../daemon/protocol/client.ts'
import { RunnerError } from '../errors.ts'
import { executionDir } from '../job/layout.ts'
import type { PlannedTrial } from '../job/plan.ts'
import { maxExecutions } from '../job/trial-state.ts'
import type { TrialReason } from '../result.ts'
import {
  claimTrial,
  type Budget,
  type Claim,
  type ClaimOutcome,
  type Group,
} from '../store/claim.ts'
import { hardwareClasses, type HardwareClass } from '../store/queue.ts'
import { settle, settleSpent, type End } from '../store/settle.ts'
import type { Store } from '../store/store.ts'
import { newLeaseIds, type LeaseIds } from '../trial/context.ts'
import { PristineCache } from '../trial/pristine-cache.ts'
import { trialResult } from '../trial/record.ts'
import { executeTrial, nothingMeasured, taskOf, type Measured } from '../trial/trial.ts'
import type { DaemonGate } from './daemon-gate.ts'
import { Heartbeat, TrialCancelled, TrialSuperseded, type RunningTrial } from './heartbeat.ts'
import { logEnded, logStarted, writeRecorded } from './job-files.ts'
import type { OpenJob } from './open-job.ts'
import { keepOutcome, rowOf } from './outcome.ts'

export interface WorkerContext {
  readonly store: Store
  readonly worker: string
  readonly client: DaemonClient
  readonly gate: DaemonGate
  readonly slots: number
  readonly classes: readonly HardwareClass[]
  /** Stops claiming; what runs is finished. */
  readonly drain: AbortSignal
  /** Aborts what runs, too; it can be resumed. */
  readonly signal: AbortSignal
  /** Jobs that it can run trials of, by id; looked up for a group before it is claimed from. */
  readonly jobOf: (group: Pick<Group, 'job'>) => OpenJob | null
  /** Called before each claim: loads jobs and looks for images, for `serves` may not wait. */
  readonly prepare: () => Promise<void>
  /** Puts in order what processes that died on this host left; called now and then. */
  readonly reap: () => Promise<unknown>
  readonly serves: (group: Group) => boolean
  /** Asked when nothing runs here and nothing could be claimed: whether there is no more to come. */
  readonly isOver: (overBudget: readonly Budget[]) => Promise<boolean>
}

const idlePollMs = 1_000
const reapEveryMs = 5_000
/** How long an interrupted worker tries to tell a store that is gone. */
const lastWordMs = 5_000

/** Returns why no more trials are begun on this host, where its disk is full; else null. */
export const work = (context: WorkerContext): Promise<RunnerError | null> =>
  new Worker(context).run()

class Worker {
  readonly #context: WorkerContext
  readonly #running = new Map<string, RunningTrial>()
  readonly #ends = new Set<Promise<void>>()
  readonly #pristine = new PristineCache()
  #failure: { readonly error: unknown } | null = null
  /** Each further trial would end at once, and be void. */
  #full: RunnerError | null = null
  #poked = false
  #reapAt = performance.now() + reapEveryMs
  #resume: () => void = () => {}

  constructor(context: WorkerContext) {
    this.#context = context
  }

  async run(): Promise<RunnerError | null> {
    const { store, worker, drain, signal } = this.#context
    using _heartbeat = new Heartbeat(store, worker, this.#running)
    const wake = (): void => this.#wake()
    drain.addEventListener('abort', wake)
    signal.addEventListener('abort', wake)
    try {
      while (!(await this.#step())) await this.#pause()
    } catch (error) {
      this.#failure ??= { error }
    } finally {
      drain.removeEventListener('abort', wake)
      signal.removeEventListener('abort', wake)
      await Promise.allSettled(this.#ends)
    }
    signal.throwIfAborted()
    if (this.#failure !== null) throw this.#failure.error
    return this.#full
  }

  get #claims(): boolean {
    const { drain, signal } = this.#context
    return !drain.aborted && !signal.aborted && this.#failure === null && this.#full === null
  }

  /** Claims what it can; true when it is over. */
  async #step(): Promise<boolean> {
    const { isOver, slots, gate } = this.#context
    if (this.#claims) await this.#reapNow()
    let overBudget: readonly Budget[] = []
    while (this.#claims && gate.open && this.#running.size < slots) {
      const outcome = await this.#claim()
      if (outcome === null) break
      if (outcome.kind === 'claimed') this.#begin(outcome.claim)
      else if (outcome.kind === 'spent') await this.#giveUp(outcome.claim)
      else {
        overBudget = outcome.overBudget
        break
      }
    }
    if (this.#ends.size > 0) return false
    if (!this.#claims) return true
    return gate.open && (await this.#unlessStopped(() => isOver(overBudget))) !== false
  }

  /** A store or daemon that is gone is waited for elsewhere. */
  async #reapNow(): Promise<void> {
    if (performance.now() < this.#reapAt) return
    this.#reapAt = performance.now() + reapEveryMs
    await this.#context.reap().catch(() => {})
  }

  #claim(): Promise<ClaimOutcome | null> {
    const { store, worker, classes, prepare, serves } = this.#context
    return this.#unlessStopped(async () => {
      await prepare()
      const leases = Object.values(newLeaseIds())
      return claimTrial(store, { worker, classes, leases, serves })
    })
  }

  /** Waits for a store that is gone; null when the worker is stopped meanwhile. */
  async #unlessStopped<T>(ask: () => Promise<T>): Promise<T | null> {
    const { store, drain, signal } = this.#context
    const either = AbortSignal.any([drain, signal])
    try {
      return await store.persist(ask, either)
    } catch (error) {
      if (either.aborted) return null
      throw error
    }
  }

  #begin(claim: Claim): void {
    const abort = new AbortController()
    const { job, trial, hardware, attempt } = claim
    this.#running.set(trial, { job, trial, hardware, attempt, abort })
    const end = this.#execute(claim, abort.signal)
      .catch((error: unknown) => {
        this.#failure ??= { error }
      })
      .finally(() => {
        this.#running.delete(trial)
        this.#ends.delete(end)
        this.#wake()
      })
    this.#ends.add(end)
  }

  async #execute(claim: Claim, own: AbortSignal): Promise<void> {
    const { client, signal, gate } = this.#context
    const { trial, execution } = claim
    const { job, planned } = this.#find(claim)
    const { plan, jobDir, watch } = job
    const startedAt = claim.executions.at(-1)?.startedAt ?? new Date().toISOString()
    await logStarted(jobDir, { trial, execution, leases: claim.leases, time: startedAt })
    watch.started(planned, execution)
    const leases = leaseIdsOf(claim.leases)
    const measured = await executeTrial({
      ...job,
      client,
      signal: AbortSignal.any([signal, own]),
      planned,
      execution,
      leases,
      directory: executionDir(jobDir, trial, execution),
      pristine: this.#pristine,
      queueMs: claim.executions.length === 1 ? claim.queueMs : 0,
    })
    const end = this.#endOf(claim, job, planned, measured, own)
    const again = end.result === null
    await keepOutcome(jobDir, trial, end)
    const settled = await this.#tell(() => settle(this.#context.store, claim, end))
    if (settled === 'superseded' || own.reason instanceof TrialSuperseded)
      return watch.note(planned, `execution ${execution} does not count: another worker has it`)
    const { blame, reason, endedAt } = end
    await logEnded(jobDir, { trial, execution, blame, reason, time: endedAt })
    const stopped = again && (signal.aborted || own.aborted)
    if (measured.verdict === 'void' && !stopped) watch.faulted(planned, reason, again)
    if (end.result !== null && reason.code === 'disk_full')
      this.#full ??= new RunnerError(
        'disk_full',
        'operator',
        `no further trial is begun on this host (${reason.message}); then \`closedbook resume ${claim.job} --retry-void\``,
      )
    if (end.result !== null) {
      await writeRecorded(jobDir, { trial, execution, ...end.result }, new Date().toISOString())
      watch.recorded(planned, this.#result(claim, job, planned, measured, end))
    }
    if (!again || stopped) return
    const image = plan.tasks.find(({ name }) => name === planned.task)?.image ?? ''
    await gate.pass(image, signal)
    // A daemon that was gone could not be told, and its successor took them over.
    for (const lease of claim.leases)
      await client.closeLease(lease, 'its execution ended', { signal })
  }

  /** What the store is told: a result, or that the trial is to be run again. */
  #endOf(
    claim: Claim,
    job: OpenJob,
    planned: PlannedTrial,
    measured: Measured,
    own: AbortSignal,
  ): End {
    const { blame, verdict, costUsd, endedAt } = measured
    const stopped = (own.aborted || this.#context.signal.aborted) && verdict === 'void'
    const reason =
      stopped && own.reason instanceof TrialCancelled
        ? { code: 'cancelled', message: own.reason.message }
        : measured.reason
    const end = { execution: claim.execution, blame, reason, costUsd, endedAt, result: null }
    if (stopped) return end
    if (verdict === 'void' && blame === 'infra' && claim.faults + 1 < maxExecutions) return end
    return { ...end, result: rowOf(this.#result(claim, job, planned, measured, end)) }
  }

  #result(
    claim: Claim,
    { plan }: OpenJob,
    planned: PlannedTrial,
    measured: Measured,
    end: Omit<End, 'result'>,
  ) {
    const executions = claim.executions.map((one) =>
      one.execution === end.execution
        ? { ...one, endedAt: end.endedAt, blame: end.blame, reason: end.reason }
        : one,
    )
    return trialResult({ plan, planned, measured, executions })
  }

  /** Faults of infrastructure, with workers that died among them, took every execution that the trial had. */
  async #giveUp(claim: Extract<ClaimOutcome, { kind: 'spent' }>['claim']): Promise<void> {
    const { trial, executions } = claim
    const { job, planned } = this.#find(claim)
    const last = executions.at(-1)
    const reason: TrialReason = {
      code: 'executions_spent',
      message: `${maxExecutions} executions ended by faults of infrastructure; the last: ${last?.reason?.message ?? 'unknown'}`,
    }
    job.watch.faulted(planned, reason, false)
    const measured = nothingMeasured(taskOf({ ...job, planned }), reason)
    const result = trialResult({ plan: job.plan, planned, measured, executions })
    const row = rowOf(result)
    const execution = last?.execution ?? ''
    const settled = await this.#tell(() => settleSpent(this.#context.store, claim, execution, row))
    if (settled === 'superseded') return
    await writeRecorded(job.jobDir, { trial, execution, ...row }, new Date().toISOString())
    job.watch.recorded(planned, result)
  }

  /** Waits for a store that is gone; once this worker is to end, only for a moment. */
  async #tell<T>(report: () => Promise<T>): Promise<T> {
    const { store, signal } = this.#context
    const late = new AbortController()
    const limit = (): void => {
      setTimeout(() => late.abort(new Error('the store is gone')), lastWordMs).unref()
    }
    if (signal.aborted) limit()
    else signal.addEventListener('abort', limit, { once: true })
    try {
      return await store.persist(report, late.signal)
    } finally {
      signal.removeEventListener('abort', limit)
    }
  }

  #find(claim: Pick<Claim, 'job' | 'trial'>): { job: OpenJob; planned: PlannedTrial } {
    const job = this.#context.jobOf(claim)
    const planned = job?.plan.trials.find(({ trial }) => trial === claim.trial)
    if (job === null || planned === undefined)
      throw new Error(`claimed ${claim.trial} of ${claim.job}, which this worker does not have`)
    return { job, planned }
  }

  #wake(): void {
    this.#poked = true
    this.#resume()
  }

  async #pause(): Promise<void> {
    if (!this.#poked)
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, idlePollMs + Math.random() * 200)
        this.#resume = (): void => {
          clearTimeout(timer)
          resolve()
        }
      })
    this.#poked = false
  }
}

/** In the order of `newLeaseIds`. */
function leaseIdsOf(leases: readonly string[]): LeaseIds {
  const [task = '', harness = '', pristine = '', functional = '', regression = ''] = leases
  return { task, harness, pristine, functional, regression }
}

export const isHardwareClass = (text: string): text is HardwareClass =>
  hardwareClasses.some((name) => name === text)
