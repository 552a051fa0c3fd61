/**
 * Cuts the engine's multiplexed stream into pieces of stdout and stderr. Iterative, so that ten thousand small frames in
 * one chunk are no deeper than one, and without copies: a piece is a view of the chunk.
 * Frame: stream u8 · 3 zero bytes · length u32 big-endian · bytes.
 */
import { EngineError } from '../errors.ts'

export type OutputStream = 'stdout' | 'stderr'

export interface Piece {
  /** `engine`: the engine's own words about a failure, by a stream of their own. */
  readonly stream: OutputStream | 'engine'
  readonly bytes: Buffer
}

const headerBytes = 8
const streamOf: Readonly<Record<number, Piece['stream']>> = {
  // 0 is stdin echoed; the engine never sends it, and its reference reader takes it for stdout.
  0: 'stdout',
  1: 'stdout',
  2: 'stderr',
  3: 'engine',
}

export class Demuxer {
  readonly #header = Buffer.alloc(headerBytes)
  #headerFilled = 0
  #left = 0
  #stream: Piece['stream'] = 'stdout'

  /** True inside a frame: a stream that ends here was cut. */
  get isInFrame(): boolean {
    return this.#left > 0 || this.#headerFilled > 0
  }

  #readHeader(chunk: Buffer, at: number): number {
    const copied = chunk.copy(
      this.#header,
      this.#headerFilled,
      at,
      at + headerBytes - this.#headerFilled,
    )
    this.#headerFilled += copied
    if (this.#headerFilled < headerBytes) return copied
    this.#headerFilled = 0
    const type = this.#header.readUInt8(0)
    const stream = streamOf[type]
    if (stream === undefined)
      throw new EngineError(
        'engine_refused',
        'infra',
        `The engine's exec stream is out of step (a frame of type ${type}).`,
      )
    this.#stream = stream
    this.#left = this.#header.readUInt32BE(4)
    return copied
  }

  *push(chunk: Buffer): Generator<Piece> {
    let at = 0
    while (at < chunk.length) {
      if (this.#left === 0) {
        at += this.#readHeader(chunk, at)
        continue
      }
      const end = Math.min(chunk.length, at + this.#left)
      this.#left -= end - at
      yield { stream: this.#stream, bytes: chunk.subarray(at, end) }
      at = end
    }
  }
}
