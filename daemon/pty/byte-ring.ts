/**
 * The last bytes that a session put out, by absolute offset. Bytes are copied into segments of its own, the first ones
 * small: a hundred quiet sessions cost next to nothing. Segments go round: a flood takes no new memory.
 */
export const ringBytes = 2 * 1024 * 1024
const segmentBytes = 64 * 1024
const firstSegmentBytes = 2 * 1024

interface Segment {
  readonly bytes: Buffer
  used: number
}

export class ByteRing {
  readonly #limit: number
  #segments: Segment[] = []
  #spare: Buffer | null = null
  /** Offset of the first byte of the first segment. */
  #start = 0
  #end = 0

  constructor(limitBytes: number = ringBytes) {
    this.#limit = limitBytes
  }

  /** Offset of the oldest byte that is still there. */
  get start(): number {
    return this.#start
  }

  /** Offset of the next byte to come: all there have been. */
  get end(): number {
    return this.#end
  }

  push(bytes: Uint8Array): void {
    for (let at = 0; at < bytes.length;) {
      const last = this.#room()
      const count = Math.min(bytes.length - at, last.bytes.length - last.used)
      last.bytes.set(bytes.subarray(at, at + count), last.used)
      last.used += count
      at += count
      this.#end += count
      this.#trim()
    }
  }

  /**
   * At most `limitBytes` from that offset on; empty at the end. Without a copy where one segment holds them, and good
   * until the next push.
   */
  read(offset: number, limitBytes: number): Buffer {
    if (offset < this.#start || offset > this.#end)
      throw new RangeError(`offset ${offset} is not within ${this.#start}…${this.#end}`)
    const parts: Buffer[] = []
    let segmentStart = this.#start
    let wanted = Math.min(limitBytes, this.#end - offset)
    let from = offset
    for (const { bytes, used } of this.#segments) {
      const segmentEnd = segmentStart + used
      if (from < segmentEnd && wanted > 0) {
        const part = bytes.subarray(
          from - segmentStart,
          Math.min(used, from - segmentStart + wanted),
        )
        parts.push(part)
        from += part.length
        wanted -= part.length
      }
      if (wanted === 0) break
      segmentStart = segmentEnd
    }
    const [only] = parts
    return parts.length === 1 && only !== undefined ? only : Buffer.concat(parts)
  }

  /** Where a reader who left bytes out may start again without landing inside of a line: after a newline near there. */
  lineStartFrom(offset: number, searchBytes = 8192): number {
    const from = Math.max(offset, this.#start)
    const newline = this.read(from, searchBytes).indexOf(0x0a)
    return newline < 0 ? from : from + newline + 1
  }

  #room(): Segment {
    const last = this.#segments.at(-1)
    if (last !== undefined && last.used < last.bytes.length) return last
    const size =
      last === undefined && this.#end === 0
        ? firstSegmentBytes
        : Math.min(segmentBytes, (last?.bytes.length ?? segmentBytes) * 4, this.#limit)
    const spare = this.#spare?.length === size ? this.#spare : null
    if (spare !== null) this.#spare = null
    const fresh = { bytes: spare ?? Buffer.allocUnsafeSlow(size), used: 0 }
    this.#segments.push(fresh)
    return fresh
  }

  /** Whole segments leave, as long as what stays is the limit at least. */
  #trim(): void {
    let first = this.#segments[0]
    while (
      first !== undefined &&
      this.#segments.length > 1 &&
      this.#end - this.#start - first.used >= this.#limit
    ) {
      this.#segments.shift()
      this.#spare = first.bytes
      this.#start += first.used
      first = this.#segments[0]
    }
  }
}
