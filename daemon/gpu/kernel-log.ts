/**
 * Xid errors of the NVIDIA driver in the kernel's log, from when the daemon began to read it: what an older boot or an
 * operator's repair left there says nothing about now. Where the log can't be read, nothing is told and nothing fails.
 */
import { closeSync, constants, openSync, readSync } from 'node:fs'

export interface Xid {
  readonly busId: string
  readonly code: number
  readonly text: string
}

/** Of the driver, the board or the link; the others are what a program on the GPU did wrong, and stay with it. */
const fatalXids: ReadonlySet<number> = new Set([48, 64, 74, 79, 95, 119])

export const isFatal = ({ code }: Xid): boolean => fatalXids.has(code)

const recordLimitBytes = 8192
const recordsAtMost = 20_000
const xidLine =
  /NVRM: Xid \((?:PCI:)?([0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2})(?:\.[0-9a-f])?\): (\d+)(.*)/gi

export class KernelLog implements Disposable {
  #fd: number | null = null

  constructor(file: string) {
    try {
      this.#fd = openSync(file, constants.O_RDONLY | constants.O_NONBLOCK)
      this.news()
    } catch {
      this.#fd = null
    }
  }

  /** What has been logged since the last call. */
  news(): Xid[] {
    if (this.#fd === null) return []
    const found: Xid[] = []
    const record = Buffer.alloc(recordLimitBytes)
    for (let n = 0; n < recordsAtMost; n++) {
      let length: number
      try {
        length = readSync(this.#fd, record)
      } catch (error) {
        // EPIPE: the ring overran us, and the next read goes on behind the gap.
        if ((error as NodeJS.ErrnoException).code === 'EPIPE') continue
        break
      }
      if (length === 0) break
      found.push(...parseXids(record.toString('utf8', 0, length)))
    }
    return found
  }

  [Symbol.dispose](): void {
    if (this.#fd !== null) closeSync(this.#fd)
    this.#fd = null
  }
}

export function parseXids(text: string): Xid[] {
  return [...text.matchAll(xidLine)].map(([, bus = '', code = '', rest = '']) => ({
    busId: `${bus.toLowerCase()}.0`,
    code: Number(code),
    text: `Xid ${code}${rest.slice(0, 200)}`.trim(),
  }))
}
