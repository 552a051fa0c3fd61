/**
 * The Docker engine behind `Engine`. The only file that imports the driver; everything it throws leaves as EngineError.
 * Rules kept here: a hijacked socket has an error listener before anyone else sees it; removal never waits out a
 * grace period and is verified; deaths of execs come from the engine's events, not from the end of a stream.
 */
import { setTimeout as delay } from 'node:timers/promises'
import type { Duplex, Readable } from 'node:stream'
import Docker from 'dockerode'
import { EngineError } from '../errors.ts'
import { toCreateOptions, checkMountSources } from './container-spec.ts'
import type { ContainerSpec } from './container-spec.ts'
import { readArchive, writeArchive } from './docker-archive.ts'
import { readChanges } from './docker-changes.ts'
import {
  buildImage,
  exportImage,
  importImage,
  inspectImage,
  pullImage,
  saveImage,
} from './docker-images.ts'
import { hijackExec } from './docker-hijack.ts'
import { ask, hasStatus } from './driver-error.ts'
import type { Ask } from './driver-error.ts'
import type {
  BuildSpec,
  ContainerState,
  Engine,
  EngineInfo,
  ExecHandle,
  ExecSpec,
  FileChange,
  ImageInfo,
  PathStat,
} from './engine.ts'
import { ExecEvents } from './exec-events.ts'

const shortDeadlineMs = 30_000
/** Creating and starting read images from a disk that may be busy. */
const startDeadlineMs = 120_000
const removeDeadlineMs = 60_000
const removePollMs = 25
/** No one types this; the engine offers no way to have no detach keys at all. */
const detachKeys = 'ctrl-^,ctrl-^,ctrl-^'
/** How long the code of an exec is kept for after its stream closed. */
const deathKeptMs = 60_000

interface Waits {
  readonly signal?: AbortSignal
}

export class DockerEngine implements Engine {
  readonly #docker: Docker
  readonly #socketPath: string
  readonly #events: ExecEvents
  #info: EngineInfo | undefined

  private constructor(docker: Docker, socketPath: string, events: ExecEvents) {
    this.#docker = docker
    this.#socketPath = socketPath
    this.#events = events
  }

  /** Throws `engine_unreachable` when nothing answers at the socket. */
  static async connect({
    socketPath,
    signal,
  }: { socketPath: string } & Waits): Promise<DockerEngine> {
    // `host` undefined: the driver would otherwise take it from the environment and ignore the socket.
    const docker = new Docker({ socketPath, host: undefined })
    const events = new ExecEvents((since, abortSignal) =>
      ask(
        { action: 'open its event stream', socketPath },
        { signal: abortSignal },
        (merged) =>
          docker.getEvents({
            filters: { event: ['exec_die'] },
            abortSignal: merged,
            since: seconds(since),
          }) as Promise<Readable>,
      ),
    )
    const engine = new DockerEngine(docker, socketPath, events)
    await engine.info(signal === undefined ? {} : { signal })
    await events.start()
    return engine
  }

