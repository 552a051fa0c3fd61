/**
 * Watches the bytes that a sandbox has added to its file system (its overlay's upper directory) and acts when they pass
 * the limit, again and again while they stay beyond it. Where the engine keeps no such directory there is nothing to
 * watch, and the lease says so.
 */
import { execFile } from 'node:child_process'
import { promisify } from 'node:util'

const run = promisify(execFile)

/** A file system has so many files at most, too, and all sandboxes share it. */
const maxFiles = 1_000_000
/** Looking takes no more of the host than one part in so many. */
const restFactor = 10

/** Bytes on disk under a directory, this file system only; null when it can't be read. */
export const diskUsage = (directory: string | null): Promise<number | null> =>
  sumOf(directory, '--block-size=1')

async function sumOf(directory: string | null, unit: string): Promise<number | null> {
  if (directory === null) return null
  try {
    const { stdout } = await run('du', ['-sx', unit, directory], { timeout: 60_000 })
    return Number(stdout.split('\t')[0])
  } catch (error) {
    // du exits 1 when a file vanishes under it, and has printed the sum all the same
    const printed = (error as { stdout?: string }).stdout
    const bytes = Number(printed?.split('\t')[0])
    return printed !== undefined && printed !== '' && Number.isFinite(bytes) ? bytes : null
  }
}

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
      const files = await sumOf(directory, '--inodes')
      const words =
        used !== null && used > limitBytes
          ? `${used} bytes; its limit is ${limitBytes}`
          : files !== null && files > maxFiles
            ? `${files} files; the limit is ${maxFiles}`
            : null
      if (words === null || this.#closed) return
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
