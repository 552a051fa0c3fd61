/**
 * What a container of ours is, and how it is made safe: a spec goes in, the body of the engine's create call comes out,
 * or a refusal. Every container has no network, an idle init of ours as PID 1, no capabilities but the few it declares,
 * no way to gain any, our own seccomp profile, and limits. The image's entrypoint, command, health check and volumes
 * take no part. Nothing here talks to the engine.
 */
import { lstat, realpath } from 'node:fs/promises'
import { posix } from 'node:path'
import type { ContainerCreateOptions, DeviceRequest, MountConfig } from 'dockerode'
import { EngineError } from '../errors.ts'
import { allowedCapabilities } from '../protocol/lease.ts'
import type { Resources } from '../protocol/lease.ts'
import type { EngineInfo } from './engine.ts'
import { seccompProfile } from './seccomp.ts'

export interface ContainerSpec {
  /** `sha256:…` of the image, or `name@sha256:…`. */
  readonly image: string
  readonly name: string
  readonly hostname: string
  readonly user?: string
  readonly workdir?: string
  readonly env: Readonly<Record<string, string>>
  readonly labels: Readonly<Record<string, string>>
  /** Of the short list in the protocol; everything else is dropped. */
  readonly capabilities: readonly string[]
  readonly resources: Resources
  readonly readOnlyMounts: readonly ReadOnlyMount[]
  /** Sources of read-only mounts must lie under one of these host directories. */
  readonly mountRoots: readonly string[]
  /** Memory-backed directories, gone with the container. */
  readonly scratchMounts?: readonly { readonly target: string; readonly sizeBytes: number }[]
  /** Host path of the static init that idles as PID 1 (catatonit). */
  readonly initPath: string
  /** Host path of the static busybox that our own probes run. */
  readonly busyboxPath?: string
  readonly gpus?: { readonly mode: 'nvidia' | 'cdi'; readonly uuids: readonly string[] }
}

export interface ReadOnlyMount {
  readonly source: string
  readonly target: string
}

/** Where the container sees what we bring. */
export const initTarget = '/.closedbook/init'
export const busyboxTarget = '/.closedbook/busybox'

/** Every key there is: another one may ask for what no sandbox may have, so it is refused rather than ignored. */
const specKeys: ReadonlySet<string> = new Set([
  'image',
  'name',
  'hostname',
  'user',
  'workdir',
  'env',
  'labels',
  'capabilities',
  'resources',
  'readOnlyMounts',
  'mountRoots',
  'scratchMounts',
  'initPath',
  'busyboxPath',
  'gpus',
] satisfies (keyof ContainerSpec)[])

const digestReference = /^(?:[a-z0-9][\w.:/-]*@)?sha256:[0-9a-f]{64}$/
const containerName = /^[a-zA-Z0-9][a-zA-Z0-9_.-]{1,100}$/
const hostName = /^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$/
const envName = /^[^=\0]+$/
const engineSocket = /(?:^|\/)(?:docker|containerd|podman|crio|buildkitd)[^/]*\.sock$/
const hostTrees = ['/proc', '/sys', '/dev', '/run', '/var/run', '/boot', '/etc']
const nanosPerCpu = 1e9
/** The host's kernel should end a sandbox before anything of the host's. */
const oomScoreAdj = 500

function refuse(message: string, facts: Record<string, unknown> = {}): EngineError {
  return new EngineError('spec_refused', 'caller', message, { facts })
}

