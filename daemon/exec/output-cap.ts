/**
 * Keeps the first half and the last half of an exec's output under one limit, counts all of it exactly, and knows the
 * offset of every byte that is delivered. The first half goes out at once; the last half when the exec is over.
 * Both streams share both halves; of the last half a stream gets what the other leaves, and at least a half.
 */
import type { OutputStream } from './demux.ts'
import { TailRing } from './tail-ring.ts'

export interface Delivery {
  readonly stream: OutputStream
  readonly offset: number
  readonly bytes: Buffer
}

/** Awaited: output that is not taken makes the command wait. `offset` counts the stream's own bytes. */
export type OnOutput = (stream: OutputStream, offset: number, bytes: Buffer) => void | Promise<void>

export interface StreamTotals {
  readonly totalBytes: number
  readonly droppedBytes: number
}

interface StreamState {
  total: number
  delivered: number
  readonly tail: TailRing
}

export class OutputCap {
  #headLeft: number
  readonly #tailBytes: number
  readonly #streams: Readonly<Record<OutputStream, StreamState>>

  /** `limitBytes` undefined: everything is delivered at once. */
  constructor(limitBytes: number | undefined) {
    this.#headLeft = limitBytes === undefined ? Infinity : Math.ceil(limitBytes / 2)
    this.#tailBytes = limitBytes === undefined ? 0 : Math.floor(limitBytes / 2)
    this.#streams = { stdout: this.#stream(), stderr: this.#stream() }
  }

  /** What of these bytes goes out now, or null. */
  push(stream: OutputStream, bytes: Buffer): Delivery | null {
    const state = this.#streams[stream]
    const offset = state.total
    state.total += bytes.length
    const live = bytes.subarray(0, Math.min(bytes.length, this.#headLeft))
    this.#headLeft -= live.length
    if (live.length < bytes.length) state.tail.push(bytes.subarray(live.length))
    if (live.length === 0) return null
    state.delivered += live.length
    return { stream, offset, bytes: live }
  }

  /** The last half, once. */
  finish(): Delivery[] {
    const { stdout, stderr } = this.#streams
    const half = Math.floor(this.#tailBytes / 2)
    const forStdout = Math.max(this.#tailBytes - half, this.#tailBytes - stderr.tail.length)
    const fromStdout = Math.min(stdout.tail.length, forStdout)
    return [
      ...this.#tailOf('stdout', fromStdout),
      ...this.#tailOf('stderr', this.#tailBytes - fromStdout),
    ]
  }

  totals(stream: OutputStream): StreamTotals {
    const { total, delivered } = this.#streams[stream]
    return { totalBytes: total, droppedBytes: total - delivered }
  }

  #tailOf(stream: OutputStream, atMost: number): Delivery[] {
    const state = this.#streams[stream]
    const bytes = state.tail.last(Math.min(state.tail.length, atMost))
    if (bytes.length === 0) return []
    state.delivered += bytes.length
    return [{ stream, offset: state.total - bytes.length, bytes }]
  }

  #stream(): StreamState {
    return { total: 0, delivered: 0, tail: new TailRing(this.#tailBytes) }
  }
}
