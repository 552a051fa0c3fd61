/**
 * From what a person asked for to a running job: tasks and configurations loaded, images found or built, the plan
 * locked, then every trial run. `resumeJob` starts at the locked plan instead, and refuses when what it names changed.
 */
import path from 'node:path'
import type { DaemonClient } from '../../daemon/protocol/client.ts'
import type { RunnerConfig } from '../config.ts'
import { makeDirectory } from '../json-file.ts'
import { buildOurImages, taskImageId } from '../host/images.ts'
import { requireHardware } from '../task/hardware.ts'
import { loadTask } from '../task/load.ts'
import type { Task } from '../task/task.ts'
import { packageVersion } from '../../daemon/protocol/version.ts'
import { readKey, type Configuration } from './configuration.ts'
import { planFile } from './layout.ts'
import { Ledger } from './ledger.ts'
import {
  makePlan,
  newJobId,
  plainHarnessDigest,
  plannedConfiguration,
  plannedTask,
  readPlan,
  requireUnchanged,
  writePlan,
  type Plan,
} from './plan.ts'
import { recordingPath } from './recordings.ts'
import { runJob, type JobWatcher } from './run-job.ts'
import { configurationsOf, readSources, writeSources, type Sources } from './sources.ts'

export interface JobHost {
  readonly config: RunnerConfig
  readonly client: DaemonClient
  readonly watch: JobWatcher
  readonly say: (what: string) => void
  readonly signal: AbortSignal
  /** Told when the plan is locked, before the first trial. */
  readonly onPlan: (plan: Plan, jobDir: string) => void
}

export interface StartedJob {
  readonly plan: Plan
  readonly jobDir: string
}

interface Loaded {
  readonly tasks: readonly { readonly task: Task; readonly image: string }[]
  readonly configurations: readonly {
    readonly configuration: Configuration
    readonly harnessDigest: string
  }[]
  readonly harnessImage: string | null
}

export async function startJob(
  request: { name: string; runs: number; out: string | null; sources: Sources },
  host: JobHost,
): Promise<StartedJob> {
  const { sources, runs, name } = request
  const loaded = await load(sources, host, runs)
  const now = new Date()
  const job = newJobId(now)
  const jobDir = request.out ?? path.join(host.config.jobsDir, job)
  const plan = makePlan({ name, ...loaded, runs, closedbookVersion: packageVersion, now, job })
  await makeDirectory(jobDir)
  await writeSources(jobDir, sources)
  await writePlan(planFile(jobDir), plan)
  await go(plan, jobDir, loaded, sources.concurrency, host)
  return { plan, jobDir }
}

export async function resumeJob(jobDir: string, host: JobHost): Promise<StartedJob> {
  const plan = await readPlan(planFile(jobDir))
  const sources = await readSources(jobDir)
  const loaded = await load(sources, host, plan.runs)
  requireUnchanged(plan, {
    tasks: loaded.tasks.map(({ task, image }) => plannedTask(task, image)),
    configurations: loaded.configurations.map(({ configuration, harnessDigest }) =>
      plannedConfiguration(configuration, harnessDigest),
    ),
  })
  await go(plan, jobDir, loaded, sources.concurrency, host)
  return { plan, jobDir }
}

/** Bad input is told before anything is built or opened. */
async function load(sources: Sources, host: JobHost, runs: number): Promise<Loaded> {
  const tasks: Task[] = []
  for (const dir of sources.taskDirs) tasks.push(await loadTask(dir))
  if (tasks.some(({ hardware }) => hardware !== 'cpu')) {
    const facts = await host.client.host({ signal: host.signal })
    for (const task of tasks) requireHardware(task, facts)
  }
  const configurations = await configurationsOf(sources)
  for (const { model } of configurations)
    // read again when a lease is opened; asked for here so that a missing key costs nothing
    if (model !== null && model.upstream.kind !== 'replay') await readKey(model.upstream.key)
    else if (model?.upstream.kind === 'replay')
      for (const task of tasks)
        for (let run = 1; run <= runs; run++)
          await recordingPath(model.upstream.recordings, task.name, run)
  const images: Loaded['tasks'][number][] = []
  const building = { ...host, stateDir: host.config.stateDir }
  for (const task of tasks) images.push({ task, image: await taskImageId(task, building) })
  const needsHarness = configurations.some(({ harness }) => harness.kind === 'mini-swe-agent')
  const harnessImage = needsHarness
    ? (await buildOurImages(['harness'], building)).harness.id
    : null
  return {
    tasks: images,
    harnessImage,
    configurations: configurations.map((configuration) => ({
      configuration,
      harnessDigest:
        configuration.harness.kind === 'mini-swe-agent' && harnessImage !== null
          ? harnessImage
          : plainHarnessDigest(configuration, packageVersion),
    })),
  }
}

async function go(
  plan: Plan,
  jobDir: string,
  { tasks, configurations, harnessImage }: Loaded,
  concurrency: number,
  host: JobHost,
): Promise<void> {
  await using ledger = await Ledger.open(jobDir)
  host.onPlan(plan, jobDir)
  await runJob({
    ...host,
    plan,
    jobDir,
    ledger,
    concurrency,
    harnessImage,
    tasks: new Map(tasks.map(({ task }) => [task.name, task])),
    configurations: new Map(
      configurations.map(({ configuration }) => [configuration.name, configuration]),
    ),
  })
}