/** Throws `image_not_pinned` or `spec_refused`. */
export function toCreateOptions(spec: ContainerSpec, engine: EngineInfo): ContainerCreateOptions {
  check(spec, engine)
  const profile = seccompProfile(engine.architecture, spec.capabilities)
  if (profile === null)
    throw refuse(
      `There is no seccomp profile for ${engine.architecture}; x86_64 and aarch64 are served.`,
    )
  const { resources } = spec
  return {
    Image: spec.image,
    name: spec.name,
    Hostname: spec.hostname,
    ...(spec.user === undefined ? {} : { User: spec.user }),
    ...(spec.workdir === undefined ? {} : { WorkingDir: spec.workdir }),
    Entrypoint: [initTarget, '-P'],
    Cmd: [],
    Healthcheck: { Test: ['NONE'] },
    Env: environment(spec),
    Labels: { ...spec.labels },
    AttachStdin: false,
    AttachStdout: false,
    AttachStderr: false,
    OpenStdin: false,
    Tty: false,
    HostConfig: {
      NetworkMode: 'none',
      Dns: ['127.0.0.1'],
      ExtraHosts: [`${spec.hostname}:127.0.0.1`],
      CapDrop: ['ALL'],
      CapAdd: [...spec.capabilities],
      Privileged: false,
      SecurityOpt: ['no-new-privileges', `seccomp=${JSON.stringify(profile)}`],
      PidsLimit: resources.pids,
      Memory: resources.memoryBytes,
      MemorySwap: resources.memoryBytes,
      NanoCpus: Math.round(resources.cpus * nanosPerCpu),
      // The engine takes 0 for "default": the smallest that it takes at its word is one page.
      ShmSize: Math.max(resources.shmBytes, 4096),
      OomScoreAdj: oomScoreAdj,
      Ulimits: ulimits,
      Init: false,
      Runtime: 'runc',
      AutoRemove: false,
      RestartPolicy: { Name: 'no' },
      LogConfig: { Type: 'none', Config: {} },
      IpcMode: 'private',
      Mounts: mounts(spec),
      ...(spec.gpus === undefined ? {} : { DeviceRequests: [deviceRequest(spec.gpus)] }),
    },
  }
}

function environment(spec: ContainerSpec): string[] {
  // CUDA images ask for every GPU by this variable; `void` is what every version of the hook takes as none. The engine
  // adds the granted ones only to what it starts: commands that are run later would read the image's.
  const visible = spec.gpus?.uuids.join(',') ?? 'void'
  const env = { ...spec.env, NVIDIA_VISIBLE_DEVICES: visible }
  return Object.entries(env).map(([name, value]) => `${name}=${value}`)
}

/** The others are the engine's own: one that may not raise its limits refuses to start a container with more. */
const ulimits = [{ Name: 'core', Soft: 0, Hard: 0 }]

function mounts(spec: ContainerSpec): MountConfig {
  const ours = [
    { source: spec.initPath, target: initTarget },
    ...(spec.busyboxPath === undefined
      ? []
      : [{ source: spec.busyboxPath, target: busyboxTarget }]),
  ]
  return [
    ...[...ours, ...spec.readOnlyMounts].map(({ source, target }) => ({
      Type: 'bind' as const,
      Source: source,
      Target: target,
      ReadOnly: true,
      BindOptions: { Propagation: 'rprivate' as const },
    })),
    ...(spec.scratchMounts ?? []).map(({ target, sizeBytes }) => ({
      Type: 'tmpfs' as const,
      Source: '',
      Target: target,
      TmpfsOptions: { SizeBytes: sizeBytes, Mode: 0o1777 },
    })),
  ]
}

function deviceRequest({ mode, uuids }: NonNullable<ContainerSpec['gpus']>): DeviceRequest {
  return mode === 'cdi'
    ? { Driver: 'cdi', DeviceIDs: uuids.map((uuid) => `nvidia.com/gpu=${uuid}`) }
    : { Driver: 'nvidia', DeviceIDs: [...uuids], Capabilities: [['gpu', 'compute', 'utility']] }
}

