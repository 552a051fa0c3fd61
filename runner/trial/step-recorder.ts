/** Follows the event streams of an execution's leases, folds them into steps, and writes each step as it completes. */
import { appendFile, writeFile } from 'node:fs/promises'
import { RemoteError } from '../../daemon/protocol/errors.ts'
import type { PtyView } from '../../daemon/protocol/pty.ts'
import { worksInside } from '../harness/harness.ts'
import type { Trajectory } from '../harness/trajectory.ts'
import { StepLog, stepLine, type Step } from '../step-log.ts'
import type { ExecutionContext } from './context.ts'
import { evidenceNames } from './evidence.ts'
import { delay, type HeldLease } from './held-lease.ts'

const findAgainMs = 100
const settleMs = 30_000

export class StepRecorder implements AsyncDisposable {
  readonly #context: ExecutionContext
  readonly #log: StepLog
  readonly #inside: boolean
  readonly #stop = new AbortController()
  readonly #following: Promise<void>[] = []
  readonly #leases: string[]
  readonly #onGone: () => void
  readonly #next = new Map<string, number>()
  #writing: Promise<void> = Promise.resolve()
  #terminal: Pick<PtyView, 'lease' | 'pty'> | null = null

  private constructor(context: ExecutionContext, leases: string[], onGone: () => void) {
    this.#context = context
    this.#inside = worksInside(context.configuration.harness)
    this.#log = new StepLog({ commandsFromCalls: this.#inside })
    this.#onGone = onGone
    this.#leases = leases
    for (const lease of leases) {
      const following = this.#follow(lease)
      // Waited for at the end; until then a fault of ours must not end this process, with all its other trials.
      following.catch(() => {})
      this.#following.push(following)
    }
  }

  /** `onGone`: a lease has ended under the agent, which nobody here asked for. */
  static async open(
    context: ExecutionContext,
    harness: HeldLease | null,
    onGone: () => void,
  ): Promise<StepRecorder> {
    await context.evidence.write(evidenceNames.steps, '')
    return new StepRecorder(
      context,
      [context.leases.task, ...(harness === null ? [] : [harness.lease])],
      onGone,
    )
  }

  /** The task's lease may not be admitted yet when this begins. */
  async #follow(lease: string): Promise<void> {
    const { client } = this.#context
    const { signal } = this.#stop
    while (!signal.aborted)
      try {
        const from = this.#next.get(lease) ?? 1
        for await (const { seq, time, event } of client.events(lease, {
          from,
          follow: true,
          signal,
        })) {
          this.#next.set(lease, seq + 1)
          this.#take(this.#log.add({ time, event }))
          if (event.type === 'model.call' && event.status < 300) void this.#mark(event.commands)
          if (event.type === 'state' && event.state === 'closing') this.#onGone()
        }
        await delay(findAgainMs, signal)
      } catch (error) {
        if (signal.aborted) return
        if (!(error instanceof RemoteError)) throw error
        await delay(findAgainMs, signal).catch(() => {})
      }
  }

  /** A mark where a step begins, in the recording of the harness's terminal; for people, so it may fail. */
  async #mark(commands: readonly string[]): Promise<void> {
    const { client } = this.#context
    const label = `step ${this.#log.steps.length}: ${firstLine(commands[0] ?? 'no command')}`
    try {
      if (this.#terminal === null) {
        const found = await Promise.all(this.#leases.map((lease) => client.ptys(lease)))
        this.#terminal = found.flat().find(({ role }) => role === 'harness') ?? null
      }
      if (this.#terminal !== null)
        await client.markPty(this.#terminal.lease, this.#terminal.pty, label)
    } catch {
      // See above.
    }
  }

  #take(steps: readonly Step[]): void {
    if (steps.length === 0) return
    const { evidence, watch } = this.#context
    this.#writing = this.#writing.then(() =>
      appendFile(evidence.path(evidenceNames.steps), steps.map(stepLine).join('')),
    )
    this.#writing.catch(() => {})
    for (const step of steps) watch.step(step)
  }

  /**
   * Takes what is still under way, writes the last steps, and returns all. `account`: the harness's own, which tells of
   * a harness in the sandbox what nobody else saw.
   */
  async finish(account: Pick<Trajectory, 'steps'> | null): Promise<readonly Step[]> {
    const { client } = this.#context
    this.#stop.abort()
    await Promise.allSettled(this.#following)
    const wait = { signal: AbortSignal.timeout(settleMs) }
    for (const lease of this.#leases) {
      const from = this.#next.get(lease) ?? 1
      try {
        for await (const { time, event } of client.events(lease, { from, ...wait }))
          this.#take(this.#log.add({ time, event }))
      } catch (error) {
        // Steps are a record for people; what is late in it is no reason to lose a trial.
        if (!wait.signal.aborted && !(error instanceof RemoteError)) throw error
      }
    }
    this.#take(this.#log.end())
    await this.#writing
    if (this.#inside && account !== null) {
      this.#log.complete(account.steps)
      // Only now is known how they ended.
      const { evidence } = this.#context
      await writeFile(evidence.path(evidenceNames.steps), this.#log.steps.map(stepLine).join(''))
    }
    return this.#log.steps
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort()
    await Promise.allSettled(this.#following)
    await this.#writing.catch(() => {})
  }
}

const firstLine = (text: string): string => (text.trim().split('\n')[0] ?? '').slice(0, 120)
