/**
 * From what a person asked for to a running job: tasks and configurations loaded, images found or built, the plan
 * locked in the store and on disk, then every trial run. `resumeJob` starts at the locked plan instead, and refuses when
 * what it names changed.
 */
import path from 'node:path'
import type { DaemonClient } from '../../daemon/protocol/client.ts'
import { packageVersion } from '../../daemon/protocol/version.ts'
import type { RunnerConfig } from '../config.ts'
import { publisher, watchAll } from '../board/publish.ts'
import { RunnerError } from '../errors.ts'
import { makeDirectory } from '../json-file.ts'
import {
  lockPlan,
  readStoredPlan,
  releaseJob,
  reopenJob,
  takeJob,
  type JobLimits,
} from '../store/plans.ts'
import { storePacks } from '../store/packs.ts'
import { Store } from '../store/store.ts'
import type { HardwareClass } from '../store/queue.ts'
import { liveClasses, registerWorker, setWorkerState } from '../store/workers.ts'
import { packJob } from './pack.ts'
import { newHostKey, sealWith } from './host-values.ts'
import { planFile } from './layout.ts'
import {
  findImages,
  loadsOf,
  readNamed,
  requirePlanned,
  type Loaded,
  type LoadHost,
} from './load-job.ts'
import { makePlan, newJobId, readPlan, writePlan, type Plan } from './plan.ts'
import { runJob, type JobEnd } from './run-job.ts'
import { readSources, writeSources, type Sources } from './sources.ts'
import type { JobWatcher } from './watcher.ts'

export interface JobHost {
  readonly config: RunnerConfig
  readonly client: DaemonClient
  readonly watch: JobWatcher
  readonly say: (what: string) => void
  /** Aborts what runs; it can be resumed. */
  readonly signal: AbortSignal
  /** Stops claiming, and lets what runs end. */
  readonly drain?: AbortSignal
  /** Trials at a time in this process; default: as many as the job allows. */
  readonly slots?: number | undefined
  /** Told when the plan is locked, before the first trial. */
  readonly onPlan: (plan: Plan, jobDir: string) => void
}

export interface JobRequest {
  readonly name: string
  readonly runs: number
  readonly out: string | null
  readonly sources: Sources
}

export interface StartedJob {
  readonly plan: Plan
  readonly jobDir: string
  readonly end: JobEnd
}

export async function startJob(request: JobRequest, host: JobHost): Promise<StartedJob> {
  const { sources, runs } = request
  const named = await readNamed(sources, runs)
  // Without a daemon no store is made either.
  await host.client.health({ signal: host.signal })
  // It takes a moment, and so do the images. Whoever is first to fail is told of.
  await using opening = new Opening(host)
  const loaded = await findImages(named, sources, host, opening.elsewhere)
  const hostKey = newHostKey()
  const plan = planOf(request, loaded, hostKey)
  const jobDir = request.out ?? path.join(host.config.jobsDir, plan.job)
  const store = await opening.store
  await makeDirectory(jobDir)
  await writeSources(jobDir, sources)
  await writePlan(planFile(jobDir), plan)
  const limits = limitsOf(sources)
  const packs = await storePacks(store, await packJob({ ...named, runs }, host.say))
  const sealed = plan.tasks.some(({ hostEnv }) => hostEnv !== undefined)
  const loads = loadsOf(loaded)
  const kept = sealed ? hostKey : null
  await lockPlan(store, { plan, sources, jobDir, limits, packs, hostKey: kept, loads })
  return await go(store, { plan, jobDir, loaded, limits }, host)
}

export interface ResumeOptions {
  /** Trials that ended void by infra or the operator are tried again. */
  readonly retryVoid?: boolean
  /** A new spending cap. */
  readonly budgetUsd?: number | undefined
}