function check(spec: ContainerSpec, engine: EngineInfo): void {
  for (const key of Object.keys(spec))
    if (!specKeys.has(key))
      throw refuse(`A sandbox has no setting "${key}"; remove it from the spec.`, { key })
  if (!digestReference.test(spec.image))
    throw new EngineError(
      'image_not_pinned',
      'caller',
      `The image "${spec.image}" is not pinned. Name it by its digest (name@sha256:…) or by its id (sha256:…).`,
    )
  if (!containerName.test(spec.name)) throw refuse(`"${spec.name}" is no name for a container.`)
  if (!hostName.test(spec.hostname)) throw refuse(`"${spec.hostname}" is no host name.`)
  for (const capability of spec.capabilities)
    if (!(allowedCapabilities as readonly string[]).includes(capability))
      throw refuse(
        `The capability ${capability} is not on the short list (${allowedCapabilities.join(', ')}).`,
        { capability },
      )
  for (const [name, value] of Object.entries(spec.env))
    if (!envName.test(name) || value.includes('\0'))
      throw refuse(`The environment variable ${JSON.stringify(name)} can't be set.`)
  if (engine.runtimes.length > 0 && !engine.runtimes.includes('runc'))
    throw refuse(
      `The engine has no runtime runc (it has ${engine.runtimes.join(', ')}); the sealed network needs one that shares the host's kernel.`,
    )
  if (!isAbsolute(spec.initPath)) throw refuse(`The init "${spec.initPath}" is no absolute path.`)
  if (spec.workdir !== undefined && !isAbsolute(spec.workdir))
    throw refuse(`The working directory "${spec.workdir}" is no absolute path.`)
  checkMounts(spec)
}

function checkMounts(spec: ContainerSpec): void {
  const targets = new Set<string>()
  const all = [
    ...spec.readOnlyMounts,
    ...(spec.scratchMounts ?? []).map(({ target }) => ({ source: null, target })),
  ]
  for (const { source, target } of all) {
    if (!isAbsolute(target) || target === '/')
      throw refuse(`A mount can't go to "${target}": give an absolute path without "..".`)
    if (
      isUnder(target, '/.closedbook') ||
      ['/proc', '/sys', '/dev'].some((top) => isUnder(target, top))
    )
      throw refuse(`A mount can't go to "${target}": that place is taken.`)
    if (targets.has(target)) throw refuse(`Two mounts go to "${target}".`)
    targets.add(target)
    if (source !== null) checkSource(source, spec.mountRoots)
  }
}

function checkSource(source: string, roots: readonly string[]): void {
  if (!isAbsolute(source)) throw refuse(`The mount source "${source}" is no absolute path.`)
  if (engineSocket.test(source))
    throw refuse(`"${source}" looks like an engine's socket; a sandbox never gets one.`, { source })
  if (!roots.some((root) => root !== '/' && isUnder(source, root)))
    throw refuse(
      `The mount source "${source}" lies outside what may be mounted (${roots.join(', ') || 'nothing'}).`,
      { source },
    )
  const tree = hostTrees.find((top) => isUnder(source, top))
  if (tree !== undefined && !roots.some((root) => isUnder(root, tree) && root !== tree))
    throw refuse(`The mount source "${source}" is a part of the host's ${tree}.`, { source })
}

/** The half of the check that needs the disk: what a source really is, links followed. */
export async function checkMountSources(spec: ContainerSpec): Promise<void> {
  const roots = await Promise.all(spec.mountRoots.map((root) => realpath(root).catch(() => root)))
  await Promise.all(
    spec.readOnlyMounts.map(async ({ source }) => {
      const real = await realpath(source).catch(() => {
        throw refuse(`The mount source "${source}" does not exist.`, { source })
      })
      checkSource(real, roots)
      const stat = await lstat(real)
      if (!stat.isFile() && !stat.isDirectory())
        throw refuse(`The mount source "${source}" is neither a file nor a directory.`, { source })
    }),
  )
}

function isAbsolute(path: string): boolean {
  return path.startsWith('/') && !path.includes('\0') && posix.normalize(path) === path
}

function isUnder(path: string, top: string): boolean {
  return path === top || path.startsWith(`${top}/`)
}
