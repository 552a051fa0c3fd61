/** The checks of `doctor`: each says what it found and, where something is amiss, what to do. */
import { access, readFile, statfs } from 'node:fs/promises'
import http from 'node:http'
import path from 'node:path'
import { DaemonClient } from '../../daemon/protocol/client.ts'
import type { GpuReport } from '../../daemon/protocol/gpu.ts'
import type { RunnerConfig } from '../config.ts'
import { clusterDirectory } from '../store/cluster.ts'
import { findPostgres } from '../store/postgres-programs.ts'
import { engineAnswers, engineSocketIn, findProgram } from './private-engine.ts'

export interface Check {
  readonly name: string
  readonly state: 'ok' | 'warn' | 'fail'
  readonly found: string
  readonly todo: string | null
}

const ok = (name: string, found: string): Check => ({ name, state: 'ok', found, todo: null })
const warn = (name: string, found: string, todo: string): Check => ({
  name,
  state: 'warn',
  found,
  todo,
})
const fail = (name: string, found: string, todo: string): Check => ({
  name,
  state: 'fail',
  found,
  todo,
})

export async function checkHost(config: RunnerConfig): Promise<Check[]> {
  const engine = await engineSocket(config)
  const checks = await Promise.all([
    checkEngine(engine),
    checkCgroup(),
    checkTool(config, 'catatonit', 'catatonit', ['/usr/bin/catatonit']),
    checkTool(config, 'busybox', 'busybox-static', ['/bin/busybox', '/usr/bin/busybox']),
    checkStore(config),
    checkDisk(config),
    checkDaemon(config),
    checkGpu(config),
  ])
  return [
    checkNode(),
    checkRoot(),
    checkProgram('nft', 'nftables', 'counts and refuses attempts inside the sandbox'),
    checkProgram('ip', 'iproute2', 'lays the route inside the sandbox'),
    checkProgram('nsenter', 'util-linux', "enters the sandbox's network namespace"),
    ...checks,
  ]
}

