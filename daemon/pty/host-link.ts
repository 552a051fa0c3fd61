/**
 * The daemon's end of its pty-host: starts it with the first session, finds it again after a restart, hears its events,
 * and tells when it is lost. One that speaks another protocol is ended before anything else is done.
 */
import { spawn, type ChildProcess } from 'node:child_process'
import { closeSync, openSync } from 'node:fs'
import { mkdir } from 'node:fs/promises'
import http from 'node:http'
import module from 'node:module'
import type { Socket } from 'node:net'
import path from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { nodeFlags } from '../bin/node-flags.mjs'
import { ClosedbookError, HostError } from '../errors.ts'
import type { Logger } from '../logger.ts'
import type { Blame } from '../protocol/errors.ts'
import { wireErrorSchema } from '../protocol/lease.ts'
import {
  heartbeatPatienceMs,
  hostEventSchema,
  hostHelloSchema,
  hostProtocol,
  type HandedViewer,
  type HostEvent,
} from './host-protocol.ts'

const main = fileURLToPath(new URL('../pty-host/main.ts', import.meta.url))
/** A flood is many short-lived buffers, which only a collection of the young gives back: often, and small ones. */
const memoryFlags = ['--max-semi-space-size=1']
const startMs = 20_000
const pollMs = 20
const endMs = 15_000

export interface HostLinkOptions {
  /** `<state dir>/pty` */
  readonly directory: string
  readonly engineSocket: string
  /** The engine's command line up to `exec`, where sessions go through that; null: over its API. */
  readonly engineCommand: readonly string[] | null
  readonly logLevel: string
  readonly onEvent: (event: HostEvent) => void
  /** The host ended, and not because it was asked to. */
  readonly onLost: () => void
  readonly log: Logger
}

/** Of the daemon's own, which may hold keys of providers, the host gets nothing that it doesn't need. */
function hostEnvironment(): NodeJS.ProcessEnv {
  const cache = module.getCompileCacheDir?.()
  return {
    PATH: process.env['PATH'],
    HOME: process.env['HOME'],
    MALLOC_ARENA_MAX: '2',
    // The directory that was asked for; the one that is told has a name of its own below it.
    ...(cache === undefined ? {} : { NODE_COMPILE_CACHE: path.dirname(cache) }),
  }
}

/** What Node keeps to itself of a socket and gives no other way to. */
interface SocketInsides {
  /** Until the host says that it has the socket, this process would go on to read what is the host's. */
  _handle?: { readStop?: () => void } | null
  /** The end of that server would wait for what it gave away. */
  server?: unknown
}

class HostAnswerError extends ClosedbookError {}

export class HostLink implements AsyncDisposable {
  readonly socketPath: string
  readonly #options: HostLinkOptions
  readonly #agent = new http.Agent({ keepAlive: true, maxSockets: 64 })
  #connecting: Promise<void> | null = null
  #events: http.IncomingMessage | null = null
  /** The host, where this daemon started it. */
  #child: ChildProcess | null = null
  #closed = false

  constructor(options: HostLinkOptions) {
    this.#options = options
    this.socketPath = path.join(options.directory, 'host.sock')
  }

  get connected(): boolean {
    return this.#events !== null
  }

  /** The host of an earlier daemon; false where there is none. */
  async find(): Promise<boolean> {
    const hello = await this.#hello()
    if (hello === null) return false
    if (hello.protocol === hostProtocol) {
      await this.#listen()
      return true
    }
    this.#options.log.warn(hello, 'pty-host.other-version')
    await this.#end()
    return false
  }

