/**
 * A real daemon process with a state directory of its own, on the tests' engine; and the real command line against it.
 * Dispose ends the daemon, which closes its leases, and removes the directory.
 */
import { spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { nodeFlags } from '../../daemon/bin/node-flags.mjs'
import { DaemonClient } from '../../daemon/protocol/client.ts'
import { ensureTools } from '../../images/tools.ts'
import { stopCluster } from '../../runner/store/cluster.ts'

const root = fileURLToPath(new URL('../..', import.meta.url))
const startMs = 30_000

export interface CliResult {
  readonly code: number | null
  readonly signal: NodeJS.Signals | null
  readonly stdout: string
  readonly stderr: string
}

export interface CliOptions {
  readonly input?: string
  readonly env?: NodeJS.ProcessEnv
  readonly cwd?: string
  /** Told the process, so that a test can signal it. */
  readonly onSpawn?: (child: ChildProcess) => void
  readonly timeoutMs?: number
}

export class TestDaemon implements AsyncDisposable {
  readonly stateDir: string
  readonly client: DaemonClient
  readonly engineSocket: string
  readonly #config: object
  readonly #within: readonly string[]
  #process: ChildProcess | null = null
  /** What it wrote to stdout and stderr, over all its starts. */
  log = ''

  private constructor(
    stateDir: string,
    engineSocket: string,
    config: object,
    within: readonly string[],
  ) {
    this.stateDir = stateDir
    this.engineSocket = engineSocket
    this.client = new DaemonClient(path.join(stateDir, 'daemon.sock'))
    this.#config = config
    this.#within = within
  }

  /**
   * `config` is the daemon's configuration file (see docs/configuration.md); `within` a command that becomes the daemon,
   * such as one that enters a namespace first.
   */
  static async open(
    engineSocket: string,
    config: object = {},
    { within = [] }: { readonly within?: readonly string[] } = {},
  ): Promise<TestDaemon> {
    const stateDir = await mkdtemp(path.join(os.tmpdir(), 'cbt-'))
    const daemon = new TestDaemon(stateDir, engineSocket, config, within)
    await ensureTools(stateDir, {})
    await daemon.start()
    return daemon
  }

  get pid(): number {
    return this.#process?.pid ?? 0
  }

  async start(): Promise<void> {
    const file = path.join(this.stateDir, 'daemon.yaml')
    await writeFile(file, JSON.stringify(this.#config))
    const [program, ...before] = [...this.#within, process.execPath]
    const child = spawn(
      program,
      [
        ...before,
        ...nodeFlags(),
        '--no-warnings',
        path.join(root, 'daemon', 'bin', 'closedbookd.mjs'),
        ...['--config', file, '--state-dir', this.stateDir],
        ...['--engine-socket', this.engineSocket],
      ],
      { stdio: ['ignore', 'pipe', 'pipe', 'ipc'] },
    )
    this.#process = child
    const from = this.log.length
    child.stdout?.on('data', (chunk: Buffer) => (this.log += chunk.toString()))
    child.stderr?.on('data', (chunk: Buffer) => (this.log += chunk.toString()))
    const ready = once(child, 'message', { signal: AbortSignal.timeout(startMs) })
    const ended = once(child, 'exit').then(() => {
      throw new Error(`the daemon ended at once:\n${this.log.slice(from)}`)
    })
    await Promise.race([ready, ended])
    ended.catch(() => {})
  }

  /** SIGKILL, as a crash or the kernel's memory killer would end it. */
  async kill(): Promise<void> {
    const child = this.#process
    if (child === null) return
    const gone = once(child, 'exit')
    child.kill('SIGKILL')
    await gone
    this.#process = null
  }

  async stop(): Promise<void> {
    const child = this.#process
    if (child === null || child.exitCode !== null) return
    const gone = once(child, 'exit')
    child.kill('SIGTERM')
    await gone
    this.#process = null
  }

  /** Runs `closedbook ARGS` against this daemon. */
  async cli(args: readonly string[], options: CliOptions = {}): Promise<CliResult> {
    const child = spawn(
      process.execPath,
      ['--no-warnings', path.join(root, 'runner', 'bin', 'closedbook.mjs'), ...args],
      {
        stdio: ['pipe', 'pipe', 'pipe'],
        cwd: options.cwd ?? root,
        env: {
          ...process.env,
          CLOSEDBOOK_STATE_DIR: this.stateDir,
          CLOSEDBOOK_ENGINE_SOCKET: this.engineSocket,
          NO_COLOR: '1',
          ...options.env,
        },
      },
    )
    options.onSpawn?.(child)
    child.stdin.on('error', () => {})
    child.stdin.end(options.input ?? '')
    const output = { stdout: '', stderr: '' }
    child.stdout.on('data', (chunk: Buffer) => (output.stdout += chunk.toString()))
    child.stderr.on('data', (chunk: Buffer) => (output.stderr += chunk.toString()))
    const limit = setTimeout(() => child.kill('SIGKILL'), options.timeoutMs ?? 240_000)
    const [code, signal] = (await once(child, 'close')) as [number | null, NodeJS.Signals | null]
    clearTimeout(limit)
    return { code, signal, ...output }
  }

  /** The same, parsed: the last line of stdout as JSON. */
  async json(args: readonly string[], options: CliOptions = {}): Promise<unknown> {
    const result = await this.cli([...args, '--json'], options)
    const line = result.stdout.trim().split('\n').at(-1) ?? ''
    try {
      return JSON.parse(line)
    } catch {
      throw new Error(
        `closedbook ${args.join(' ')} printed no JSON (exit ${result.code}):\n${result.stdout}\n${result.stderr}`,
      )
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop()
    await this.client[Symbol.asyncDispose]()
    await stopCluster(this.stateDir)
    await rm(this.stateDir, { recursive: true, force: true })
  }
}