export async function resumeJob(
  jobDir: string,
  host: JobHost,
  options: ResumeOptions = {},
): Promise<StartedJob> {
  const plan = await readPlan(planFile(jobDir))
  const sources = await readSources(jobDir)
  const named = await readNamed(sources, plan.runs)
  await using opening = new Opening(host)
  const loaded = await findImages(named, sources, host, opening.elsewhere)
  const store = await opening.store
  const stored = await readStoredPlan(store.database, plan.job)
  if (stored === null)
    throw new RunnerError(
      'job_unknown',
      'operator',
      `the store does not know job ${plan.job}: ${jobDir} was copied from elsewhere, or its store is gone. It can be reported; to run it, resume it where it was planned, or start a new job`,
    )
  requirePlanned(plan, loaded, stored.hostKey)
  const { retryVoid = false, budgetUsd = null } = options
  return await go(store, { plan, jobDir, loaded, limits: stored.limits }, host, () =>
    reopenJob(store, plan.job, { retryVoid, budgetUsd }),
  )
}

/** The plan that a job would have, without running or storing anything. */
export async function previewPlan(
  request: JobRequest,
  host: LoadHost,
): Promise<{ plan: Plan; loaded: Loaded; limits: JobLimits }> {
  const named = await readNamed(request.sources, request.runs)
  const loaded = await findImages(named, request.sources, host, async () => {
    await using store = await Store.openIfThere(host.config, host.signal)
    return store === null ? [] : await liveClasses(store)
  })
  return { plan: planOf(request, loaded, newHostKey()), loaded, limits: limitsOf(request.sources) }
}

function planOf({ name, runs, sources }: JobRequest, loaded: Loaded, hostKey: string): Plan {
  const now = new Date()
  const job = newJobId(now)
  const { trajectory } = sources
  return makePlan({
    name,
    ...loaded,
    runs,
    closedbookVersion: packageVersion,
    now,
    job,
    trajectory,
    seal: sealWith(hostKey),
  })
}

const limitsOf = (sources: Sources): JobLimits => ({
  trialsAtOnce: sources.concurrency,
  perConfiguration: sources.perConfiguration ?? null,
  perEndpoint: sources.perEndpoint ?? null,
  budgetUsd: sources.budgetUsd ?? null,
})

/** A store that is being opened while something else is done, and closed again whatever comes of that. */
class Opening implements AsyncDisposable {
  readonly store: Promise<Store>

  constructor({ config, signal }: Pick<JobHost, 'config' | 'signal'>) {
    this.store = Store.open(config, signal)
    this.store.catch(() => {})
  }

  /** What workers of other hosts can serve. */
  elsewhere = async (): Promise<HardwareClass[]> => liveClasses(await this.store)

  async [Symbol.asyncDispose](): Promise<void> {
    const opened = await this.store.catch(() => null)
    await opened?.[Symbol.asyncDispose]()
  }
}

export async function classesOf({
  client,
  signal,
}: Pick<JobHost, 'client' | 'signal'>): Promise<HardwareClass[]> {
  const { gpus } = await client.host({ signal })
  return gpus.some((gpu) => /\bH100\b/i.test(gpu.name)) ? ['cpu', 'h100'] : ['cpu']
}

async function go(
  store: Store,
  job: { plan: Plan; jobDir: string; loaded: Loaded; limits: JobLimits },
  host: JobHost,
  before: () => Promise<unknown> = async () => {},
): Promise<StartedJob> {
  const { plan, jobDir, loaded, limits } = job
  const here = await classesOf(host)
  const classes = [...new Set(plan.tasks.map(({ hardware }) => hardware))].filter((one) =>
    here.includes(one),
  )
  const slots = host.slots ?? limits.trialsAtOnce
  const worker = await registerWorker(store, { daemon: host.config.socket, classes, slots })
  const unlisten = store.onLost((lost) =>
    host.say(lost ? 'the store is gone; what runs goes on' : 'the store is back'),
  )
  try {
    await takeJob(store, plan.job, worker)
    await before()
    host.onPlan(plan, jobDir)
    await using board = publisher(host.client, { plan, jobDir }, host.say)
    const end = await runJob({
      ...host,
      watch: watchAll(host.watch, board),
      drain: host.drain ?? new AbortController().signal,
      store,
      worker,
      slots,
      classes,
      plan,
      jobDir,
      tasks: new Map(loaded.tasks.map(({ task }) => [task.name, task])),
      configurations: new Map(
        loaded.configurations.map(({ configuration }) => [configuration.name, configuration]),
      ),
    })
    return { plan, jobDir, end }
  } finally {
    unlisten()
    await releaseJob(store, plan.job, worker).catch(() => {})
    await setWorkerState(store, worker, 'down').catch(() => {})
  }
}
