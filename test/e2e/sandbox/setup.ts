/** What the tests of sandboxes share: a daemon on the tests' engine, leases of the SGLang image, and what stays behind. */
import { setTimeout as delay } from 'node:timers/promises'
import type { DockerEngine } from '../../../daemon/engine/docker.ts'
import { instanceLabel } from '../../../daemon/engine/labels.ts'
import type { ExecEnd, ExecStartInput } from '../../../daemon/protocol/exec-frames.ts'
import type { LeaseRequestInput } from '../../../daemon/protocol/lease.ts'
import { imageTags } from '../../../images/build.ts'
import type { AuditEvent } from '../../../policy/audit-event.ts'
import { TestDaemon } from '../../support/daemon.ts'
import { testEngine, type TestEngine } from '../../support/engine.ts'

export interface Ran {
  readonly end: ExecEnd
  /** stdout and stderr as they came. */
  readonly output: string
}

export class SandboxWorld implements AsyncDisposable {
  readonly daemon: TestDaemon
  readonly engine: DockerEngine
  /** Id of the SGLang task image: Python, curl, git, openssl. */
  readonly image: string
  readonly #owned: TestEngine

  private constructor(daemon: TestDaemon, owned: TestEngine, image: string) {
    this.daemon = daemon
    this.engine = owned.engine
    this.image = image
    this.#owned = owned
  }

  static async open(
    config: object = {},
    options: { readonly within?: readonly string[] } = {},
  ): Promise<SandboxWorld> {
    const engine = await testEngine()
    const { id } = await engine.engine.inspectImage(imageTags['sglang-cpu'])
    return new SandboxWorld(await TestDaemon.open(engine.socketPath, config, options), engine, id)
  }

  async lease(request: Partial<LeaseRequestInput> = {}): Promise<string> {
    const { lease } = await this.daemon.client.openLease({ image: this.image, ...request })
    return lease
  }

  async run(
    lease: string,
    argv: readonly string[],
    start: Partial<ExecStartInput> = {},
  ): Promise<Ran> {
    const output: Buffer[] = []
    const keep = (_offset: number, bytes: Buffer): void => void output.push(bytes)
    const end = await this.daemon.client.exec(
      lease,
      { ...start, argv: [...argv] },
      { onStdout: keep, onStderr: keep },
    )
    return { end, output: Buffer.concat(output).toString() }
  }

  /** Of a Python program; its last line is JSON. */
  async python(
    lease: string,
    program: string,
    args: readonly string[] = [],
    start: Partial<ExecStartInput> = {},
  ): Promise<unknown> {
    const { end, output } = await this.run(lease, ['python3', '-c', program, ...args], start)
    try {
      return JSON.parse(output.trim().split('\n').at(-1) ?? '')
    } catch {
      throw new Error(`${JSON.stringify(end)} and no JSON:\n${output}`)
    }
  }

  /** Events of a lease without those of our own proof. */
  async audit(lease: string): Promise<AuditEvent[]> {
    const events = await Array.fromAsync(this.daemon.client.audit(lease))
    return events.filter(({ canary }) => canary !== true)
  }

  /** Containers of this daemon that the engine knows, running or not. */
  async containers(): Promise<number> {
    const { instance } = await this.daemon.client.host()
    return (await this.engine.listContainers({ [instanceLabel]: instance })).length
  }

  /** Host pid of the lease's PID 1. */
  async pidOf(lease: string): Promise<number> {
    const found = await this.engine.listContainers({ 'closedbook.lease': lease })
    return found[0]?.pid ?? 0
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.daemon[Symbol.asyncDispose]()
    await this.#owned.dispose()
  }
}

/** Waits for a condition, with one deadline. */
export async function until<T>(
  what: string,
  look: () => Promise<T | null | undefined | false> | T | null | undefined | false,
  limitMs = 20_000,
): Promise<T> {
  const deadline = performance.now() + limitMs
  while (performance.now() < deadline) {
    const found = await look()
    if (found !== null && found !== undefined && found !== false) return found
    await delay(25)
  }
  throw new Error(`not within ${limitMs} ms: ${what}`)
}

/** `kind protocol target action reason`, the way a person reads an event. */
export const eventLine = (event: AuditEvent): string => {
  const { kind, protocol, host, address, port, reason, count, detail } = event
  const target = [host ?? '-', address ?? '-', port ?? '-'].join(' ')
  return `${kind} ${protocol} ${target} ${event.action} ${reason ?? 'none'} x${count}${detail === undefined ? '' : ` ${detail}`}`
}