async function engineSocket(config: RunnerConfig): Promise<string | null> {
  const named = process.env['CLOSEDBOOK_ENGINE_SOCKET'] ?? process.env['DOCKER_HOST']
  const candidates =
    named === undefined || named === ''
      ? [engineSocketIn(config.stateDir), '/var/run/docker.sock']
      : [named.replace(/^unix:\/\//, '')]
  for (const socket of candidates) if (await engineAnswers(socket)) return socket
  return null
}

/** Whether jobs can be kept; a server that DATABASE_URL names is asked for when it is needed. */
async function checkStore(config: RunnerConfig): Promise<Check> {
  if (config.databaseUrl !== undefined) return ok('store', 'named by DATABASE_URL')
  const directory = clusterDirectory(config.stateDir)
  return findPostgres(directory).then(
    ({ postgres }) => ok('store', postgres),
    () =>
      fail(
        'store',
        'no PostgreSQL here that fits',
        'apt-get install postgresql (only its programs are used), or set DATABASE_URL to a server',
      ),
  )
}

function checkNode(): Check {
  const version = process.versions.node
  return Number(version.split('.')[0]) >= 24
    ? ok('node', version)
    : fail('node', version, 'Node 24 or newer is needed; `npm ci` brings it')
}

function checkRoot(): Check {
  return process.getuid?.() === 0
    ? ok('root', 'yes')
    : warn(
        'root',
        'no',
        'the daemon must run as root; commands that only talk to it need access to its socket',
      )
}

async function checkEngine(socket: string | null): Promise<Check> {
  if (socket === null && process.getuid?.() !== 0)
    return warn('engine', 'none answers to this user', 'run `closedbook doctor` as root')
  if (socket === null)
    return findProgram('dockerd') === null
      ? fail(
          'engine',
          'none answers and dockerd is not installed',
          'apt-get install docker.io, or set DOCKER_HOST to a unix socket',
        )
      : warn('engine', 'none answers', '`closedbook up` starts a private one')
  const version = await engineVersion(socket)
  const major = Number(version.split('.')[0])
  return major >= 20
    ? ok('engine', `${version} on ${socket}`)
    : warn(
        'engine',
        `${version} on ${socket}`,
        'only 20.10 and newer are tested; upgrade the engine',
      )
}

async function engineVersion(socketPath: string): Promise<string> {
  return new Promise((resolve) => {
    http
      .get({ socketPath, path: '/version', timeout: 5000 }, (response) => {
        let text = ''
        response.on('data', (chunk: Buffer) => (text += chunk.toString()))
        response.on('end', () => resolve((JSON.parse(text) as { Version?: string }).Version ?? '0'))
      })
      .once('error', () => resolve('0'))
  })
}

async function checkCgroup(): Promise<Check> {
  const mounts = await readFile('/proc/self/mountinfo', 'utf8').catch(() => '')
  const v2 = / \/sys\/fs\/cgroup [^\n]* - cgroup2 /.test(mounts)
  if (v2) return ok('cgroup', 'version 2')
  const controllers = ['memory', 'pids', 'cpu', 'freezer']
  const missing = controllers.filter(
    (name) => !new RegExp(` - cgroup [^\\n]*\\b${name}\\b`).test(mounts),
  )
  return missing.length === 0
    ? ok('cgroup', 'version 1')
    : fail(
        'cgroup',
        `version 1 without ${missing.join(', ')}`,
        'mount the missing controllers, or boot with cgroup version 2',
      )
}

function checkProgram(program: string, debian: string, why: string): Check {
  const file = findProgram(program)
  return file === null
    ? fail(program, 'not installed', `it ${why}: apt-get install ${debian}`)
    : ok(program, file)
}

async function checkTool(
  config: RunnerConfig,
  name: string,
  debian: string,
  places: readonly string[],
): Promise<Check> {
  for (const place of [path.join(config.stateDir, 'tools', name), ...places])
    if (
      await access(place).then(
        () => true,
        () => false,
      )
    )
      return ok(name, place)
  return warn(name, 'not here yet', `\`closedbook up\` brings it; or apt-get install ${debian}`)
}

async function checkDisk(config: RunnerConfig): Promise<Check> {
  let directory = config.stateDir
  while (directory !== '/') {
    const facts = await statfs(directory).catch(() => null)
    if (facts !== null) {
      const gib = (facts.bavail * facts.bsize) / 1024 ** 3
      const found = `${gib.toFixed(1)} GiB free at ${directory}`
      if (gib < 2)
        return fail(
          'disk',
          found,
          'a lease needs 1 GiB free and the sample images 4; free some room or set --state-dir',
        )
      return gib < 10
        ? warn('disk', found, 'the sample images need about 4 GiB')
        : ok('disk', found)
    }
    directory = path.dirname(directory)
  }
  return warn('disk', 'unknown', 'check the free room of the state directory')
}

async function checkDaemon(config: RunnerConfig): Promise<Check> {
  await using client = new DaemonClient(config.socket)
  try {
    const { version, pid, leases } = await client.health({ signal: AbortSignal.timeout(5000) })
    return ok('daemon', `${version}, pid ${pid}, ${leases} leases open`)
  } catch {
    return warn('daemon', `none answers on ${config.socket}`, 'closedbook up')
  }
}

/** The daemon's own inventory where one answers: it is what leases get. */
async function checkGpu(config: RunnerConfig): Promise<Check> {
  await using client = new DaemonClient(config.socket)
  const report = await client.gpus({ signal: AbortSignal.timeout(5000) }).catch(() => null)
  if (report !== null) return checkGpus(report)
  return findProgram('nvidia-smi') === null
    ? ok('gpu', 'none (no nvidia-smi): tasks for h100 are refused here')
    : warn('gpu', 'nvidia-smi is here', '`closedbook up`; a daemon looks at the GPUs')
}

export function checkGpus({ refusal, gpus, toolkit }: GpuReport): Check {
  if (refusal !== null)
    return warn('gpu', `${gpus.length} found, none lent`, `tasks for h100 are refused: ${refusal}`)
  if (gpus.length === 0) return ok('gpu', 'none lent: tasks for h100 are refused here')
  const unfit = gpus.filter(({ state }) => state === 'dirty' || state === 'quarantined')
  const found = `${gpus.length} found, toolkit ${toolkit ?? 'unknown'}`
  return unfit.length === 0
    ? ok('gpu', found)
    : warn(
        'gpu',
        `${found}, ${unfit.length} not lent`,
        unfit.map(({ uuid, state, reason }) => `${uuid} is ${state}: ${reason}`).join('; '),
      )
}
