/**
 * What `up` starts and `down` stops: a private engine where none answers, and the daemon in the background. Each is
 * recorded in <state dir>/up.json before the next is started, so that `down` finds it whatever happened.
 */
import { spawn } from 'node:child_process'
import { openSync } from 'node:fs'
import { readFile, rm } from 'node:fs/promises'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { z } from 'zod'
import { DaemonClient, type DaemonHealth } from '../../daemon/protocol/client.ts'
import { ensureTools } from '../../images/tools.ts'
import type { RunnerConfig } from '../config.ts'
import { RunnerError, type RunnerErrorCode } from '../errors.ts'
import { makeDirectory, writeJsonAtomic } from '../json-file.ts'
import { stopCluster } from '../store/cluster.ts'
import {
  engineAnswers,
  engineSocketIn,
  startPrivateEngine,
  stopPrivateEngine,
} from './private-engine.ts'
import { isAlive, processRecordSchema, recordOf, stopProcess } from './process-record.ts'

const daemonProgram = fileURLToPath(new URL('../../daemon/bin/closedbookd.mjs', import.meta.url))
const daemonStartMs = 30_000
const daemonGraceMs = 60_000

const startedSchema = z.strictObject({
  engine: processRecordSchema.nullable(),
  daemon: processRecordSchema.nullable(),
})
type Started = z.infer<typeof startedSchema>

const recordFile = (config: RunnerConfig): string => path.join(config.stateDir, 'up.json')

async function readStarted(config: RunnerConfig): Promise<Started> {
  const text = await readFile(recordFile(config), 'utf8').catch(() => null)
  const parsed = startedSchema.safeParse(text === null ? null : JSON.parse(text))
  return parsed.success ? parsed.data : { engine: null, daemon: null }
}

export interface Services {
  readonly health: DaemonHealth
  /** What this call started, and not somebody before. */
  readonly started: { readonly engine: boolean; readonly daemon: boolean }
}

export interface UpOptions {
  readonly config: RunnerConfig
  readonly say: (what: string) => void
  /** Configuration file of the daemon. */
  readonly daemonConfig?: string
}

export async function up({ config, say, daemonConfig }: UpOptions): Promise<Services> {
  await using client = new DaemonClient(config.socket)
  const running = await client.health().catch(() => null)
  if (running !== null) return { health: running, started: { engine: false, daemon: false } }
  await makeDirectory(config.stateDir, 0o711)
  const started = await readStarted(config)
  const { socket, record } = await findEngine(config, say)
  if (record !== null) started.engine = record
  await writeJsonAtomic(recordFile(config), started)
  await ensureTools(config.stateDir, {})
  say('starting the daemon')
  const log = path.join(config.stateDir, 'daemon.log')
  const output = openSync(log, 'a', 0o600)
  const child = spawn(
    process.execPath,
    [
      '--no-warnings',
      daemonProgram,
      ...['--state-dir', config.stateDir, '--engine-socket', socket],
      ...(daemonConfig === undefined ? [] : ['--config', path.resolve(daemonConfig)]),
    ],
    {
      detached: true,
      stdio: ['ignore', output, output],
      env: { ...process.env, CLOSEDBOOK_SOCKET: config.socket },
    },
  )
  child.unref()
  const ended: { code: number | null } = { code: null }
  child.once('exit', (code) => (ended.code = code ?? 1))
  started.daemon = child.pid === undefined ? null : await recordOf(child.pid)
  await writeJsonAtomic(recordFile(config), started)
  const deadline = performance.now() + daemonStartMs
  while (ended.code === null && performance.now() < deadline) {
    const health = await client.health().catch(() => null)
    if (health !== null) return { health, started: { engine: record !== null, daemon: true } }
    await new Promise((resolve) => setTimeout(resolve, 50))
  }
  const tail = (await readFile(log, 'utf8').catch(() => '')).trim().split('\n').slice(-3).join('\n')
  throw new RunnerError(
    errorOfExit[ended.code ?? 0] ?? 'daemon_unreachable',
    'operator',
    `the daemon did not start${ended.code === null ? ` within ${daemonStartMs / 1000} s` : ''}; the end of its log ${log}:\n${tail}`,
  )
}

/** The daemon's own exit statuses that say what is wrong; see daemon/main.ts. */
const errorOfExit: Readonly<Record<number, RunnerErrorCode>> = {
  77: 'not_root',
  78: 'config_invalid',
}

/** An engine that answers, in this order: DOCKER_HOST, a private one, the host's; else a private one is started. */
async function findEngine(
  config: RunnerConfig,
  say: (what: string) => void,
): Promise<{ socket: string; record: Started['engine'] }> {
  const named = process.env['CLOSEDBOOK_ENGINE_SOCKET'] ?? process.env['DOCKER_HOST']
  if (named !== undefined && named !== '') {
    const socket = named.replace(/^unix:\/\//, '')
    if (!socket.startsWith('/'))
      throw new RunnerError(
        'config_invalid',
        'operator',
        `the engine ${named} is not on this host; the daemon works beside its engine, so name a unix socket`,
      )
    if (await engineAnswers(socket)) return { socket, record: null }
    throw new RunnerError(
      'engine_missing',
      'operator',
      `no engine answers on ${socket}, which the environment names; start it, or unset the variable`,
    )
  }
  for (const socket of [engineSocketIn(config.stateDir), '/var/run/docker.sock'])
    if (await engineAnswers(socket)) return { socket, record: null }
  say('starting a private container engine')
  return {
    socket: engineSocketIn(config.stateDir),
    record: await startPrivateEngine(config.stateDir),
  }
}

/** Stops the daemon and the engine, if `up` started them, and the store's cluster. Says what was stopped. */
export async function down(
  config: RunnerConfig,
): Promise<{ daemon: boolean; engine: boolean; store: boolean }> {
  const started = await readStarted(config)
  const stopped = { daemon: false, engine: false, store: false }
  if (started.daemon !== null && (await isAlive(started.daemon))) {
    await stopProcess(started.daemon, daemonGraceMs)
    stopped.daemon = true
  }
  if (started.engine !== null && (await isAlive(started.engine))) {
    await stopPrivateEngine(started.engine, config.stateDir)
    stopped.engine = true
  }
  stopped.store = await stopCluster(config.stateDir)
  await rm(recordFile(config), { force: true })
  return stopped
}
