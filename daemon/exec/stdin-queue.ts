/** Input from a client on its way to a command: counts what the command's side has taken, so that it can be acknowledged. */
import { Readable } from 'node:stream'

const highWaterMarkBytes = 64 * 1024

export class StdinQueue {
  readonly readable: Readable
  readonly #queue: Buffer[] = []
  readonly #onTaken: (totalBytes: number) => void
  #queuedBytes = 0
  #takenBytes = 0
  #wanted = false
  #ended = false

  constructor(onTaken: (totalBytes: number) => void) {
    this.#onTaken = onTaken
    this.readable = new Readable({
      highWaterMark: highWaterMarkBytes,
      read: () => {
        this.#wanted = true
        this.#move()
      },
    })
  }

  get queuedBytes(): number {
    return this.#queuedBytes
  }

  push(bytes: Buffer): void {
    if (this.#ended || this.readable.destroyed) return
    this.#queue.push(bytes)
    this.#queuedBytes += bytes.length
    this.#move()
  }

  end(): void {
    this.#ended = true
    this.#move()
  }

  #move(): void {
    let moved = false
    while (this.#wanted && this.#queue.length > 0) {
      const bytes = this.#queue.shift() as Buffer
      this.#queuedBytes -= bytes.length
      this.#takenBytes += bytes.length
      moved = true
      this.#wanted = this.readable.push(bytes)
    }
    if (this.#ended && this.#queue.length === 0 && !this.readable.readableEnded)
      this.readable.push(null)
    if (moved) this.#onTaken(this.#takenBytes)
  }
}
