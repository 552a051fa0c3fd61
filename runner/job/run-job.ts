/**
 * Runs what is left of one job with a worker in this process, beside any others that work on it. What a process that
 * died left is put in order first; results of the others are written into the job's directory as they come.
 */
import type { DaemonClient } from '../../daemon/protocol/client.ts'
import type { Budget } from '../store/claim.ts'
import { setPlanState } from '../store/plans.ts'
import type { HardwareClass } from '../store/queue.ts'
import type { Store } from '../store/store.ts'
import { resultsOf, standingOf } from '../store/trials.ts'
import type { RunnerError } from '../errors.ts'
import { parseResult } from '../result.ts'
import { DaemonGate } from '../worker/daemon-gate.ts'
import { completeFiles, writeRecorded } from '../worker/job-files.ts'
import type { OpenJob } from '../worker/open-job.ts'
import { reapDead } from '../worker/reap.ts'
import { Sweep } from '../worker/sweep.ts'
import { work } from '../worker/worker.ts'

export interface JobContext extends OpenJob {
  readonly client: DaemonClient
  readonly store: Store
  /** This process among those that work. */
  readonly worker: string
  /** Trials at a time here. */
  readonly slots: number
  readonly classes: readonly HardwareClass[]
  /** Stops claiming; what runs is finished. */
  readonly drain: AbortSignal
  /** Aborts what is under way, too; it can be resumed. */
  readonly signal: AbortSignal
}

export type JobEnd =
  | { readonly kind: 'recorded' }
  /** This process was asked to stop, or somebody paused the job. */
  | { readonly kind: 'stopped'; readonly waiting: number }
  | { readonly kind: 'cancelled' }
  | { readonly kind: 'over-budget'; readonly budget: Budget; readonly waiting: number }

/** How long `run` waits for a daemon that went away. */
const daemonWaitMs = 120_000

export async function runJob(context: JobContext): Promise<JobEnd> {
  const { store, plan, jobDir, worker, drain, signal, client } = context
  const reap = (): Promise<number> =>
    reapDead(store, { worker, job: plan.job, jobDirOf: () => jobDir, signal })
  await reap()
  await completeFiles(store, plan, jobDir)
  const others = new Others(context)
  await others.look({ tell: false })
  let budget: Budget | null = null
  let full: RunnerError | null = null
  // the others stop claiming, too
  const pause = (): void => void setPlanState(store, plan.job, 'paused', 'paused').catch(() => {})
  drain.addEventListener('abort', pause, { once: true })
  await using _sweep = new Sweep(store)
  try {
    full = await work({
      ...context,
      gate: new DaemonGate(client, daemonWaitMs),
      jobOf: ({ job }) => (job === plan.job ? context : null),
      reap,
      prepare: async () => {},
      serves: ({ job }) => job === plan.job,
      isOver: async (overBudget) => {
        await others.look({ tell: true })
        const standing = await standingOf(store.database, plan.job)
        if (standing === null || standing.state !== 'open') return true
        budget = overBudget.find(({ job }) => job === plan.job) ?? null
        return standing.live === 0 && (standing.waiting === 0 || budget !== null)
      },
    })
  } catch (error) {
    await setPlanState(store, plan.job, 'paused', 'paused').catch(() => {})
    throw error
  } finally {
    drain.removeEventListener('abort', pause)
  }
  const standing = await store.persist(() => standingOf(store.database, plan.job), signal)
  const left = (standing?.live ?? 0) + (standing?.waiting ?? 0)
  if (left === 0) {
    await store.persist(() => setPlanState(store, plan.job, 'done', 'finished'), signal)
    return { kind: 'recorded' }
  }
  if (standing?.state === 'cancelled') return { kind: 'cancelled' }
  await store.persist(() => setPlanState(store, plan.job, 'paused', 'paused'), signal)
  if (full !== null) throw full
  return budget === null || drain.aborted
    ? { kind: 'stopped', waiting: left }
    : { kind: 'over-budget', budget, waiting: left }
}

/** Workers elsewhere: what they record is shown, and written here, where the job will be read. */
class Others {
  readonly #context: JobContext
  readonly #known = new Set<string>()

  constructor(context: JobContext) {
    this.#context = context
  }

  async look({ tell }: { readonly tell: boolean }): Promise<void> {
    const { store, plan, jobDir, watch } = this.#context
    for (const row of await resultsOf(store.database, plan.job, [...this.#known])) {
      this.#known.add(row.trial)
      const planned = plan.trials.find(({ trial }) => trial === row.trial)
      if (!tell || planned === undefined || (await this.#isOurs(row))) continue
      await writeRecorded(jobDir, row, row.recordedAt.toISOString())
      watch.recorded(planned, parseResult(row.body, `the result of ${row.trial} in the store`))
    }
  }

  async #isOurs({ trial, execution }: { trial: string; execution: string }): Promise<boolean> {
    const [row] = await this.#context.store.database.rows<{ worker: string }>(
      'select worker from closedbook.executions where trial = $1 and execution = $2',
      [trial, execution],
    )
    return row?.worker === this.#context.worker
  }
}
