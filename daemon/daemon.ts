/**
 * The daemon as one object: the composition root of daemon/. Opens state, engine, journal and leases, reconciles
 * with what the last daemon left, then serves the lease API. Fail closed: what can't be enforced here isn't served.
 */
import { randomUUID } from 'node:crypto'
import { chmod, readFile, rm, statfs } from 'node:fs/promises'
import type http from 'node:http'
import net from 'node:net'
import os from 'node:os'
import path from 'node:path'
import { engineSocketOf, socketOf, type DaemonConfig } from './config.ts'
import { DockerEngine } from './engine/docker.ts'
import type { Engine, EngineInfo } from './engine/engine.ts'
import { egressSettings } from './egress-settings.ts'
import { HostError } from './errors.ts'
import { openHuggingFaceParts } from './hugging-face.ts'
import { GpuPool } from './gpu/pool.ts'
import { Admission } from './lease/admission.ts'
import { Bundles } from './lease/bundles.ts'
import { Journal, writeDurably } from './lease/journal.ts'
import { Leases } from './lease/leases.ts'
import { createLogger, type Logger } from './logger.ts'
import type { HostFacts } from './protocol/lease.ts'
import { Ptys } from './pty/ptys.ts'
import { Retention } from './retention.ts'
import { addAuditRoutes } from './server/audit-routes.ts'
import { addHostRoutes } from './server/host-routes.ts'
import { addLeaseRoutes } from './server/lease-routes.ts'
import { openFront, openGate } from './server/front.ts'
import { StreamSockets } from './server/numbered-stream.ts'
import { addPtyRoutes } from './server/pty-routes.ts'
import { Router } from './server/router.ts'
import { engineCommandOf, findTools } from './tools.ts'
import { makeDirectory } from './protocol/make-directory.ts'
import { packageVersion } from './protocol/version.ts'

const unusedBundleMs = 6 * 3_600_000

export class Daemon implements AsyncDisposable {
  readonly socket: string
  /** Resolves when somebody asked the daemon to end. */
  readonly ended: Promise<void>
  readonly #owned: AsyncDisposableStack

  private constructor(socket: string, ended: Promise<void>, owned: AsyncDisposableStack) {
    this.socket = socket
    this.ended = ended
    this.#owned = owned
  }

  static async open(config: DaemonConfig): Promise<Daemon> {
    if (process.getuid?.() !== 0)
      throw new HostError(
        'not_root',
        'operator',
        "the daemon enters sandboxes' network namespaces and must run as root; start it with sudo or as a service",
      )
    const log = createLogger({ level: config.logLevel })
    await using undo = new AsyncDisposableStack()
    const directories = await makeDirectories(config.stateDir)
    const socket = socketOf(config)
    const gate = await openGate(config.stateDir, log, undo)
    const router = new Router(log, gate)
    const server = router.createServer()
    const sockets = new Set<net.Socket>()
    server.on('connection', (one: net.Socket) => {
      sockets.add(one)
      one.once('close', () => sockets.delete(one))
    })
    undo.defer(() => closeServer(server, sockets))
    await claimSocket(socket)
    const tools = await findTools(config.stateDir)
    const engine = undo.use(await connect(engineSocketOf(config)))
    const engineInfo = await engine.info()
    const instance = await instanceId(config.stateDir)
    undo.use(await claimState(instance, config.stateDir))
    const journal = await Journal.open(directories.leases)
    const bundles = await Bundles.open(directories.bundles)
    const gpus = undo.use(
      await GpuPool.open(config.gpu, {
        engine,
        instance,
        accessor: { busyboxPath: tools.busyboxPath, directory: directories.nodes },
        log,
      }),
    )
    const cpus = engineInfo.cpus * config.capacity.cpuShare
    const huggingFace = await openHuggingFaceParts(config, undo)
    const ptys = undo.use(
      new Ptys({
        directory: path.join(config.stateDir, 'pty'),
        engineSocket: engineSocketOf(config),
        engineCommand: await engineCommandOf(config.pty, engineSocketOf(config)),
        logLevel: config.logLevel,
        log,
      }),
    )
    await ptys.find()
    const leases = undo.use(
      new Leases({
        engine,
        engineInfo,
        tools,
        instance,
        journal,
        bundles,
        directories,
        gpus,
        ptys,
        admission: new Admission({
          hostCpus: engineInfo.cpus,
          cpus,
          memoryBytes: engineInfo.memoryBytes * config.capacity.memoryFraction,
          leases: config.capacity.leases,
        }),
        egress: egressSettings(config),
        huggingFace,
        defaultDiskBytes: config.diskBytes,
        requireRoom: () => requireRoom(config, engineInfo),
        log,
      }),
    )
    await leases.reconcile()
    const sweep = (): void =>
      void bundles
        .sweep(unusedBundleMs)
        .catch((error: unknown) => log.warn({ err: error }, 'bundles.sweep-failed'))
    sweep()
    const sweeping = setInterval(sweep, unusedBundleMs)
    sweeping.unref()
    undo.defer(() => clearInterval(sweeping))
    undo.use(
      new Retention({
        days: config.retentionDays ?? null,
        closed: journal.closedDirectory,
        records: [
          ...[directories.audit, directories.events, directories.exchanges],
          path.join(config.stateDir, 'pty'),
        ],
        log,
      }),
    )
    const ended = Promise.withResolvers<void>()
    const streams = new StreamSockets()
    addLeaseRoutes(router, { leases, directories, streams })
    addPtyRoutes(router, { leases, journal, ptys })
    addAuditRoutes(router, { leases, journal, directory: directories.audit })
    addHostRoutes(router, {
      engine,
      bundles,
      gpus,
      facts: () => hostFacts(engineInfo, instance, gpus),
      health: () => ({
        status: 'ok',
        version: packageVersion,
        pid: process.pid,
        engine: engineInfo.version,
        engineSocket: engineSocketOf(config),
        stateDir: config.stateDir,
        leases: leases.list().length,
        url: front.url,
      }),
      shutdown: () => ended.resolve(),
    })
    const front = undo.use(
      await openFront(router, {
        ...{ config, gate, leases, gpus, engineRoot: engineInfo.dataRoot, log },
        cache: () => ({ ...huggingFace.cache.stats() }),
        ptys: () => ptys.counts(),
        streams,
      }),
    )
    await listen(server, socket)
    undo.defer(() => rm(socket, { force: true }))
    log.info({ socket, engine: engineInfo.version, version: packageVersion }, 'daemon.ready')
    return new Daemon(socket, ended.promise, undo.move())
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#owned.disposeAsync()
  }
}

