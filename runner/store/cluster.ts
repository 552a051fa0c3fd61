/**
 * A PostgreSQL cluster of our own in <state dir>/pg, for hosts without DATABASE_URL: made and started by whoever needs
 * it first, left running for the next, stopped by `closedbook down`. It listens on a unix socket inside its own data
 * directory, which only its user and root can enter, and flushes what it commits. Several may start it at once: the
 * directory is made beside its place and renamed, and PostgreSQL's own lock lets one server live.
 * PostgreSQL refuses to run as root, and an unprivileged user often can't walk to the state directory; so root opens
 * the directory and the server is given the descriptor.
 */
import { spawn } from 'node:child_process'
import { closeSync, openSync } from 'node:fs'
import { chown, lstat, mkdir, readFile, readlink, realpath, rename, rm } from 'node:fs/promises'
import { randomBytes } from 'node:crypto'
import path from 'node:path'
import { RunnerError, messageOf, systemCode } from '../errors.ts'
import { isAlive, recordOf } from '../host/process-record.ts'
import { makeDirectory } from '../json-file.ts'
import { findPostgres, type PostgresPrograms } from './postgres-programs.ts'

export const clusterDirectory = (stateDir: string): string => path.join(stateDir, 'pg')
const logFile = (stateDir: string): string => path.join(stateDir, 'pg.log')

const role = 'closedbook'
const startLimitMs = 30_000
const stopLimitMs = 20_000
/** The descriptor of the data directory in the child. */
const inherited = '/proc/self/fd/3'

const settings: Readonly<Record<string, string>> = {
  listen_addresses: '',
  unix_socket_directories: '.',
  unix_socket_permissions: '0700',
  max_connections: '60',
  shared_buffers: '16MB',
  dynamic_shared_memory_type: 'mmap',
  max_wal_size: '128MB',
  wal_level: 'minimal',
  max_wal_senders: '0',
  max_parallel_workers: '0',
  jit: 'off',
  timezone: 'UTC',
  log_timezone: 'UTC',
}

/** How to connect. The descriptor makes the socket's path short, wherever the state directory is. */
export interface ClusterAddress {
  readonly host: string
  readonly user: string
  readonly database: string
  /** To be closed with the last connection. */
  readonly descriptor: number
}

/** Makes and starts what isn't there; resolves when it answers. */
export async function openCluster(
  stateDir: string,
  { signal }: { readonly signal?: AbortSignal | undefined } = {},
): Promise<ClusterAddress> {
  const directory = clusterDirectory(stateDir)
  const running = await addressOf(directory)
  if (running !== null) {
    if (await answers(running)) return running
    closeSync(running.descriptor)
  }
  const programs = await findPostgres(directory)
  if (!(await exists(path.join(directory, 'PG_VERSION')))) await make(programs, stateDir)
  return start(programs, stateDir, signal)
}

/** Whether a server lives in the directory; none is started. */
export async function clusterRuns(stateDir: string): Promise<boolean> {
  return (await serverPid(clusterDirectory(stateDir))) !== null
}

export const clusterExists = (stateDir: string): Promise<boolean> =>
  exists(path.join(clusterDirectory(stateDir), 'PG_VERSION'))

/** A fast shutdown: connections are cut, what was committed is kept. False when none ran. */
export async function stopCluster(stateDir: string): Promise<boolean> {
  const directory = clusterDirectory(stateDir)
  const pid = await serverPid(directory)
  if (pid === null) return false
  process.kill(pid, 'SIGINT')
  const deadline = performance.now() + stopLimitMs
  while ((await serverPid(directory)) === pid) {
    if (performance.now() > deadline) {
      process.kill(pid, 'SIGQUIT')
      break
    }
    await pause(20)
  }
  return true
}

/** The postmaster's, if it still works in this directory: a pid alone may be another's by now. */
async function serverPid(directory: string): Promise<number | null> {
  const text = await readFile(path.join(directory, 'postmaster.pid'), 'utf8').catch(() => '')
  const pid = Number(text.split('\n')[0])
  if (!Number.isInteger(pid) || pid <= 0) return null
  const cwd = await readlink(`/proc/${pid}/cwd`).catch(() => null)
  return cwd !== null && cwd === (await realpath(directory).catch(() => '')) ? pid : null
}

async function make({ initdb }: PostgresPrograms, stateDir: string): Promise<void> {
  await makeDirectory(stateDir, 0o711)
  const directory = clusterDirectory(stateDir)
  const fresh = `${directory}.${randomBytes(4).toString('hex')}`
  const user = await unprivileged()
  await mkdir(fresh, { mode: 0o700 })
  try {
    if (user !== null) await chown(fresh, user.uid, user.gid)
    const descriptor = openSync(fresh, 'r')
    try {
      const argv = ['-D', inherited, '-U', role, '-A', 'trust', '-E', 'UTF8', '--locale=C']
      const { code, output } = await finished(initdb, [...argv, '--no-instructions'], {
        user,
        descriptor,
      })
      if (code !== 0)
        throw new RunnerError(
          'store_unreachable',
          'infra',
          `a PostgreSQL cluster could not be made in ${directory} (initdb: status ${code}):\n${lastLines(output)}${hint(output)}`,
        )
    } finally {
      closeSync(descriptor)
    }
    await rename(fresh, directory).catch((error: unknown) => {
      // another was quicker, and its cluster is as good
      if (!['EEXIST', 'ENOTEMPTY'].includes(systemCode(error) ?? '')) throw error
    })
  } finally {
    await rm(fresh, { recursive: true, force: true })
  }
}

