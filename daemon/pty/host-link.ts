/**
 * The daemon's end of its pty-host: starts it with the first session, finds it again after a restart, hears its events,
 * and tells when it is lost. One that speaks another protocol is ended before anything else is done.
 */
import { spawn } from 'node:child_process'
import { closeSync, openSync } from 'node:fs'
import { mkdir, readFile } from 'node:fs/promises'
import http from 'node:http'
import module from 'node:module'
import type { Socket } from 'node:net'
import path from 'node:path'
import { json } from 'node:stream/consumers'
import { setTimeout as delay } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { nodeFlags } from '../bin/node-flags.mjs'
import { isLive } from '../engine/cgroup.ts'
import { ClosedbookError, HostError } from '../errors.ts'
import type { Logger } from '../logger.ts'
import type { Blame } from '../protocol/errors.ts'
import { wireErrorSchema } from '../protocol/lease.ts'
import { HandOver } from './hand-over.ts'
import {
  heartbeatPatienceMs,
  hostEventSchema,
  hostHelloSchema,
  hostProtocol,
  type HandedViewer,
  type HostEvent,
  type HostHello,
} from './host-protocol.ts'

const main = fileURLToPath(new URL('../pty-host/main.ts', import.meta.url))
/** A flood is many short-lived buffers, which only a collection of the young gives back: often, and small ones. */
const memoryFlags = ['--max-semi-space-size=1']
const startMs = 20_000
const pollMs = 20
const endMs = 15_000
const helloMs = 5_000
const newHelloMs = 1_000
/** One that is to end, and doesn't hear of it by then, hangs. */
const hearsMs = 3_000
const askMs = 60_000

export interface HostLinkOptions {
  /** `<state dir>/pty` */
  readonly directory: string
  readonly engineSocket: string
  /** The engine's command line up to `exec`, where sessions go through that; null: over its API. */
  readonly engineCommand: readonly string[] | null
  readonly logLevel: string
  readonly onEvent: (event: HostEvent) => void
  /** The host ended, or hangs, and not because it was asked to. */
  readonly onLost: (pid: number) => void
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

class HostAnswerError extends ClosedbookError {}

export class HostLink implements AsyncDisposable {
  readonly socketPath: string
  readonly #options: HostLinkOptions
  readonly #agent = new http.Agent({ keepAlive: true, maxSockets: 64 })
  #connecting: Promise<void> | null = null
  #finding: Promise<boolean> | null = null
  #events: http.IncomingMessage | null = null
  #pid = 0
  /** To the host, where this daemon started it. */
  #handOver: HandOver | null = null
  #closed = false

  constructor(options: HostLinkOptions) {
    this.#options = options
    this.socketPath = path.join(options.directory, 'host.sock')
  }

  get connected(): boolean {
    return this.#events !== null
  }

  /** The host of an earlier daemon; false where there is none, or it hangs. */
  async find(patienceMs = helloMs): Promise<boolean> {
    // Two who look at once would both listen, and hear each event twice.
    this.#finding ??= this.#find(patienceMs).finally(() => (this.#finding = null))
    return this.#finding
  }

  async #find(patienceMs: number): Promise<boolean> {
    if (this.#events !== null) return true
    const hello = await this.#hello(patienceMs)
    if (hello === null) return false
    this.#pid = hello.pid
    if (hello.protocol === hostProtocol) {
      await this.#listen()
      return true
    }
    this.#options.log.warn(hello, 'pty-host.other-version')
    await this.#end(hello.pid)
    return false
  }

