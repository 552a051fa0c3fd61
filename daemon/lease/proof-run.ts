/**
 * The program that runs the canaries in a sandbox. It is started before there is anything to prove and waits for them
 * on its input, so that its start goes on beside the sealing. Before the agent it runs as the agent's commands do: by
 * the engine's exec, with the capabilities and the seccomp filter of the container. After the agent nothing of the
 * sandbox's files can be relied on (an agent that removes /dev/null must not spoil its own trial), so it enters the
 * network namespace alone, without any capability.
 */
import { spawn } from 'node:child_process'
import { PassThrough } from 'node:stream'
import type { Cgroup } from '../engine/cgroup.ts'
import type { Engine } from '../engine/engine.ts'
import { runExec } from '../exec/exec.ts'
import { busyboxTarget } from '../engine/container-spec.ts'
import { LeaseError } from '../errors.ts'
import { canaryArgv, canaryProgram, type Canary } from '../network/proof.ts'
import { execStartSchema } from '../protocol/exec-frames.ts'

/** From the start of the program: the sealing is part of it. */
const limitMs = 20_000
const outputLimitBytes = 64 * 1024

const withoutPrivileges = [
  'setpriv',
  ...['--bounding-set=-all', '--inh-caps=-all', '--ambient-caps=-all', '--no-new-privs', '--'],
]

export class ProofRun {
  readonly #input = new PassThrough()
  readonly #output: Buffer[] = []
  readonly #busyboxPath: string
  readonly #ended: Promise<unknown>

  private constructor(busyboxPath: string, ended: (run: ProofRun) => Promise<unknown>) {
    this.#busyboxPath = busyboxPath
    this.#ended = ended(this)
    // Told to whoever waits for the output; a lease that fails before has a reason of its own.
    this.#ended.catch(() => {})
  }

  static inside(
    { engine, container }: { engine: Engine; container: string },
    {
      user,
      ...options
    }: { execId: string; user: string; cgroup: Cgroup | null; signal: AbortSignal },
  ): ProofRun {
    const start = execStartSchema.parse({
      argv: canaryArgv(busyboxTarget),
      user,
      workdir: '/',
      stdin: true,
      timeoutMs: limitMs,
      outputLimitBytes,
    })
    return new ProofRun(busyboxTarget, (run) =>
      runExec(engine, container, start, {
        ...options,
        stdin: run.#input,
        onOutput: (stream, _offset, bytes) => {
          if (stream === 'stdout') run.#output.push(bytes)
        },
      }),
    )
  }

  static beside(
    { pid, busyboxPath }: { pid: number; busyboxPath: string },
    { signal }: { signal: AbortSignal },
  ): ProofRun {
    return new ProofRun(busyboxPath, async (run) => {
      const child = spawn(
        'nsenter',
        [`--net=/proc/${pid}/ns/net`, '--', ...withoutPrivileges, ...canaryArgv(busyboxPath)],
        {
          stdio: ['pipe', 'pipe', 'pipe'],
          env: {},
          cwd: '/',
          signal: AbortSignal.any([signal, AbortSignal.timeout(limitMs)]),
          killSignal: 'SIGKILL',
        },
      )
      let complaint = ''
      child.stderr.on('data', (chunk: Buffer) => (complaint += chunk.toString()))
      child.stdout.on('data', (chunk: Buffer) => run.#output.push(chunk))
      child.stdin.on('error', () => {})
      run.#input.pipe(child.stdin)
      await new Promise<void>((resolve, reject) => {
        child.once('error', reject)
        child.once('close', () => resolve())
      }).catch((error: unknown) => {
        throw new LeaseError(
          'proof_failed',
          'infra',
          `the canaries could not be run beside the sandbox: ${complaint.trim() || String(error)}`,
          { cause: error },
        )
      })
    })
  }

  /** Runs the canaries to their end; their output, for `judge`. */
  async run(list: readonly Canary[]): Promise<string> {
    this.#input.end(canaryProgram(list, this.#busyboxPath))
    await this.#ended
    return Buffer.concat(this.#output).toString()
  }
}