async function start(
  programs: PostgresPrograms,
  stateDir: string,
  signal: AbortSignal | undefined,
): Promise<ClusterAddress> {
  const directory = clusterDirectory(stateDir)
  const deadline = performance.now() + startLimitMs
  let server = await spawnServer(programs, stateDir)
  let why: string | null = null
  while (performance.now() < deadline) {
    signal?.throwIfAborted()
    const address = await addressOf(directory)
    if (address !== null) {
      if (await answers(address)) return address
      closeSync(address.descriptor)
    }
    // Ours may have ended because another's was quicker: then that one answers soon.
    why = await server.gone()
    if (why !== null && (await serverPid(directory)) === null) {
      if (!leftovers.test(await logEnd(stateDir))) break
      await pause(100)
      server = await spawnServer(programs, stateDir)
    }
    await pause(10)
  }
  const said = await logEnd(stateDir)
  throw new RunnerError(
    'store_unreachable',
    'infra',
    `the PostgreSQL cluster in ${directory} did not start (${why ?? `no answer in ${startLimitMs / 1000} s`}); the end of ${logFile(stateDir)}:\n${said}${hint(said)}`,
  )
}

/** Processes of a killed server, which end by themselves in a moment. */
const leftovers = /pre-existing shared memory block|lock file ".*" already exists|is being accessed/

/** Through a shell that ends at once, so that the server is nobody's child and outlives whoever started it. */
async function spawnServer(
  { postgres }: PostgresPrograms,
  stateDir: string,
): Promise<{ gone(): Promise<string | null> }> {
  const directory = clusterDirectory(stateDir)
  const { uid, gid } = await lstat(directory)
  const descriptor = openSync(directory, 'r')
  const log = openSync(logFile(stateDir), 'a', 0o600)
  const options = Object.entries(settings).flatMap(([name, value]) => ['-c', `${name}=${value}`])
  const argv = ['-c', '"$@" 4>&- & echo $! >&4', 'sh', postgres, '-D', inherited, ...options]
  const shell = spawn('/bin/sh', argv, {
    ...(process.getuid?.() === 0 ? { uid, gid } : {}),
    cwd: '/',
    env: environment(),
    detached: true,
    stdio: ['ignore', log, log, descriptor, 'pipe'],
  })
  closeSync(descriptor)
  closeSync(log)
  let said = ''
  shell.stdio[4]?.on('data', (chunk: Buffer) => (said += chunk.toString()))
  const failure = await new Promise<string | null>((resolve) => {
    shell.once('error', (error) => resolve(error.message))
    shell.once('close', () => resolve(null))
  })
  const record = failure === null ? await recordOf(Number(said)) : null
  return {
    gone: async () => {
      if (failure !== null) return failure
      return record !== null && (await isAlive(record)) ? null : 'it ended'
    },
  }
}

const logEnd = async (stateDir: string): Promise<string> =>
  lastLines(await readFile(logFile(stateDir), 'utf8').catch(() => ''))

async function addressOf(directory: string): Promise<ClusterAddress | null> {
  if ((await serverPid(directory)) === null) return null
  try {
    const descriptor = openSync(directory, 'r')
    const host = `/proc/self/fd/${descriptor}`
    return { host, user: role, database: 'postgres', descriptor }
  } catch {
    return null
  }
}

async function answers(address: ClusterAddress): Promise<boolean> {
  // most who import this file only stop a cluster
  const { default: pg } = await import('pg')
  const { host, user, database } = address
  const client = new pg.Client({ host, user, database, connectionTimeoutMillis: 5_000 })
  client.on('error', () => {})
  try {
    await client.connect()
    return true
  } catch {
    return false
  } finally {
    await client.end().catch(() => {})
  }
}

interface User {
  readonly uid: number
  readonly gid: number
}

/** Whom root starts the server as: PostgreSQL asks for a user with a name. */
async function unprivileged(): Promise<User | null> {
  if (process.getuid?.() !== 0) return null
  const lines = (await readFile('/etc/passwd', 'utf8')).split('\n').map((line) => line.split(':'))
  for (const name of ['postgres', 'nobody']) {
    const [, , uid, gid] = lines.find(([first]) => first === name) ?? []
    if (uid !== undefined && uid !== '0') return { uid: Number(uid), gid: Number(gid) }
  }
  throw new RunnerError(
    'store_unreachable',
    'operator',
    'PostgreSQL does not run as root, and this host has neither a user "postgres" nor "nobody"; add one, or name a server with DATABASE_URL',
  )
}

/** Nothing of ours: no PG… variable, no locale. */
const environment = (): NodeJS.ProcessEnv => ({ PATH: process.env['PATH'], LC_ALL: 'C', TZ: 'UTC' })

function finished(
  program: string,
  argv: readonly string[],
  { user, descriptor }: { user: User | null; descriptor: number },
): Promise<{ code: number | null; output: string }> {
  const child = spawn(program, argv, {
    ...user,
    cwd: '/',
    env: environment(),
    stdio: ['ignore', 'pipe', 'pipe', descriptor],
  })
  let output = ''
  child.stdout?.on('data', (chunk: Buffer) => (output += chunk.toString()))
  child.stderr?.on('data', (chunk: Buffer) => (output += chunk.toString()))
  return new Promise((resolve) => {
    child.once('error', (error) => resolve({ code: null, output: messageOf(error) }))
    child.once('close', (code) => resolve({ code, output }))
  })
}

const hint = (output: string): string =>
  /EACCES|[Pp]ermission denied/.test(output)
    ? '\nIts user must be able to run the programs of PostgreSQL; those of the system always can (Debian: apt-get install postgresql)'
    : ''

const lastLines = (text: string): string => text.trim().split('\n').slice(-5).join('\n')

const exists = (file: string): Promise<boolean> =>
  lstat(file).then(
    () => true,
    () => false,
  )

const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms))