  /** Starts it if need be. */
  async require(): Promise<void> {
    if (this.#events !== null) return
    this.#connecting ??= this.#connect().finally(() => (this.#connecting = null))
    await this.#connecting
  }

  /** Bounded, for what asks may be the end of a lease. */
  async ask(
    method: string,
    pathname: string,
    { body, withinMs = askMs }: { body?: object; withinMs?: number } = {},
  ): Promise<unknown> {
    const text = body === undefined ? undefined : JSON.stringify(body)
    const { promise, resolve, reject } = Promise.withResolvers<http.IncomingMessage>()
    const request = http.request({
      socketPath: this.socketPath,
      agent: this.#agent,
      method,
      path: pathname,
      signal: AbortSignal.timeout(withinMs),
      headers: text === undefined ? {} : { 'content-type': 'application/json' },
    })
    request.once('response', resolve)
    request.once('error', reject)
    request.end(text)
    const { response, answer } = await promise
      .then(async (response) => ({ response, answer: await json(response) }))
      .catch((error: unknown) => {
        throw this.#silent(error)
      })
    if ((response.statusCode ?? 500) < 400) return answer
    const { code, blame, message } = wireErrorSchema.parse(answer)
    throw new HostAnswerError(code, blame as Blame, message)
  }

  /** False: it can't be given away. */
  give(viewer: HandedViewer, socket: Socket): boolean {
    return this.#handOver?.give(viewer, socket) === true
  }

  /** A host of this link with that pid lives; it may hang. */
  async isHost(pid: number): Promise<boolean> {
    if (!isLive(pid)) return false
    const words = await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '')
    return words.split('\0').includes(this.socketPath)
  }

  /** For one that hangs: what it holds is told as lost, and it must not wake up and go on with it. */
  async kill(pid: number): Promise<void> {
    if (!(await this.isHost(pid))) return
    try {
      process.kill(pid, 'SIGKILL')
      this.#options.log.warn({ pid }, 'pty-host.killed')
    } catch {
      // It ended just now.
    }
  }

  #silent(cause?: unknown): HostError {
    return new HostError(
      'tool_missing',
      'infra',
      `the process that holds PTY sessions does not answer; it is replaced within a minute: try again then, ${path.join(this.#options.directory, 'host.log')} may say why`,
      { cause },
    )
  }

  async #connect(): Promise<void> {
    if (await this.find()) return
    // Its socket is not taken from it before what it holds is told as lost.
    if (await this.isHost(this.#pid)) throw this.#silent()
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
    this.#handOver = new HandOver(child)
    closeSync(output)
    const ended = { yes: false }
    child.once('exit', () => (ended.yes = true))
    child.on('error', () => (ended.yes = true))
    const deadline = performance.now() + startMs
    while (!ended.yes && performance.now() < deadline) {
      if (await this.find(newHelloMs)) return
      await delay(pollMs)
    }
    throw new HostError(
      'tool_missing',
      'infra',
      `the process that holds PTY sessions did not start; ${path.join(directory, 'host.log')} says why`,
    )
  }

  async #hello(withinMs: number): Promise<HostHello | null> {
    const answer = await this.ask('GET', '/hello', { withinMs }).catch(() => null)
    const parsed = hostHelloSchema.safeParse(answer)
    return parsed.success ? parsed.data : null
  }

  async #listen(): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<http.IncomingMessage>()
    const request = http.get({ socketPath: this.socketPath, path: '/events', agent: false })
    request.once('response', resolve)
    request.once('error', reject)
    const late = setTimeout(() => request.destroy(new Error('no events')), helloMs)
    const events = await promise.finally(() => clearTimeout(late))
    request.on('error', () => {})
    events.on('error', () => {})
    this.#events = events
    const pid = this.#pid
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
      if (!this.#closed) this.#options.onLost(pid)
    })
  }

  #hear(line: string): void {
    const parsed = hostEventSchema.safeParse(JSON.parse(line))
    if (parsed.success) this.#options.onEvent(parsed.data)
  }

  /** Of its own accord if it can. */
  async #end(pid: number): Promise<void> {
    const hears = await this.ask('POST', '/shutdown', { withinMs: hearsMs }).then(
      () => true,
      () => false,
    )
    const deadline = performance.now() + (hears ? endMs : 0)
    while (performance.now() < deadline && isLive(pid)) await delay(pollMs)
    await this.kill(pid)
  }

  /** The daemon ends in order: the host has nothing left to hold. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#closed = true
    const pid = this.#events === null ? (await this.#hello(hearsMs))?.pid : this.#pid
    if (pid !== undefined) await this.#end(pid)
    this.#events?.destroy()
    this.#agent.destroy()
  }
}
