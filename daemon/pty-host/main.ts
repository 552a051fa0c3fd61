/**
 * The pty-host: a process beside the daemon that holds the streams of all PTY sessions, so that they survive it. Started
 * by the daemon with the first session, detached. It ends when the daemon asks, or when no daemon listens and no session
 * runs; when its socket is gone, for then nobody can come back; and when no daemon has come back for long, with all
 * that it holds.
 */
import { chmodSync, rmSync, statSync } from 'node:fs'
import { parseArgs } from 'node:util'
import { DockerEngine } from '../engine/docker.ts'
import { createLogger } from '../logger.ts'
import { openDockerPty } from '../pty/docker-backend.ts'
import { Sessions, type StartProgram } from '../pty/sessions.ts'
import { HostServer } from './server.ts'

const lookEveryMs = 2_000
/** A restarting daemon is back by then. */
const lonelyMs = 10_000
const abandonedMs = 30 * 60_000

const { values } = parseArgs({
  options: {
    socket: { type: 'string' },
    directory: { type: 'string' },
    'engine-socket': { type: 'string' },
    'engine-command': { type: 'string', multiple: true },
    'log-level': { type: 'string', default: 'info' },
  },
})
const socket = values.socket ?? ''
const log = createLogger({ level: values['log-level'] })
// One session's trouble must not end the others.
process.on('uncaughtException', (error) => log.error({ err: error }, 'pty-host.uncaught'))
process.on('unhandledRejection', (error) => log.error({ err: error }, 'pty-host.unhandled'))
for (const name of ['SIGHUP', 'SIGINT', 'SIGPIPE'] as const) process.on(name, () => {})

const sessions = new Sessions(await programs(), values.directory ?? '')
const over = Promise.withResolvers<string>()
process.once('SIGTERM', () => over.resolve('SIGTERM'))
const host = new HostServer({ sessions, shutdown: () => over.resolve('asked'), log })
rmSync(socket, { force: true })
await new Promise<void>((resolve, reject) => {
  host.server.once('error', reject)
  host.server.listen(socket, resolve)
})
chmodSync(socket, 0o600)
// The channel to the daemon that started it: not to keep it alive, nor to end it.
process.on('message', (message, handle) => host.take(message, handle))
process.on('disconnect', () => host.dropHanded())
process.channel?.unref()
log.info({ socket, pid: process.pid }, 'pty-host.ready')

const inode = inodeOf(socket)
let lonelySince: number | null = performance.now()
let daemonAt = performance.now()
const look = setInterval(() => {
  if (inodeOf(socket) !== inode) over.resolve('the socket is gone')
  if (host.hasDaemon) daemonAt = performance.now()
  if (performance.now() - daemonAt > abandonedMs) over.resolve('abandoned')
  const lonely = !host.hasDaemon && sessions.running === 0
  lonelySince = lonely ? (lonelySince ?? performance.now()) : null
  if (lonelySince !== null && performance.now() - lonelySince > lonelyMs) over.resolve('lonely')
}, lookEveryMs)

const why = await over.promise
clearInterval(look)
log.info({ why }, 'pty-host.ending')
await sessions[Symbol.asyncDispose]()
if (inodeOf(socket) === inode) rmSync(socket, { force: true })
process.exit(0)

/** Over the engine's API, or by the command line that was named. */
async function programs(): Promise<StartProgram> {
  const command = values['engine-command']
  if (command === undefined) {
    const engine = await DockerEngine.connect({ socketPath: values['engine-socket'] ?? '' })
    return (spec) => openDockerPty(engine, spec)
  }
  const { openCliPty } = await import('../pty/cli-backend.ts')
  return (spec) => openCliPty(command, spec)
}

function inodeOf(file: string): number {
  try {
    return statSync(file).ino
  } catch {
    return 0
  }
}
