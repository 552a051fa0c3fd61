/** An open object: whole on disk, or growing while it is fetched. Its bytes are read by position, as far as they are there. */
import type { FileHandle } from 'node:fs/promises'
import type { Flight } from './flight.ts'

/** From the disk; by a fetch of somebody else's; by a fetch of one's own. */
export type Origin = 'hit' | 'join' | 'miss'

export interface Artifact extends AsyncDisposable {
  readonly size: number
  readonly origin: Origin
  /**
   * How many bytes, from the first on, are there: more than `beyond`, which is waited for, unless that is all of it.
   * Rejects when the fetch has failed, and when `signal` aborts.
   */
  available(beyond: number, options: { signal: AbortSignal }): number | Promise<number>
  /** Bytes read, from `position` on; at most `length`. */
  read(buffer: Uint8Array, position: number, length: number): Promise<number>
}

export class StoredArtifact implements Artifact {
  readonly size: number
  readonly origin = 'hit'
  readonly #handle: FileHandle
  readonly #onClose: () => void
  #closed = false

  constructor(size: number, handle: FileHandle, onClose: () => void) {
    this.size = size
    this.#handle = handle
    this.#onClose = onClose
  }

  available(): number {
    return this.size
  }

  async read(buffer: Uint8Array, position: number, length: number): Promise<number> {
    const { bytesRead } = await this.#handle.read(buffer, 0, length, position)
    return bytesRead
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#closed) return
    this.#closed = true
    this.#onClose()
    await this.#handle.close()
  }
}

export class GrowingArtifact implements Artifact {
  readonly size: number
  readonly origin: Origin
  readonly #flight: Flight
  readonly #onClose: () => void
  #closed = false

  constructor(flight: Flight, origin: Origin, onClose: () => void) {
    this.size = flight.name.size
    this.origin = origin
    this.#flight = flight
    this.#onClose = onClose
  }

  available(beyond: number, { signal }: { signal: AbortSignal }): number | Promise<number> {
    const { readable } = this.#flight
    return readable > beyond || readable === this.size ? readable : this.#wait(beyond, signal)
  }

  read(buffer: Uint8Array, position: number, length: number): Promise<number> {
    return this.#flight.read(buffer, position, length)
  }

  async #wait(beyond: number, signal: AbortSignal): Promise<number> {
    signal.throwIfAborted()
    const aborted = Promise.withResolvers<never>()
    const abort = (): void => aborted.reject(signal.reason as Error)
    signal.addEventListener('abort', abort, { once: true })
    aborted.promise.catch(() => {})
    try {
      for (;;) {
        const { readable, failure, progress } = this.#flight
        if (readable > beyond || readable === this.size) return readable
        if (failure !== null) throw failure
        await Promise.race([progress, aborted.promise])
      }
    } finally {
      signal.removeEventListener('abort', abort)
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#closed) return
    this.#closed = true
    this.#onClose()
  }
}
