/**
 * Between the engine's stream and the caller. Holds back a first short piece that ends the way the engine's own words
 * about a failed start do: whether it is such is only known at the end of the stream, by whether a process ever ran.
 * A command whose output merely looks so gets it delivered with its next output, at its end, or after a moment.
 */
import type { OutputStream } from './demux.ts'
import type { OnOutput, OutputCap } from './output-cap.ts'

const holdMs = 100
const holdBytes = 8 * 1024
const engineEnding = Buffer.from('\r\n')

interface Held {
  readonly stream: OutputStream
  readonly bytes: Buffer
}

export class OutputGate {
  readonly #cap: OutputCap
  readonly #onOutput: OnOutput
  #held: Held | null = null
  #timer: NodeJS.Timeout | undefined
  #first = true
  #flushing: Promise<void> = Promise.resolve()
  /** True once the caller threw: what follows is the caller's error, not the engine's. */
  failed = false

  constructor(cap: OutputCap, onOutput: OnOutput) {
    this.#cap = cap
    this.#onOutput = onOutput
  }

  async take(stream: OutputStream, bytes: Buffer): Promise<void> {
    if (this.#first) {
      this.#first = false
      if (bytes.length <= holdBytes && bytes.subarray(-2).equals(engineEnding)) {
        this.#held = { stream, bytes }
        this.#timer = setTimeout(() => {
          this.#flushing = this.#release()
          this.#flushing.catch(() => undefined)
        }, holdMs)
        return
      }
    }
    await this.#flushing
    await this.#release()
    await this.#deliver(stream, bytes)
  }

  /** What is still held back, as text; it is not delivered any more. */
  withheld(): string {
    clearTimeout(this.#timer)
    const text = this.#held?.bytes.toString('utf8').trim() ?? ''
    this.#held = null
    return text
  }

  /** Delivers what is held back and the last half of what was capped. */
  async finish(): Promise<void> {
    await this.#flushing
    await this.#release()
    for (const { stream, offset, bytes } of this.#cap.finish())
      await this.#call(stream, offset, bytes)
  }

  async #release(): Promise<void> {
    clearTimeout(this.#timer)
    const held = this.#held
    this.#held = null
    if (held !== null) await this.#deliver(held.stream, held.bytes)
  }

  async #deliver(stream: OutputStream, bytes: Buffer): Promise<void> {
    const now = this.#cap.push(stream, bytes)
    if (now !== null) await this.#call(now.stream, now.offset, now.bytes)
  }

  async #call(stream: OutputStream, offset: number, bytes: Buffer): Promise<void> {
    try {
      await this.#onOutput(stream, offset, bytes)
    } catch (thrown) {
      this.failed = true
      throw thrown
    }
  }
}
