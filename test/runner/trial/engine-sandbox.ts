/** Sandboxes of a real engine, hardened as a lease's are, without a daemon between: exec and archives directly. */
import { randomBytes } from 'node:crypto'
import { tmpdir } from 'node:os'
import { Readable } from 'node:stream'
import {
  execStartSchema,
  type ExecEnd,
  type ExecStartInput,
} from '../../../daemon/protocol/exec-frames.ts'
import { runExec } from '../../../daemon/exec/exec.ts'
import { resourcesSchema } from '../../../daemon/protocol/lease.ts'
import { buildImages } from '../../../images/build.ts'
import type { ExecIo, Sandbox } from '../../../runner/trial/sandbox.ts'
import { testEngine, type TestEngine } from '../../support/engine.ts'

export class EngineSandbox implements Sandbox {
  readonly lease: string
  readonly #engine: TestEngine['engine']

  constructor(engine: TestEngine['engine'], id: string) {
    this.lease = id
    this.#engine = engine
  }

  exec(start: ExecStartInput, io: ExecIo = {}): Promise<ExecEnd> {
    const stdin = Buffer.isBuffer(io.stdin) ? Readable.from([io.stdin]) : io.stdin
    return runExec(this.#engine, this.lease, execStartSchema.parse(start), {
      execId: randomBytes(8).toString('hex'),
      cgroup: null,
      onOutput: (stream, _offset, bytes) => {
        const copy = Buffer.from(bytes)
        if (stream === 'stdout') io.onStdout?.(copy)
        else io.onStderr?.(copy)
      },
      ...(stdin === undefined ? {} : { stdin }),
      ...(io.signal === undefined ? {} : { signal: io.signal }),
    })
  }

  async readArchive(path: string, options: { signal?: AbortSignal } = {}) {
    const { stat, tar } = await this.#engine.readArchive(this.lease, path, options)
    return { kind: stat.kind, tar }
  }

  writeArchive(path: string, tar: Readable, options: { signal?: AbortSignal } = {}): Promise<void> {
    return this.#engine.writeArchive(this.lease, path, tar, options)
  }

  /** Runs a bash script that must succeed. */
  async sh(script: string): Promise<string> {
    const said: Buffer[] = []
    const note = (bytes: Buffer): number => said.push(bytes)
    const end = await this.exec(
      { argv: ['/bin/bash', '-c', script] },
      { onStdout: note, onStderr: note },
    )
    const text = Buffer.concat(said).toString()
    if (JSON.stringify(end.exit) !== '{"code":0}')
      throw new Error(`${script}\n${JSON.stringify(end.exit)} ${text}`)
    return text
  }
}

export interface TrialEngine extends AsyncDisposable {
  readonly engine: TestEngine
  /** A sandbox of the image with git, Python and pytest, or of one made from it by `image`. */
  sandbox(options?: { image?: string; user?: string }): Promise<EngineSandbox & AsyncDisposable>
  /** The image with a script run in it. */
  image(script: string): Promise<string>
}

export async function trialEngine(): Promise<TrialEngine> {
  const engine = await testEngine()
  const { 'sglang-cpu': built } = await buildImages(['sglang-cpu'], {
    engine: engine.engine,
    stateDir: tmpdir(),
  })
  const images: string[] = []
  return {
    engine,
    async sandbox(options = {}) {
      const container = await engine.container({
        image: options.image ?? built.id,
        workdir: '/',
        env: { PATH: '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin' },
        resources: resourcesSchema.parse({ memoryBytes: 1024 ** 3, pids: 256 }),
        ...(options.user === undefined ? {} : { user: options.user }),
      })
      const sandbox = new EngineSandbox(engine.engine, container.id)
      return Object.assign(sandbox, {
        [Symbol.asyncDispose]: () => container[Symbol.asyncDispose](),
      })
    },
    async image(script) {
      const { pack } = await import('tar-stream')
      const context = pack()
      context.entry({ name: 'make.sh', mode: 0o755 }, script)
      context.entry(
        { name: 'Dockerfile' },
        `FROM ${built.tag}\nCOPY make.sh /make.sh\nRUN bash -e /make.sh && rm /make.sh\n`,
      )
      context.finalize()
      const tag = `closedbook-test/trial:${randomBytes(6).toString('hex')}`
      const image = await engine.engine.buildImage({
        context: Readable.from(context as AsyncIterable<Buffer>),
        tag,
        network: 'none',
      })
      images.push(tag)
      return image.id
    },
    async [Symbol.asyncDispose]() {
      for (const tag of images) await engine.engine.removeImage(tag)
      await engine[Symbol.asyncDispose]()
    },
  }
}
