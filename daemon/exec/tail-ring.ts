/** The last `capacity` bytes of a stream; memory grows only as far as it is used. */
const firstRingBytes = 64 * 1024

export class TailRing {
  readonly #capacity: number
  #ring = Buffer.alloc(0)
  #end = 0
  #length = 0

  constructor(capacity: number) {
    this.#capacity = capacity
  }

  get length(): number {
    return this.#length
  }

  push(bytes: Buffer): void {
    const kept = bytes.subarray(Math.max(0, bytes.length - this.#capacity))
    if (kept.length === 0) return
    this.#grow(this.#length + kept.length)
    const first = Math.min(kept.length, this.#ring.length - this.#end)
    kept.copy(this.#ring, this.#end, 0, first)
    kept.copy(this.#ring, 0, first)
    this.#end = (this.#end + kept.length) % this.#ring.length
    this.#length = Math.min(this.#ring.length, this.#length + kept.length)
  }

  last(count: number): Buffer {
    if (count === 0) return Buffer.alloc(0)
    const start = (this.#end - count + this.#ring.length) % this.#ring.length
    return start < this.#end
      ? Buffer.from(this.#ring.subarray(start, this.#end))
      : Buffer.concat([this.#ring.subarray(start), this.#ring.subarray(0, this.#end)])
  }

  #grow(wanted: number): void {
    if (this.#ring.length >= Math.min(wanted, this.#capacity)) return
    const size = Math.min(this.#capacity, Math.max(wanted * 2, firstRingBytes))
    const grown = Buffer.allocUnsafe(size)
    const kept = this.last(this.#length)
    kept.copy(grown)
    this.#ring = grown
    this.#end = kept.length % size
  }
}
