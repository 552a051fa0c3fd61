/**
 * Who types: one attachment at a time, or nobody. Free control is had for the asking; taken control is asked for, and its
 * holder grants it, releases it, or keeps it. A holder who goes away frees it for the one who asked first.
 */
export interface Controller {
  /** Of free or granted control: it has it now. */
  granted(): void
  /** Somebody else has it, and was asked. */
  waiting(): void
  /** Somebody asks this holder for it. */
  requested(): void
  lost(): void
}

export class ControlRule<T extends Controller> {
  #holder: T | null = null
  readonly #asking: T[] = []

  get holder(): T | null {
    return this.#holder
  }

  request(who: T): void {
    if (this.#holder === who) return
    if (this.#holder === null) {
      this.#give(who)
      return
    }
    if (!this.#asking.includes(who)) this.#asking.push(who)
    who.waiting()
    this.#holder.requested()
  }

  /** To the one who asked first; false where nobody asks, or `who` has nothing to give. */
  grant(who: T): boolean {
    if (this.#holder !== who || this.#asking.length === 0) return false
    this.#holder = null
    who.lost()
    this.#next()
    return true
  }

  release(who: T): void {
    const at = this.#asking.indexOf(who)
    if (at >= 0) this.#asking.splice(at, 1)
    if (this.#holder !== who) return
    this.#holder = null
    this.#next()
  }

  #next(): void {
    const next = this.#asking.shift()
    if (next !== undefined) this.#give(next)
  }

  #give(who: T): void {
    this.#holder = who
    who.granted()
  }
}
