/** Reproducible random values for property tests: mulberry32. */
export class Random {
  #state: number

  constructor(seed: number) {
    this.#state = seed
  }

  /** In [0, 1). */
  next(): number {
    this.#state = (this.#state + 0x6d2b79f5) | 0
    let t = Math.imul(this.#state ^ (this.#state >>> 15), 1 | this.#state)
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32
  }

  /** In low..high, both included. */
  int(low: number, high: number): number {
    return low + Math.floor(this.next() * (high - low + 1))
  }

  pick<T>(items: readonly T[]): T {
    const item = items[this.int(0, items.length - 1)]
    if (item === undefined) throw new RangeError('nothing to pick from')
    return item
  }

  /** Text of every kind of character, the troublesome ones more often. */
  text(length: number): string {
    const ranges: readonly (readonly [number, number])[] = [
      [0x20, 0x7e],
      [0, 0x1f],
      [0x7f, 0x9f],
      [0xa0, 0x2fff],
      [0x2028, 0x202e],
      [0xfeff, 0xfeff],
      [0xfffe, 0xffff],
      [0x1f300, 0x1faff],
      [0xd800, 0xdfff],
    ]
    let text = ''
    for (let n = 0; n < length; n++) {
      const [low, high] = this.pick(ranges)
      const code = this.int(low, high)
      text += code > 0xffff ? String.fromCodePoint(code) : String.fromCharCode(code)
    }
    return text
  }
}
