/** Files of numbered lines: appended to, read from the start in pieces, cut where a crash tore the last line. */
import { appendFile, open, readFile, stat, truncate } from 'node:fs/promises'

const pieceBytes = 256 * 1024
const newline = 0x0a

export interface LineReader {
  /** The next whole lines; none: there are no more for now. */
  next(): Promise<string[]>
}

export class LineFiles {
  readonly #file: (kind: string, id: string) => string

  constructor(file: (kind: string, id: string) => string) {
    this.#file = file
  }

  /** Behind the first `bytes`; all of it, or nothing where the disk is full. */
  async append(kind: string, id: string, text: string, bytes: number): Promise<void> {
    const file = this.#file(kind, id)
    try {
      await appendFile(file, text, { mode: 0o600 })
    } catch (error) {
      // Half a line would become one with the next that is sent.
      await truncate(file, bytes).catch(() => {})
      throw error
    }
  }

  async load(kind: string, id: string): Promise<{ time: string; bytes: number; lines: number }> {
    const file = this.#file(kind, id)
    const content = await readFile(file)
    const bytes = content.lastIndexOf(newline) + 1
    if (bytes < content.length) await truncate(file, bytes)
    let lines = 0
    for (const byte of content.subarray(0, bytes)) if (byte === newline) lines += 1
    const { mtime } = await stat(file)
    return { time: mtime.toISOString(), bytes, lines }
  }

  reader(kind: string, id: string): LineReader {
    const file = this.#file(kind, id)
    let position = 0
    let size = pieceBytes
    const next = async (): Promise<string[]> => {
      await using handle = await open(file, 'r').catch(() => null)
      if (handle === null) return []
      while (true) {
        const { buffer, bytesRead } = await handle.read(Buffer.alloc(size), 0, size, position)
        const end = buffer.subarray(0, bytesRead).lastIndexOf(newline) + 1
        if (end > 0) {
          position += end
          return buffer.toString('utf8', 0, end - 1).split('\n')
        }
        if (bytesRead < size) return []
        size *= 2
      }
    }
    return { next }
  }
}
