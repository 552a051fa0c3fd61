/**
 * A signal that aborts with its parent or after a time, and that lets go of both when it is disposed. What
 * `AbortSignal.any` makes of a parent and a timeout stays until the time has passed, with every socket that hangs on
 * it: at 200 requests a second the garbage collector then had 20 kB a request to carry along.
 */
export class Deadline implements Disposable {
  readonly #own = new AbortController()
  readonly #parent: AbortSignal
  readonly #timer: NodeJS.Timeout
  readonly #onAbort = (): void => this.#own.abort(this.#parent.reason)
  #passed = false

  constructor(parent: AbortSignal, limitMs: number) {
    this.#parent = parent
    this.#timer = setTimeout(() => {
      this.#passed = true
      this.#own.abort(new DOMException(`nothing within ${limitMs} ms`, 'TimeoutError'))
    }, limitMs)
    parent.addEventListener('abort', this.#onAbort, { once: true })
    if (parent.aborted) this.#onAbort()
  }

  get signal(): AbortSignal {
    return this.#own.signal
  }

  /** Whether it was the time that ran out. */
  get passed(): boolean {
    return this.#passed
  }

  [Symbol.dispose](): void {
    clearTimeout(this.#timer)
    this.#parent.removeEventListener('abort', this.#onAbort)
  }
}
