/**
 * Sizes reach the engine one at a time, the newest wins: engines carry out resizes that are sent together in any order.
 * What could not be done (the program has ended, the container is paused) is no fault and changes nothing.
 */
import { clampSize } from '../protocol/pty.ts'

export interface Size {
  readonly cols: number
  readonly rows: number
}

export class Resizer {
  readonly #apply: (size: Size) => Promise<void>
  readonly #onSize: (size: Size) => void
  #current: Size
  #wanted: Size | null = null
  #busy = false
  #closed = false

  /** `onSize` hears of a size after it holds. */
  constructor(initial: Size, apply: (size: Size) => Promise<void>, onSize: (size: Size) => void) {
    this.#current = initial
    this.#apply = apply
    this.#onSize = onSize
  }

  get size(): Size {
    return this.#current
  }

  want({ cols, rows }: Size): void {
    this.#wanted = { cols: clampSize(cols), rows: clampSize(rows) }
    if (!this.#busy) void this.#run()
  }

  close(): void {
    this.#closed = true
  }

  async #run(): Promise<void> {
    this.#busy = true
    for (let next = this.#take(); next !== null; next = this.#take()) {
      const held = await this.#apply(next).then(
        () => true,
        () => false,
      )
      if (!held || this.#closed) continue
      this.#current = next
      this.#onSize(next)
    }
    this.#busy = false
  }

  #take(): Size | null {
    const wanted = this.#wanted
    this.#wanted = null
    if (wanted === null || this.#closed) return null
    return wanted.cols === this.#current.cols && wanted.rows === this.#current.rows ? null : wanted
  }
}