async function connect(socketPath: string): Promise<Engine> {
  return DockerEngine.connect({ socketPath })
}

async function makeDirectories(
  stateDir: string,
): Promise<Record<'leases' | 'audit' | 'events' | 'exchanges' | 'bundles' | 'nodes', string>> {
  const directories = {
    leases: path.join(stateDir, 'leases'),
    audit: path.join(stateDir, 'audit'),
    events: path.join(stateDir, 'events'),
    exchanges: path.join(stateDir, 'exchanges'),
    bundles: path.join(stateDir, 'bundles'),
    nodes: path.join(stateDir, 'nodes'),
  }
  try {
    await makeDirectory(stateDir, 0o711)
    for (const directory of Object.values(directories)) await makeDirectory(directory, 0o711)
  } catch (error) {
    throw new HostError(
      'config_invalid',
      'operator',
      `cannot make the state directory ${stateDir}: ${(error as Error).message}; set stateDir to a place that can be written`,
      { cause: error },
    )
  }
  return directories
}

/** One daemon for a socket: a live one is named, what a dead one left is removed. */
async function claimSocket(socket: string): Promise<void> {
  const live = await new Promise<boolean>((resolve) => {
    const probe = net.connect(socket)
    probe.once('connect', () => resolve(true))
    probe.once('error', () => resolve(false))
    probe.once('close', () => probe.destroy())
    probe.once('connect', () => probe.destroy())
  })
  if (live)
    throw new HostError(
      'daemon_running',
      'operator',
      `a daemon already serves ${socket}; end it with \`closedbook down\`, or give this one a stateDir of its own`,
    )
  await rm(socket, { force: true }).catch((error: unknown) => {
    throw cannotListen(socket, error)
  })
}

const cannotListen = (socket: string, cause: unknown): HostError =>
  new HostError(
    'port_busy',
    'operator',
    `cannot listen on ${socket}: ${(cause as Error).message}; set socket to a path that can be made`,
    { cause },
  )

/**
 * One daemon for a state directory, whatever its socket: two would take each other's leases. The claim is a name in
 * the kernel that goes with the process, however it ends.
 */
async function claimState(instance: string, stateDir: string): Promise<AsyncDisposable> {
  const claim = net.createServer((socket) => socket.destroy())
  await new Promise<void>((resolve, reject) => {
    claim.once('error', reject)
    claim.listen(`\0closedbookd-${instance}`, resolve)
  }).catch((cause: unknown) => {
    throw new HostError(
      'daemon_running',
      'operator',
      `a daemon already works in ${stateDir}; end it with \`closedbook down\`, or give this one a stateDir of its own`,
      { cause },
    )
  })
  claim.unref()
  return {
    [Symbol.asyncDispose]: () => new Promise((resolve) => claim.close(() => resolve())),
  }
}

async function listen(server: http.Server, socket: string): Promise<void> {
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject)
    server.listen(socket, resolve)
  }).catch((error: unknown) => {
    throw cannotListen(socket, error)
  })
  await chmod(socket, 0o600)
}

/** Upgraded connections are no longer the HTTP server's to close, and it would wait for them. */
async function closeServer(server: http.Server, sockets: ReadonlySet<net.Socket>): Promise<void> {
  server.closeAllConnections()
  for (const socket of sockets) socket.destroy()
  await new Promise<void>((resolve) => server.close(() => resolve()))
}

/** Stays with the state directory, so that a restarted daemon knows its containers. */
async function instanceId(stateDir: string): Promise<string> {
  const file = path.join(stateDir, 'instance')
  const known = await readFile(file, 'utf8').catch(() => '')
  if (known.trim() !== '') return known.trim()
  const id = randomUUID()
  await writeDurably(file, `${id}\n`)
  return id
}

async function requireRoom(config: DaemonConfig, info: EngineInfo): Promise<void> {
  for (const directory of [config.stateDir, info.dataRoot]) {
    const { bavail, bsize } = await statfs(directory).catch(() => ({ bavail: Infinity, bsize: 1 }))
    if (bavail * bsize < config.minFreeBytes)
      throw new HostError(
        'disk_full',
        'operator',
        `${directory} has ${Math.round((bavail * bsize) / 1024 ** 2)} MiB free and a lease needs ` +
          `${Math.round(config.minFreeBytes / 1024 ** 2)}; free some room (docker image prune) or lower minFreeBytes`,
      )
  }
}

function hostFacts(info: EngineInfo, instance: string, gpus: GpuPool): HostFacts {
  return {
    name: os.hostname(),
    engine: info.version,
    kernel: info.kernel,
    cpus: info.cpus,
    memoryBytes: info.memoryBytes,
    cgroupVersion: info.cgroupVersion,
    closedbookVersion: packageVersion,
    instance,
    gpus: gpus.report().gpus.map(({ uuid, name, memoryBytes }) => ({ uuid, name, memoryBytes })),
  }
}

export type { Logger }
