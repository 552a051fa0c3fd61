/**
 * The program that runs the canaries in a sandbox. It is started before there is anything to prove and waits for them
 * on its input, so that its start goes on beside the sealing. It runs as the agent's commands do: by the engine's
 * exec, with the capabilities and the seccomp filter of the container.
 */
import { PassThrough } from 'node:stream'
import type { Cgroup } from '../engine/cgroup.ts'
import type { Engine } from '../engine/engine.ts'
import { runExec } from '../exec/exec.ts'
import { canaryArgv, canaryProgram, type Canary } from '../network/proof.ts'
import { execStartSchema } from '../protocol/exec-frames.ts'

/** From the start of the program: the sealing is part of it. */
const limitMs = 20_000
const outputLimitBytes = 64 * 1024

export class ProofRun {
  readonly #input = new PassThrough()
  readonly #output: Buffer[] = []
  readonly #ended: Promise<unknown>

  private constructor(ended: (run: ProofRun) => Promise<unknown>) {
    this.#ended = ended(this)
    // Told to whoever waits for the output; a lease that fails before has a reason of its own.
    this.#ended.catch(() => {})
  }

  static start(
    { engine, container }: { engine: Engine; container: string },
    options: { execId: string; cgroup: Cgroup | null; signal: AbortSignal },
  ): ProofRun {
    const start = execStartSchema.parse({
      argv: canaryArgv,
      // The image's own directory may be gone when the agent has ended.
      workdir: '/',
      stdin: true,
      timeoutMs: limitMs,
      outputLimitBytes,
    })
    return new ProofRun((run) =>
      runExec(engine, container, start, {
        ...options,
        stdin: run.#input,
        onOutput: (stream, _offset, bytes) => {
          if (stream === 'stdout') run.#output.push(bytes)
        },
      }),
    )
  }

  /** Runs the canaries to their end; their output, for `judge`. */
  async run(list: readonly Canary[]): Promise<string> {
    this.#input.end(canaryProgram(list))
    await this.#ended
    return Buffer.concat(this.#output).toString()
  }
}
