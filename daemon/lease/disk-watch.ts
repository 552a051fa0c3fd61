/**
 * Watches the bytes that a sandbox has added to its file system (its overlay's upper directory) and acts when they pass
 * the limit, again and again while they stay beyond it. Where the engine keeps no such directory there is nothing to
 * watch, and the lease says so.
 */
import { execFile } from 'node:child_process'
import { promisify } from 'node:util'

const run = promisify(execFile)

/** Bytes on disk under a directory, this file system only; null when it can't be read. */
export async function diskUsage(directory: string | null): Promise<number | null> {
  if (directory === null) return null
  try {
    const { stdout } = await run('du', ['-sx', '--block-size=1', directory], { timeout: 60_000 })
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
  readonly onLimit: (usedBytes: number) => void
  readonly intervalMs?: number
}

export class DiskWatch implements Disposable {
  readonly #timer: NodeJS.Timeout | null
  #looking = false
  hit = false

  constructor(directory: string | null, options: DiskWatchOptions) {
    const { limitBytes, active, onLimit, intervalMs = 2000 } = options
    const look = async (): Promise<void> => {
      if (this.#looking || !active()) return
      this.#looking = true
      const used = await diskUsage(directory)
      this.#looking = false
      if (used === null || used <= limitBytes) return
      this.hit = true
      onLimit(used)
    }
    this.#timer = directory === null ? null : setInterval(() => void look(), intervalMs)
    this.#timer?.unref()
  }

  [Symbol.dispose](): void {
    if (this.#timer !== null) clearInterval(this.#timer)
  }
}
