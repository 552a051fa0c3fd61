/**
 * One action that many wait for: each gets a run that began after its call, so that what it did before is seen, and
 * those who wait at the same time share one.
 */
export class NextRun {
  readonly #action: () => Promise<void>
  #running: Promise<void> | null = null
  #next: Promise<void> | null = null

  constructor(action: () => Promise<void>) {
    this.#action = action
  }

  async next(): Promise<void> {
    this.#next ??= this.#after(this.#running)
    await this.#next
  }

  async #after(running: Promise<void> | null): Promise<void> {
    await running?.catch(() => {})
    this.#next = null
    const own = this.#action()
    this.#running = own
    try {
      await own
    } finally {
      if (this.#running === own) this.#running = null
    }
  }
}