  async info({ signal }: Waits = {}): Promise<EngineInfo> {
    const [info, version] = await ask(
      this.#what('describe itself'),
      { signal, deadlineMs: shortDeadlineMs },
      () => Promise.all([this.#docker.info() as Promise<RawInfo>, this.#docker.version()]),
    )
    this.#info = {
      version: info.ServerVersion,
      apiVersion: version.ApiVersion,
      architecture: info.Architecture,
      kernel: info.KernelVersion,
      cpus: info.NCPU,
      memoryBytes: info.MemTotal,
      cgroupVersion: info.CgroupVersion === '2' ? '2' : '1',
      cgroupDriver: info.CgroupDriver,
      storageDriver: info.Driver,
      dataRoot: info.DockerRootDir,
      runtimes: Object.keys(info.Runtimes ?? {}),
      securityOptions: info.SecurityOptions ?? [],
      cdi: {
        specDirs: info.CDISpecDirs ?? [],
        devices: info.DiscoveredDevices?.map(({ ID }) => ID) ?? null,
      },
      name: info.Name,
    }
    return this.#info
  }

  inspectImage(reference: string, { signal }: Waits = {}): Promise<ImageInfo> {
    return inspectImage(this.#deps(), reference, signal)
  }

  importImage(
    tar: Readable,
    options: {
      tag: string
      labels?: Readonly<Record<string, string>>
      changes?: readonly string[]
      signal?: AbortSignal
    },
  ): Promise<ImageInfo> {
    return importImage(this.#deps(), tar, options)
  }

  buildImage(spec: BuildSpec, { signal }: Waits = {}): Promise<ImageInfo> {
    return buildImage(this.#deps(), spec, signal)
  }

  pullImage(
    reference: string,
    options: { onLine?: (line: string) => void; signal?: AbortSignal } = {},
  ): Promise<ImageInfo> {
    return pullImage(this.#deps(), reference, options)
  }

  async removeImage(reference: string): Promise<void> {
    const what = { ...this.#what(`remove image ${reference}`), image: reference }
    try {
      await ask(what, { deadlineMs: removeDeadlineMs }, () =>
        this.#docker.getImage(reference).remove({ force: true }),
      )
    } catch (thrown) {
      if (!(thrown instanceof EngineError && thrown.code === 'image_missing')) throw thrown
    }
  }

  exportImage(
    reference: string,
    { labels, signal }: Waits & { labels: Readonly<Record<string, string>> },
  ): Promise<Readable> {
    return exportImage(this.#deps(), reference, labels, signal)
  }

  saveImage(reference: string, { signal }: Waits = {}): Promise<Readable> {
    return saveImage(this.#deps(), reference, signal)
  }

  async createContainer(spec: ContainerSpec, { signal }: Waits = {}): Promise<{ id: string }> {
    const info = this.#info ?? (await this.info(signal === undefined ? {} : { signal }))
    const options = toCreateOptions(spec, info)
    await checkMountSources(spec)
    const what = { ...this.#what(`create container ${spec.name}`), image: spec.image }
    const container = await ask(what, { signal, deadlineMs: startDeadlineMs }, () =>
      this.#docker.createContainer(options),
    )
    return { id: container.id }
  }

  async startContainer(id: string, { signal }: Waits = {}): Promise<void> {
    const what = this.#what(`start container ${id}`, id)
    await ask(what, { signal, deadlineMs: startDeadlineMs }, async () => {
      try {
        await this.#docker.getContainer(id).start()
      } catch (thrown) {
        if (!hasStatus(thrown, 304)) throw thrown
      }
    })
  }

  async inspectContainer(id: string, { signal }: Waits = {}): Promise<ContainerState> {
    const found = await ask(
      this.#what(`inspect container ${id}`, id),
      { signal, deadlineMs: shortDeadlineMs },
      () => this.#docker.getContainer(id).inspect(),
    )
    const storage = found.GraphDriver as { Name: string; Data: Record<string, string> | null }
    return {
      id: found.Id,
      name: found.Name.replace(/^\//, ''),
      status: found.State.Status as ContainerState['status'],
      pid: found.State.Pid,
      oomKilled: found.State.OOMKilled,
      labels: found.Config.Labels ?? {},
      image: found.Image,
      upperDir: storage.Name === 'overlay2' ? (storage.Data?.['UpperDir'] ?? null) : null,
      deviceIds: (found.HostConfig.DeviceRequests ?? []).flatMap(
        ({ DeviceIDs }) => DeviceIDs ?? 'all',
      ),
    }
  }

  /** Returns when the engine no longer knows the container. */
  async removeContainer(id: string): Promise<void> {
    const what = this.#what(`remove container ${id}`, id)
    await ask(what, { deadlineMs: removeDeadlineMs }, async (signal) => {
      let wait = false
      for (;;) {
        if (wait) await delay(removePollMs, undefined, { signal })
        try {
          await this.#docker.getContainer(id).remove({ force: true, v: true })
        } catch (thrown) {
          // 409: another removal is under way; its end shows as 404.
          if (!hasStatus(thrown, 404) && !hasStatus(thrown, 409)) throw thrown
        }
        if (!(await this.#exists(id))) return
        wait = true
      }
    })
  }

  async listContainers(
    labels: Readonly<Record<string, string>>,
    { skip }: { skip?: (labels: Readonly<Record<string, string>>) => boolean } = {},
  ): Promise<readonly ContainerState[]> {
    const label = Object.entries(labels).map(([name, value]) => `${name}=${value}`)
    const found = await ask(this.#what('list containers'), { deadlineMs: shortDeadlineMs }, () =>
      this.#docker.listContainers({ all: true, filters: { label } }),
    )
    const wanted = found.filter(({ Labels }) => skip?.(Labels ?? {}) !== true)
    const states = await Promise.all(
      wanted.map(async ({ Id }) => {
        try {
          return await this.inspectContainer(Id)
        } catch (thrown) {
          if (thrown instanceof EngineError && thrown.code === 'container_gone') return null
          throw thrown
        }
      }),
    )
    return states.filter((state) => state !== null)
  }

  async exec(containerId: string, spec: ExecSpec, { signal }: Waits = {}): Promise<ExecHandle> {
    const what = this.#what(`exec in container ${containerId}`, containerId)
    const tty = spec.tty ?? false
    const exec = await ask(what, { signal, deadlineMs: shortDeadlineMs }, () =>
      this.#docker.getContainer(containerId).exec({
        Cmd: [...spec.argv],
        AttachStdin: spec.stdin,
        AttachStdout: true,
        AttachStderr: !tty,
        Tty: tty,
        DetachKeys: detachKeys,
        ...(spec.env === undefined ? {} : { Env: [...spec.env] }),
        ...(spec.user === undefined ? {} : { User: spec.user }),
        ...(spec.workdir === undefined ? {} : { WorkingDir: spec.workdir }),
      }),
    )
    const { died, forget } = this.#events.died(exec.id)
    const starting: Promise<Duplex> =
      spec.take === undefined
        ? exec.start({ hijack: true, stdin: spec.stdin, Tty: tty })
        : hijackExec(this.#socketPath, exec.id, spec.take)
    let stream: Duplex
    try {
      stream = await ask(what, { signal, deadlineMs: shortDeadlineMs }, () => starting)
    } catch (thrown) {
      forget()
      // Given up on, but it may still open: an unread stream would hold the process for ever.
      starting.then(abandon, () => undefined)
      throw thrown
    }
    // Readers see the fault as a broken stream; without a listener a reset would end the daemon.
    stream.on('error', () => undefined)
    stream.once('close', () => setTimeout(forget, deathKeptMs).unref())
    return {
      id: exec.id,
      stream,
      died,
      inspect: async () => {
        const found = await ask(what, { deadlineMs: shortDeadlineMs }, () => exec.inspect())
        return { running: found.Running, exitCode: found.ExitCode, pid: found.Pid }
      },
      resize: async (rows, columns) => {
        await ask(what, { deadlineMs: shortDeadlineMs }, () => exec.resize({ h: rows, w: columns }))
      },
    }
  }

  readArchive(
    containerId: string,
    path: string,
    { signal }: Waits = {},
  ): Promise<{ stat: PathStat; tar: Readable }> {
    return readArchive(this.#deps(), containerId, path, signal)
  }

  changes(containerId: string, { signal }: Waits = {}): Promise<readonly FileChange[]> {
    return readChanges(this.#deps(), containerId, signal)
  }

  writeArchive(
    containerId: string,
    path: string,
    tar: Readable,
    { signal }: Waits = {},
  ): Promise<void> {
    return writeArchive(this.#deps(), containerId, path, tar, signal)
  }

  close(): Promise<void> {
    return this.#events.close()
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close()
  }

  async #exists(id: string): Promise<boolean> {
    try {
      await this.#docker.getContainer(id).inspect()
      return true
    } catch (thrown) {
      if (hasStatus(thrown, 404)) return false
      throw thrown
    }
  }

  #deps(): { docker: Docker; socketPath: string } {
    return { docker: this.#docker, socketPath: this.#socketPath }
  }

  #what(action: string, container?: string): Ask {
    return {
      action,
      socketPath: this.#socketPath,
      ...(container === undefined ? {} : { container }),
    }
  }
}

interface RawInfo {
  ServerVersion: string
  Architecture: string
  KernelVersion: string
  NCPU: number
  MemTotal: number
  CgroupVersion?: string
  CgroupDriver: string
  Driver: string
  DockerRootDir: string
  Runtimes?: Record<string, unknown> | null
  SecurityOptions?: string[] | null
  CDISpecDirs?: string[] | null
  DiscoveredDevices?: { ID: string }[] | null
  Name: string
}

function abandon(stream: Duplex): void {
  stream.on('error', () => undefined).destroy()
}

/** The engine wants seconds with nanoseconds behind the point; the type of the driver wants a number. */
function seconds(nanos: bigint): number {
  // A millisecond earlier: both numbers are rounded, and an event read twice does no harm.
  return Number(nanos - 1_000_000n) / 1e9
}
