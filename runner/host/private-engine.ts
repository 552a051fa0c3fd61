/**
 * A container engine of our own for hosts where none answers: dockerd with its own data root, socket and pid file,
 * without a bridge and without firewall rules, so that it changes nothing on the host. Its images stay in its data
 * root when it is stopped.
 */
import { spawn } from 'node:child_process'
import { accessSync, constants, existsSync, openSync } from 'node:fs'
import { mkdir, readFile, rm } from 'node:fs/promises'
import http from 'node:http'
import path from 'node:path'
import { RunnerError } from '../errors.ts'
import { recordOf, stopProcess, type ProcessRecord } from './process-record.ts'

const startLimitMs = 60_000
const stopGraceMs = 20_000

export const engineSocketIn = (stateDir: string): string =>
  path.join(stateDir, 'engine', 'docker.sock')

/** True when a container engine answers a ping on the socket. */
export async function engineAnswers(socketPath: string): Promise<boolean> {
  return new Promise((resolve) => {
    const request = http.get({ socketPath, path: '/_ping', timeout: 5000 }, (response) => {
      response.resume()
      resolve(response.statusCode === 200)
    })
    request.once('error', () => resolve(false))
    request.once('timeout', () => request.destroy())
  })
}

export function findProgram(name: string): string | null {
  const places = [...(process.env['PATH'] ?? '').split(':'), '/usr/sbin', '/sbin']
  for (const place of places) {
    const file = path.join(place, name)
    try {
      accessSync(file, constants.X_OK)
      return file
    } catch {
      continue
    }
  }
  return null
}

export async function startPrivateEngine(stateDir: string): Promise<ProcessRecord> {
  const program = findProgram('dockerd')
  if (program === null)
    throw new RunnerError(
      'engine_missing',
      'operator',
      'no container engine answers and dockerd is not installed; install it (Debian: apt-get install docker.io) or set DOCKER_HOST to an engine on this host',
    )
  if (process.getuid?.() !== 0)
    throw new RunnerError(
      'not_root',
      'operator',
      'no container engine answers, and only root can start one; run this as root, or start Docker',
    )
  const socketBytes = Buffer.byteLength(engineSocketIn(path.resolve(stateDir)))
  if (socketBytes > 107)
    throw new RunnerError(
      'engine_missing',
      'operator',
      `${engineSocketIn(stateDir)} has ${socketBytes} characters, and the path of a unix socket may have 107; choose a shorter --state-dir`,
    )
  await mountCgroups()
  const directory = path.join(stateDir, 'engine')
  await mkdir(directory, { recursive: true, mode: 0o711 })
  const pidFile = path.join(directory, 'pid')
  await rm(pidFile, { force: true })
  const logFile = path.join(directory, 'log')
  const log = openSync(logFile, 'a', 0o600)
  const socket = engineSocketIn(stateDir)
  const child = spawn(
    program,
    [
      ...['--data-root', path.join(directory, 'data'), '--exec-root', path.join(directory, 'exec')],
      ...['-H', `unix://${socket}`, '--pidfile', pidFile],
      ...['--bridge', 'none', '--iptables=false', '--ip6tables=false'],
    ],
    {
      detached: true,
      stdio: ['ignore', log, log],
      env: { ...process.env, PATH: engineProgramPath() },
    },
  )
  child.unref()
  const ended = new Promise<string>((resolve) => {
    child.once('error', (error) => resolve(error.message))
    child.once('exit', (code) => resolve(`status ${code}`))
  })
  const deadline = performance.now() + startLimitMs
  while (performance.now() < deadline) {
    if (await engineAnswers(socket)) {
      const record = child.pid === undefined ? null : await recordOf(child.pid)
      if (record !== null) return record
    }
    const early = await Promise.race([
      ended,
      new Promise<null>((resolve) => setTimeout(() => resolve(null), 100)),
    ])
    if (early !== null)
      throw new RunnerError(
        'engine_missing',
        'infra',
        `the private engine ended at once (${early}); the end of its log ${logFile}:\n${await lastLines(logFile)}`,
      )
  }
  child.kill('SIGKILL')
  throw new RunnerError(
    'engine_missing',
    'infra',
    `the private engine did not answer within ${startLimitMs / 1000} s; see ${logFile}`,
  )
}

/** Where neither an init system nor anybody else has mounted them, Debian's cgroupfs-mount does. */
async function mountCgroups(): Promise<void> {
  const mounts = await readFile('/proc/mounts', 'utf8')
  if (/^\S+ \/sys\/fs\/cgroup\S* cgroup2? /m.test(mounts)) return
  const program = findProgram('cgroupfs-mount')
  if (program === null) return
  const child = spawn(program, { stdio: 'ignore' })
  await new Promise<void>((resolve) => {
    child.once('error', () => resolve())
    child.once('exit', () => resolve())
  })
}

/** Ends it, and takes away the one mount that an engine leaves: its record of the host's network namespace. */
export async function stopPrivateEngine(record: ProcessRecord, stateDir: string): Promise<void> {
  await stopProcess(record, stopGraceMs)
  const mount = path.join(stateDir, 'engine', 'exec', 'netns', 'default')
  if (!existsSync(mount)) return
  const child = spawn('umount', [mount], { stdio: 'ignore' })
  await new Promise<void>((resolve) => {
    child.once('error', () => resolve())
    child.once('exit', () => resolve())
  })
}

/** dockerd looks for containerd, runc and mount tools on its PATH, and a user's often lacks sbin. */
const engineProgramPath = (): string =>
  [
    ...new Set([
      ...(process.env['PATH'] ?? '').split(':'),
      '/usr/sbin',
      '/usr/bin',
      '/sbin',
      '/bin',
    ]),
  ].join(':')

async function lastLines(file: string): Promise<string> {
  const text = await readFile(file, 'utf8').catch(() => '')
  return text.trim().split('\n').slice(-5).join('\n')
}