  /** Starts it if need be. */
  async require(): Promise<void> {
    if (this.#events !== null) return
    this.#connecting ??= this.#connect().finally(() => (this.#connecting = null))
    await this.#connecting
  }

  async ask(method: string, pathname: string, body?: object): Promise<unknown> {
    const text = body === undefined ? undefined : JSON.stringify(body)
    const { promise, resolve, reject } = Promise.withResolvers<http.IncomingMessage>()
    const request = http.request({
      socketPath: this.socketPath,
      agent: this.#agent,
      method,
      path: pathname,
      headers: text === undefined ? {} : { 'content-type': 'application/json' },
    })
    request.once('response', resolve)
    request.once('error', reject)
    request.end(text)
    const response = await promise
    const chunks: Buffer[] = []
    for await (const chunk of response as AsyncIterable<Buffer>) chunks.push(chunk)
    const answer: unknown = JSON.parse(Buffer.concat(chunks).toString())
    if ((response.statusCode ?? 500) < 400) return answer
    const { code, blame, message } = wireErrorSchema.parse(answer)
    throw new HostAnswerError(code, blame as Blame, message)
  }

  /** The socket is the host's from here on, and this process sees no more of it; false: it can't be given away. */
  give(viewer: HandedViewer, socket: Socket & SocketInsides): boolean {
    if (this.#child?.connected !== true || socket._handle?.readStop === undefined) return false
    socket._handle.readStop()
    socket.server = null
    this.#child.send(viewer, socket, {}, () => socket.destroy())
    return true
  }

  async #connect(): Promise<void> {
    if (await this.find()) return
    const { directory, engineSocket, engineCommand, logLevel } = this.#options
    await mkdir(directory, { recursive: true, mode: 0o700 })
    const output = openSync(path.join(directory, 'host.log'), 'a', 0o600)
    const child = spawn(
      process.execPath,
      [
        '--no-warnings',
        ...memoryFlags,
        ...nodeFlags(),
        main,
        ...['--socket', this.socketPath, '--directory', directory],
        ...['--engine-socket', engineSocket, '--log-level', logLevel],
        ...(engineCommand ?? []).flatMap((word) => [`--engine-command=${word}`]),
      ],
      {
        detached: true,
        stdio: ['ignore', output, output, 'ipc'],
        cwd: '/',
        env: hostEnvironment(),
      },
    )
    child.unref()
    child.channel?.unref()
    this.#child = child
    closeSync(output)
    const ended = { yes: false }
    child.once('exit', () => (ended.yes = true))
    child.once('error', () => (ended.yes = true))
    const deadline = performance.now() + startMs
    while (!ended.yes && performance.now() < deadline) {
      if (await this.find()) return
      await delay(pollMs)
    }
    throw new HostError(
      'tool_missing',
      'infra',
      `the process that holds PTY sessions did not start; ${path.join(directory, 'host.log')} says why`,
    )
  }

  async #hello(): Promise<ReturnType<typeof hostHelloSchema.parse> | null> {
    const answer = await this.ask('GET', '/hello').catch(() => null)
    const parsed = hostHelloSchema.safeParse(answer)
    return parsed.success ? parsed.data : null
  }

  async #listen(): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<http.IncomingMessage>()
    const request = http.get({ socketPath: this.socketPath, path: '/events', agent: false })
    request.once('response', resolve)
    request.once('error', reject)
    const events = await promise
    request.on('error', () => {})
    events.on('error', () => {})
    this.#events = events
    let rest = ''
    // A host that hangs is as good as gone: its beat stops.
    const watchdog = setTimeout(() => events.destroy(), heartbeatPatienceMs).unref()
    events.setEncoding('utf8').on('data', (text: string) => {
      watchdog.refresh()
      const lines = (rest + text).split('\n')
      rest = lines.pop() ?? ''
      for (const line of lines) if (line !== '') this.#hear(line)
    })
    events.once('close', () => {
      clearTimeout(watchdog)
      if (this.#events !== events) return
      this.#events = null
      if (!this.#closed) this.#options.onLost()
    })
  }

  #hear(line: string): void {
    const parsed = hostEventSchema.safeParse(JSON.parse(line))
    if (parsed.success) this.#options.onEvent(parsed.data)
  }

  async #end(): Promise<void> {
    await this.ask('POST', '/shutdown').catch(() => {})
    const deadline = performance.now() + endMs
    while (performance.now() < deadline && (await this.#hello()) !== null) await delay(pollMs)
  }

  /** The daemon ends in order: the host has nothing left to hold. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#closed = true
    if (this.#events !== null || (await this.#hello()) !== null) await this.#end()
    this.#events?.destroy()
    this.#agent.destroy()
  }
}
