/**
 * Watches the bytes that a sandbox has added to its file system (its overlay's upper directory) and acts when they pass
 * the limit, again and again while they stay beyond it. Where the engine keeps no such directory there is nothing to
 * watch, and the lease says so.
 */
import { diskUsage } from './disk-usage.ts'

/** A file system has so many files at most, too, and all sandboxes share it. */
const maxFiles = 1_000_000
/** Looking takes no more of the host than one part in so many. */
const restFactor = 10

export interface DiskWatchOptions {
  readonly limitBytes: number
  /** Looks only while this says so: a sandbox in which nothing runs writes nothing. */
  readonly active: () => boolean
  /** `used` in words. */
  readonly onLimit: (used: string) => void
  readonly intervalMs?: number
}

export class DiskWatch implements Disposable {
  #timer: NodeJS.Timeout | null = null
  #closed = false
  hit = false

  constructor(directory: string | null, options: DiskWatchOptions) {
    const { limitBytes, active, onLimit, intervalMs = 2000 } = options
    if (directory === null) return
    const look = async (): Promise<void> => {
      if (!active()) return
      const used = await diskUsage(directory)
      if (used === null || this.#closed) return
      const words =
        used.bytes > limitBytes
          ? `${used.bytes} bytes; its limit is ${limitBytes}`
          : used.files > maxFiles
            ? `${used.files} files; the limit is ${maxFiles}`
            : null
      if (words === null) return
      this.hit = true
      onLimit(words)
    }
    const wait = (ms: number): void => {
      if (this.#closed) return
      this.#timer = setTimeout(() => {
        const from = performance.now()
        void look().finally(() =>
          wait(Math.max(intervalMs, restFactor * (performance.now() - from))),
        )
      }, ms)
      this.#timer.unref()
    }
    wait(intervalMs)
  }

  [Symbol.dispose](): void {
    this.#closed = true
    if (this.#timer !== null) clearTimeout(this.#timer)
  }
}
