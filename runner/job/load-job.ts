/**
 * Tasks and configurations of a job, read from where they were named, with the images that its containers are started
 * by. Bad input is told before anything is built or opened.
 */
import type { DaemonClient } from '../../daemon/protocol/client.ts'
import { packageVersion } from '../../daemon/protocol/version.ts'
import type { RunnerConfig } from '../config.ts'
import { buildOurImages, taskImageId, verifierImageId, type ImageHost } from '../host/images.ts'
import { gateTasks, modeFor } from '../qualify/gate.ts'
import type { HardwareClass } from '../store/queue.ts'
import { requireHardware } from '../task/hardware.ts'
import { loadTask } from '../task/load.ts'
import type { Task } from '../task/task.ts'
import { gatewayBudget, readKey, usesHarnessImage, type Configuration } from './configuration.ts'
import { sealWith } from './host-values.ts'
import {
  plainHarnessDigest,
  plannedConfiguration,
  plannedTask,
  requireUnchanged,
  type Plan,
  type PlannedTask,
} from './plan.ts'
import { recordingPath } from './recordings.ts'
import { configurationsOf, type Sources } from './sources.ts'

export interface LoadHost {
  readonly config: RunnerConfig
  readonly client: DaemonClient
  readonly say: (what: string) => void
  readonly signal: AbortSignal
}

export interface Loaded {
  readonly tasks: readonly {
    readonly task: Task
    readonly image: string
    readonly verifierImage: string | null
    readonly qualification: NonNullable<PlannedTask['qualification']> | null
  }[]
  readonly configurations: readonly {
    readonly configuration: Configuration
    readonly harnessDigest: string
  }[]
}

/** What was named, read and checked, without any image. */
export interface Named {
  readonly tasks: readonly Task[]
  readonly configurations: readonly Configuration[]
}

/** `names`: of the tasks, where they don't lie in directories that are called like them. */
export async function readNamed(
  { harbor, taskDirs, ...sources }: Sources,
  runs: number,
  names: readonly string[] = [],
): Promise<Named> {
  const tasks: Task[] = []
  for (const [index, dir] of taskDirs.entries()) {
    const name = names[index]
    const options = { ...(harbor !== undefined && { harbor }), ...(name !== undefined && { name }) }
    tasks.push(await loadTask(dir, options))
  }
  const configurations = await configurationsOf(sources)
  for (const { model } of configurations)
    // read again when a lease is opened; asked for here so that a missing key costs nothing
    if (model !== null && model.upstream.kind !== 'replay') await readKey(model.upstream.key)
    else if (model?.upstream.kind === 'replay')
      for (const task of tasks)
        for (let run = 1; run <= runs; run++)
          await recordingPath(model.upstream.recordings, task.name, run)
  return { tasks, configurations }
}

export async function findImages(
  { tasks, configurations }: Named,
  sources: Sources,
  host: LoadHost,
  elsewhere: () => Promise<readonly HardwareClass[]> = async () => [],
): Promise<Loaded> {
  const special = tasks.filter(({ hardware }) => hardware !== 'cpu')
  if (special.length > 0) {
    const facts = await host.client.host({ signal: host.signal })
    const others = await elsewhere()
    for (const task of special) if (!others.includes(task.hardware)) requireHardware(task, facts)
  }
  const building = { ...host, stateDir: host.config.stateDir }
  const images: { task: Task; image: string; verifierImage: string | null }[] = []
  for (const task of tasks)
    images.push({
      task,
      image: await taskImageId(task, building),
      verifierImage: await verifierImageId(task, building),
    })
  const mode = modeFor(
    configurations.map(({ harness }) => harness),
    sources.require,
  )
  const qualified = await gateTasks(
    tasks,
    new Map(images.map(({ task, image }) => [task.name, image])),
    mode,
  )
  return {
    tasks: images.map((one) => ({ ...one, qualification: qualified.get(one.task.name) ?? null })),
    configurations: await driversOf(configurations, building),
  }
}

/** Each with what drives it: the id of its harness image, built once where it is ours, or a digest of its own. */
export async function driversOf(
  configurations: readonly Configuration[],
  host: ImageHost,
): Promise<Loaded['configurations']> {
  const drivers: Loaded['configurations'][number][] = []
  let ours: string | null = null
  for (const configuration of configurations) {
    let harnessDigest: string
    if (configuration.namedImage !== null)
      harnessDigest = (await host.client.inspectImage(configuration.namedImage, host)).id
    else if (usesHarnessImage(configuration))
      harnessDigest = ours ??= (await buildOurImages(['harness'], host)).harness.id
    else harnessDigest = plainHarnessDigest(configuration, packageVersion)
    drivers.push({ configuration, harnessDigest })
  }
  return drivers
}

/** Throws `plan_changed` when what was loaded is not what was planned; `hostKey`: as the store has it. */
export function requirePlanned(plan: Plan, loaded: Loaded, hostKey: string | null): void {
  const seal = hostKey === null ? null : sealWith(hostKey)
  requireUnchanged(plan, {
    tasks: loaded.tasks.map(({ task, image, verifierImage }) =>
      plannedTask(task, image, verifierImage, seal),
    ),
    configurations: loaded.configurations.map(({ configuration, harnessDigest }) =>
      plannedConfiguration(configuration, harnessDigest),
    ),
  })
}

/** The same for a host that has the images, or gets them later: they are taken as planned. */
export function asPlanned(
  plan: Plan,
  { tasks, configurations }: Named,
  hostKey: string | null,
): Loaded {
  const loaded: Loaded = {
    tasks: tasks.flatMap((task) => {
      const planned = plan.tasks.find(({ name }) => name === task.name)
      if (planned === undefined) return []
      const { image, verifierImage = null, qualification = null } = planned
      return [{ task, image, verifierImage, qualification }]
    }),
    configurations: configurations.map((configuration) => ({
      configuration,
      harnessDigest:
        plan.configurations.find(
          ({ name }) => name === configuration.name && usesHarnessImage(configuration),
        )?.harnessDigest ?? plainHarnessDigest(configuration, packageVersion),
    })),
  }
  requirePlanned(plan, loaded, hostKey)
  return loaded
}

/** What a claim needs to know of each configuration. */
export const loadsOf = ({ configurations }: Loaded) =>
  new Map(
    configurations.map(({ configuration, harnessDigest }) => {
      const { model, limits } = configuration
      const upstream = model?.upstream
      const shared = upstream !== undefined && upstream.kind !== 'replay'
      return [
        configuration.name,
        {
          endpoint: shared ? upstream.baseUrl : null,
          ceilingUsd:
            model === null ? 0 : (gatewayBudget(model, limits)?.costUsd ?? limits.costUsd),
          harnessImage: usesHarnessImage(configuration) ? harnessDigest : null,
        },
      ]
    }),
  )
