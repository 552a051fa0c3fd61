/**
 * The file of a lease's exchanges: one RecordedCall a line, in the order in which the calls started, whichever ended
 * first. A call that has a number gets a line. Once a write failed, no call is let through any more.
 */
import { open, type FileHandle } from 'node:fs/promises'
import type { RecordedCall } from '../protocol/recording.ts'

export class ExchangeLog {
  readonly #file: FileHandle
  readonly #ended = new Map<number, string>()
  #next: number
  #writing: Promise<void> = Promise.resolve()
  #failure: unknown = null

  private constructor(file: FileHandle, first: number) {
    this.#file = file
    this.#next = first
  }

  /** `first`: number of the first call that is appended, those before it being there. */
  static async open(path: string, first = 0): Promise<ExchangeLog> {
    return new ExchangeLog(await open(path, 'a', 0o600), first)
  }

  get failure(): unknown {
    return this.#failure
  }

  /** Resolves when the lines of what has ended are written, or `failure` says that one is not. */
  written(): Promise<void> {
    return this.#writing
  }

  append(call: RecordedCall): void {
    this.#ended.set(call.n, `${JSON.stringify(call)}\n`)
    for (;;) {
      const line = this.#ended.get(this.#next)
      if (line === undefined) return
      this.#ended.delete(this.#next)
      this.#next += 1
      this.#writing = this.#writing.then(() => this.#write(line))
    }
  }

  async #write(line: string): Promise<void> {
    try {
      if (this.#failure === null) await this.#file.appendFile(line)
    } catch (error) {
      this.#failure = error
    }
  }

  /** Resolves when every line of ended calls is on disk, or `failure` says why one is not. */
  async close(): Promise<void> {
    await this.#writing
    try {
      await this.#file.sync()
      await this.#file.close()
    } catch (error) {
      this.#failure ??= error
    }
  }
}
