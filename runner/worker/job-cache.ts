/**
 * Jobs of the store as one worker sees them: their tasks and configurations are read from the same paths as where they
 * were planned, else from the store, and must have the planned digests. Images are asked for by the planned id; after some waiting time a
 * worker may also get one that it lacks. What it can't serve it says once, and leaves to others.
 */
import { existsSync } from 'node:fs'
import path from 'node:path'
import type { DaemonClient } from '../../daemon/protocol/client.ts'
import { publisher, watchAll, type Publisher } from '../board/publish.ts'
import { messageOf } from '../errors.ts'
import type { RunnerConfig } from '../config.ts'
import { taskImageId, verifierImageId } from '../host/images.ts'
import { makeDirectory } from '../json-file.ts'
import { planFile } from '../job/layout.ts'
import { asPlanned, readNamed, type Loaded } from '../job/load-job.ts'
import { readPlan, writePlan, type Plan } from '../job/plan.ts'
import type { JobWatcher } from '../job/watcher.ts'
import type { Group } from '../store/claim.ts'
import { planDigest, readStoredPlan, type StoredPlan } from '../store/plans.ts'
import type { Store } from '../store/store.ts'
import { standingOf } from '../store/trials.ts'
import type { OpenJob } from './open-job.ts'
import { removeUnpacked, sweepUnpacked, unpackSources } from './unpack.ts'

/** Trials wait so long for a host that has their image before one that lacks it may fetch or build it. */
const imagePatienceSeconds = 60
const lookAgainMs = 60_000

export interface JobCacheHost {
  readonly store: Store
  readonly client: DaemonClient
  readonly config: RunnerConfig
  readonly watch: JobWatcher
  readonly say: (what: string) => void
  readonly signal: AbortSignal
}

/** Dispose ends what is published of its jobs, and removes what was unpacked for them. */
export class JobCache implements AsyncDisposable {
  readonly #host: JobCacheHost
  readonly #published = new Map<string, Publisher>()
  /** Were over when they were last looked at. */
  readonly #over = new Set<string>()
  #lookAt = performance.now() + lookAgainMs
  readonly #jobs = new Map<string, OpenJob>()
  /** Why a job or image is not served, and when to look again. */
  readonly #refused = new Map<string, { readonly why: string; readonly until: number }>()
  readonly #images = new Set<string>()

  private constructor(host: JobCacheHost) {
    this.#host = host
  }

  static async open(host: JobCacheHost): Promise<JobCache> {
    await sweepUnpacked(host.config.stateDir).catch((error: unknown) =>
      host.say(`what dead workers unpacked could not be removed: ${messageOf(error)}`),
    )
    return new JobCache(host)
  }

  get(job: string): OpenJob | null {
    return this.#jobs.get(job) ?? null
  }

