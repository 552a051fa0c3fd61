/**
 * The world around the sandboxes of the escape suite: a network namespace for the host, in which the daemons run, and
 * behind its only way out another that is everything else. Both record what reaches them (recorder.ts), and both are
 * gone when their processes are.
 */
import { execFile, spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import type { Trouble } from '../support/hub.ts'
import type { Ask, Facts, Seen } from './recorder.ts'

const run = promisify(execFile)
const program = fileURLToPath(new URL('recorder.ts', import.meta.url))

class Recorder implements AsyncDisposable {
  readonly #process: ChildProcess

  private constructor(child: ChildProcess) {
    this.#process = child
  }

  static async open(): Promise<Recorder> {
    const child = spawn('unshare', ['--net', process.execPath, '--no-warnings', program], {
      stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
    })
    await once(child, 'message', { signal: AbortSignal.timeout(60_000) })
    return new Recorder(child)
  }

  get pid(): number {
    return this.#process.pid ?? 0
  }

  async ask<T>(ask: Ask): Promise<T> {
    const answered = once(this.#process, 'message', { signal: AbortSignal.timeout(60_000) })
    this.#process.send(ask)
    const [{ value, error }] = (await answered) as [{ value: T; error?: string }]
    if (error !== undefined) throw new Error(`${ask.do}: ${error}`)
    return value
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#process.exitCode !== null || this.#process.signalCode !== null) return
    const gone = once(this.#process, 'exit')
    this.#process.kill('SIGKILL')
    await gone
  }
}

export interface Sides {
  readonly outside: Seen
  readonly host: Seen
}

export class World implements AsyncDisposable {
  readonly facts: Facts
  /** Put before a command: it then runs on the host of this world, with its resolver. */
  readonly onHost: readonly string[]
  readonly #outside: Recorder
  readonly #host: Recorder
  readonly #owned: AsyncDisposableStack

  private constructor(
    parts: { facts: Facts; resolver: string; outside: Recorder; host: Recorder },
    owned: AsyncDisposableStack,
  ) {
    this.facts = parts.facts
    this.#outside = parts.outside
    this.#host = parts.host
    this.#owned = owned
    this.onHost = [
      ...['nsenter', `--net=/proc/${this.#host.pid}/ns/net`],
      ...['unshare', '--mount', '--propagation', 'slave', 'sh', '-ec'],
      'mount --bind "$0" /etc/resolv.conf; exec "$@"',
      parts.resolver,
    ]
  }

  static async open(): Promise<World> {
    await using undo = new AsyncDisposableStack()
    const scratch = await mkdtemp(path.join(tmpdir(), 'cbt-world-'))
    undo.defer(() => rm(scratch, { recursive: true, force: true }))
    const [key, cert, resolver] = ['key', 'cert', 'resolv.conf'].map((name) =>
      path.join(scratch, name),
    ) as [string, string, string]
    await writeFile(resolver, 'nameserver 198.51.100.53\n')
    const made = run('openssl', [
      ...['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes'],
      ...['-subj', '/CN=outside', '-days', '2', '-keyout', key, '-out', cert],
    ])
    const outside = undo.use(await Recorder.open())
    const host = undo.use(await Recorder.open())
    await made
    await run('ip', [
      ...['link', 'add', 'up0', 'netns', String(host.pid), 'type', 'veth'],
      ...['peer', 'name', 'out0', 'netns', String(outside.pid)],
    ])
    const pair = { key: await readFile(key, 'utf8'), cert: await readFile(cert, 'utf8') }
    await outside.ask({ do: 'open', as: 'outside', ...pair })
    const facts = await host.ask<Facts>({ do: 'open', as: 'host', ...pair })
    return new World({ facts, resolver, outside, host }, undo.move())
  }

  async seen(): Promise<Sides> {
    const ask = { do: 'seen' } as const
    return { outside: await this.#outside.ask(ask), host: await this.#host.ask(ask) }
  }

  /** What the Hub's file host does to its next request. */
  async trouble(trouble: Trouble): Promise<void> {
    await this.#host.ask({ do: 'trouble', trouble })
  }

  /** Runs a shell command on the host, outside of any sandbox; its output, or what went wrong. */
  async hostShell(command: string): Promise<string> {
    const [file = '', ...rest] = this.onHost
    try {
      return (await run(file, [...rest, 'bash', '-c', command], { timeout: 20_000 })).stdout
    } catch (error) {
      return String(error)
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#owned.disposeAsync()
  }
}
