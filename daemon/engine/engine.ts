/**
 * What Closedbook needs from a container engine. Only `docker.ts` imports the driver; everything else sees this.
 * All methods throw EngineError. `signal` aborts the wait, not the effect, unless said otherwise.
 */
import type { Duplex, Readable } from 'node:stream'
import type { ContainerSpec } from './container-spec.ts'

export interface EngineInfo {
  readonly version: string
  readonly apiVersion: string
  /** As the kernel names it: x86_64, aarch64. */
  readonly architecture: string
  readonly kernel: string
  readonly cpus: number
  readonly memoryBytes: number
  readonly cgroupVersion: '1' | '2'
  readonly cgroupDriver: string
  readonly storageDriver: string
  readonly dataRoot: string
  readonly runtimes: readonly string[]
  readonly securityOptions: readonly string[]
  /** Where device specs (CDI) are read from, and what they name; `devices` null where the engine doesn't tell. */
  readonly cdi?: {
    readonly specDirs: readonly string[]
    readonly devices: readonly string[] | null
  }
  readonly name: string
}

export interface ImageInfo {
  /** `sha256:…` of the image configuration: what a container is started by. */
  readonly id: string
  readonly sizeBytes: number
  readonly repoDigests: readonly string[]
  readonly repoTags: readonly string[]
  readonly env: readonly string[]
  readonly user: string
  readonly workdir: string
  readonly entrypoint: readonly string[]
  /** Paths of VOLUME instructions. */
  readonly volumes: readonly string[]
  readonly labels: Readonly<Record<string, string>>
}

export interface ContainerState {
  readonly id: string
  readonly name: string
  readonly status: 'created' | 'running' | 'paused' | 'restarting' | 'removing' | 'exited' | 'dead'
  /** Host pid of PID 1; 0 when not running. */
  readonly pid: number
  readonly oomKilled: boolean
  readonly labels: Readonly<Record<string, string>>
  readonly image: string
  /** Where the host keeps what the container changed (overlay2); null where the storage driver has no such place. */
  readonly upperDir: string | null
  /** Devices that it asked the engine for, by id; `all` for a request by number. */
  readonly deviceIds: readonly string[]
}

export interface ExecSpec {
  readonly argv: readonly string[]
  readonly env?: readonly string[]
  readonly user?: string
  readonly workdir?: string
  readonly stdin: boolean
  readonly tty?: boolean
  /**
   * For terminals: output goes here, in a buffer that is used again, and the handle's stream, paused at first, is only
   * written to, paused and resumed.
   */
  readonly take?: (bytes: Buffer) => void
}

/** A started exec: the raw hijacked stream (multiplexed unless tty) with an error listener already attached. */
export interface ExecHandle {
  readonly id: string
  readonly stream: Duplex
  /** Facts from the engine; `exitCode` is null while running. `pid` is a host pid, 0 if unknown. */
  inspect(): Promise<{ running: boolean; exitCode: number | null; pid: number }>
  /** Resolves with the code of the engine's exec_die event; never rejects; null when the engine went away. */
  readonly died: Promise<number | null>
  /** Size of the terminal, for tty execs. */
  resize(rows: number, columns: number): Promise<void>
}

export interface BuildSpec {
  /** A tar of the build context. */
  readonly context: Readable
  readonly tag: string
  readonly dockerfile?: string
  readonly buildArgs?: Readonly<Record<string, string>>
  readonly labels?: Readonly<Record<string, string>>
  /** `host` for steps that install packages; `none` otherwise. */
  readonly network: 'none' | 'host'
  readonly onLine?: (line: string) => void
}

export interface PathStat {
  readonly name: string
  readonly sizeBytes: number
  readonly kind: 'file' | 'directory' | 'symlink' | 'other'
  readonly linkTarget: string
}

export interface FileChange {
  /** Absolute; bytes that are not UTF-8 are lost. */
  readonly path: string
  readonly kind: 'added' | 'modified' | 'deleted'
}

export interface Engine extends AsyncDisposable {
  info(options?: { signal?: AbortSignal }): Promise<EngineInfo>

  /** Reference may be an id, a digest reference or a tag; throws `image_missing` with what to do. */
  inspectImage(reference: string, options?: { signal?: AbortSignal }): Promise<ImageInfo>
  /** Makes an image of one layer out of a tar of a root file system; returns its id. */
  importImage(
    tar: Readable,
    options: {
      tag: string
      labels?: Readonly<Record<string, string>>
      changes?: readonly string[]
      signal?: AbortSignal
    },
  ): Promise<ImageInfo>
  buildImage(spec: BuildSpec, options?: { signal?: AbortSignal }): Promise<ImageInfo>
  pullImage(
    reference: string,
    options?: { onLine?: (line: string) => void; signal?: AbortSignal },
  ): Promise<ImageInfo>
  removeImage(reference: string): Promise<void>
  /** The image's whole file system as one tar, from a container with these labels that is never started. */
  exportImage(
    reference: string,
    options: { labels: Readonly<Record<string, string>>; signal?: AbortSignal },
  ): Promise<Readable>
  /** The image as `docker save` writes it: configuration and every layer, as one tar. */
  saveImage(reference: string, options?: { signal?: AbortSignal }): Promise<Readable>

  createContainer(spec: ContainerSpec, options?: { signal?: AbortSignal }): Promise<{ id: string }>
  startContainer(id: string, options?: { signal?: AbortSignal }): Promise<void>
  inspectContainer(id: string, options?: { signal?: AbortSignal }): Promise<ContainerState>
  /** SIGKILL and remove with anonymous volumes; "already gone" is success. */
  removeContainer(id: string): Promise<void>
  /** Containers, running or not, that carry all the labels; those to `skip` are not even looked at. */
  listContainers(
    labels: Readonly<Record<string, string>>,
    options?: { skip?: (labels: Readonly<Record<string, string>>) => boolean },
  ): Promise<readonly ContainerState[]>

  exec(containerId: string, spec: ExecSpec, options?: { signal?: AbortSignal }): Promise<ExecHandle>

  /** A tar of one path (a directory's name is the first component). Throws `path_missing`. */
  readArchive(
    containerId: string,
    path: string,
    options?: { signal?: AbortSignal },
  ): Promise<{ stat: PathStat; tar: Readable }>
  /** Every path that differs from the container's image; what is mounted over it doesn't count. */
  changes(containerId: string, options?: { signal?: AbortSignal }): Promise<readonly FileChange[]>
  /** Extracts a tar into an existing directory of the container. */
  writeArchive(
    containerId: string,
    path: string,
    tar: Readable,
    options?: { signal?: AbortSignal },
  ): Promise<void>

  close(): Promise<void>
}