  serves = (group: Group): boolean =>
    this.#jobs.has(group.job) &&
    imagesOf(group, this.#jobs.get(group.job)).every((id) => this.#images.has(id))

  /** Learns what it must know of the groups before one of them is claimed from. */
  async prepare(groups: readonly Group[]): Promise<void> {
    if (performance.now() > this.#lookAt) await this.letGo()
    for (const group of groups) {
      if (group.state !== 'open' || !(await this.#has(group.job))) continue
      for (const image of imagesOf(group, this.#jobs.get(group.job)))
        await this.#hasImage(image, group)
    }
  }

  /**
   * A worker may live for months: jobs that are over are forgotten, and no sign of life is given of them any more. Only at
   * the second look, for the last of what was recorded may still be on its way.
   */
  async letGo(): Promise<void> {
    this.#lookAt = performance.now() + lookAgainMs
    for (const job of this.#jobs.keys()) {
      if (!(await this.#isOver(job))) this.#over.delete(job)
      else if (!this.#over.has(job)) this.#over.add(job)
      else {
        const board = this.#published.get(job)
        for (const known of [this.#jobs, this.#published, this.#over]) known.delete(job)
        await board?.[Symbol.asyncDispose]()
      }
    }
  }

  async #isOver(job: string): Promise<boolean> {
    const standing = await standingOf(this.#host.store.database, job)
    return standing === null || standing.live + standing.waiting === 0
  }

  async #has(job: string): Promise<boolean> {
    if (this.#jobs.has(job)) return true
    return this.#unlessRefused(`job ${job}`, async () => {
      this.#jobs.set(job, await this.#load(job))
    })
  }

  async #load(job: string): Promise<OpenJob> {
    const { store, config, client, say } = this.#host
    const stored = await readStoredPlan(store.database, job)
    if (stored === null) throw new Error('the store does not have it')
    const { plan } = stored
    const loaded = await this.#loaded(stored)
    const jobDir = await placeOf(plan, stored.jobDir, config.jobsDir)
    const isOver = (): Promise<boolean> => this.#isOver(job)
    const board = publisher(client, { plan, jobDir, isOver }, say)
    this.#published.set(job, board)
    return {
      plan,
      jobDir,
      tasks: new Map(loaded.tasks.map(({ task }) => [task.name, task])),
      configurations: new Map(
        loaded.configurations.map(({ configuration }) => [configuration.name, configuration]),
      ),
      watch: watchAll(this.#host.watch, board),
    }
  }

  async #loaded({ plan, sources, packs, hostKey }: StoredPlan): Promise<Loaded> {
    const { store, config } = this.#host
    try {
      return asPlanned(plan, await readNamed(sources, plan.runs), hostKey)
    } catch (error) {
      if (packs === null) throw error
      const here = await unpackSources(store, { plan, sources, packs }, config.stateDir)
      return asPlanned(
        plan,
        await readNamed(
          here,
          plan.runs,
          plan.tasks.map(({ name }) => name),
        ),
        hostKey,
      )
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all([...this.#published.values()].map((board) => board[Symbol.asyncDispose]()))
    await removeUnpacked(this.#host.config.stateDir)
  }

  async #hasImage(image: string, group: Group): Promise<boolean> {
    const { client, signal } = this.#host
    if (this.#images.has(image)) return true
    const found = await client.inspectImage(image, { signal }).catch(() => null)
    if (found?.id === image) {
      this.#images.add(image)
      return true
    }
    if (group.waitingSeconds < imagePatienceSeconds) return false
    return this.#unlessRefused(`image ${image.slice(0, 19)}`, () => this.#getImage(image, group))
  }

  async #getImage(image: string, group: Group): Promise<void> {
    const { client, config, say, signal } = this.#host
    const job = this.#jobs.get(group.job)
    for (const planned of job?.plan.tasks ?? []) {
      const task = job?.tasks.get(planned.name)
      if (task === undefined) continue
      const building = { client, stateDir: config.stateDir, say, signal }
      if (planned.image === image && (await taskImageId(task, building)) === image)
        return void this.#images.add(image)
      if (planned.verifierImage === image && (await verifierImageId(task, building)) === image)
        return void this.#images.add(image)
    }
    throw new Error(
      'this host does not have it, and gets another when it pulls or builds it; bring it with docker save and docker load',
    )
  }

  async #unlessRefused(what: string, get: () => Promise<void>): Promise<boolean> {
    const before = this.#refused.get(what)
    if (before !== undefined && before.until > performance.now()) return false
    try {
      await get()
      this.#refused.delete(what)
      return true
    } catch (error) {
      this.#host.signal.throwIfAborted()
      const why = messageOf(error)
      if (before?.why !== why) this.#host.say(`${what} is left to other workers: ${why}`)
      this.#refused.set(what, { why, until: performance.now() + lookAgainMs })
      return false
    }
  }
}

/** Every image that a trial of the group starts containers by: several tasks may have one image and verifiers of their own. */
function imagesOf(group: Group, job: OpenJob | undefined): string[] {
  const tasks = job?.plan.tasks.filter(({ image }) => image === group.image) ?? []
  const verifiers = tasks.map(({ verifierImage }) => verifierImage)
  return [group.image, ...verifiers, group.harnessImage].filter(
    (id): id is string => typeof id === 'string',
  )
}

/** The directory where the job was planned, when it is that one that is here, too; else one of this worker's own. */
async function placeOf(plan: Plan, planned: string, jobsDir: string): Promise<string> {
  const here = await readPlan(planFile(planned)).catch(() => null)
  if (here !== null && planDigest(here) === planDigest(plan)) return planned
  const own = path.join(jobsDir, plan.job)
  await makeDirectory(own)
  if (!existsSync(planFile(own))) await writePlan(planFile(own), plan)
  return own
}
