/**
 * One shared stream of the engine's exec_die events: the only place where the true exit code of an exec can be had
 * after its stream broke. Reconnects from the last event seen, so that no death is missed while the engine lives.
 * What it does not do: it never decides that an exec is over because the stream is.
 */
import { setTimeout as delay } from 'node:timers/promises'
import type { Readable } from 'node:stream'
import { jsonLines } from './json-lines.ts'

export type OpenEvents = (sinceNanos: bigint, signal: AbortSignal) => Promise<Readable>

const retryMs = 200
/** After so long without the engine, those who wait are told that it is gone. */
const patienceMs = 15_000

export class ExecEvents {
  readonly #open: OpenEvents
  readonly #stop = new AbortController()
  readonly #waiting = new Map<string, (exitCode: number | null) => void>()
  #since = 0n
  #stream: Readable | null = null
  #running: Promise<void> = Promise.resolve()

  constructor(open: OpenEvents) {
    this.#open = open
  }

  /** Resolves when the engine has answered: deaths from now on are seen. */
  async start(): Promise<void> {
    this.#since = BigInt(Date.now()) * 1_000_000n
    this.#stream = await this.#open(this.#since, this.#stop.signal)
    this.#running = this.#follow()
  }

  /** Register before the exec is started. `forget` when nobody waits any more. */
  died(execId: string): { died: Promise<number | null>; forget: () => void } {
    const { promise, resolve } = Promise.withResolvers<number | null>()
    if (this.#stop.signal.aborted) resolve(null)
    else this.#waiting.set(execId, resolve)
    return { died: promise, forget: () => this.#settle(execId, null) }
  }

  async close(): Promise<void> {
    this.#stop.abort()
    // The driver's use of a signal ends with the response's headers.
    this.#stream?.destroy()
    await this.#running
    this.#giveUp()
  }

  #settle(execId: string, exitCode: number | null): void {
    this.#waiting.get(execId)?.(exitCode)
    this.#waiting.delete(execId)
  }

  #giveUp(): void {
    for (const execId of this.#waiting.keys()) this.#settle(execId, null)
  }

  async #follow(): Promise<void> {
    let lostAt: number | null = null
    while (!this.#stop.signal.aborted) {
      try {
        this.#stream ??= await this.#open(this.#since, this.#stop.signal)
        lostAt = null
        for await (const event of jsonLines(this.#stream)) this.#read(event)
      } catch {
        // The engine is restarting or gone; whoever needs it hears so from the call that needs it.
      }
      this.#stream = null
      if (this.#stop.signal.aborted) return
      lostAt ??= performance.now()
      if (performance.now() - lostAt > patienceMs) this.#giveUp()
      await delay(retryMs, undefined, { signal: this.#stop.signal }).catch(() => undefined)
    }
  }

  #read(event: Readonly<Record<string, unknown>>): void {
    const nanos = event['timeNano']
    // JSON numbers lose the last digits; one event read twice does no harm.
    if (typeof nanos === 'number') this.#since = BigInt(nanos)
    const attributes = (event['Actor'] as { Attributes?: Record<string, string> } | undefined)
      ?.Attributes
    const execId = attributes?.['execID']
    if (execId !== undefined) this.#settle(execId, Number(attributes?.['exitCode'] ?? Number.NaN))
  }
}
