/** So many at once; the rest wait their turn, first come, first served. */
export class Slots {
  #free: number
  readonly #waiting: (() => void)[] = []

  constructor(count: number) {
    this.#free = count
  }

  /** Rejects when `signal` aborts before there is one. Dispose gives it back. */
  async take(signal: AbortSignal): Promise<Disposable> {
    signal.throwIfAborted()
    if (this.#free > 0) this.#free -= 1
    else await this.#wait(signal)
    let held = true
    return {
      [Symbol.dispose]: () => {
        if (!held) return
        held = false
        const next = this.#waiting.shift()
        if (next === undefined) this.#free += 1
        else next()
      },
    }
  }

  #wait(signal: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      const turn = (): void => {
        signal.removeEventListener('abort', abort)
        resolve()
      }
      const abort = (): void => {
        this.#waiting.splice(this.#waiting.indexOf(turn), 1)
        reject(signal.reason as Error)
      }
      this.#waiting.push(turn)
      signal.addEventListener('abort', abort, { once: true })
    })
  }
}
