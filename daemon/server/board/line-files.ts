/**
 * Files of numbered lines: appended to, read in pieces, cut where a crash tore the last line. Where every so many lines
 * begin is remembered, so that a reader who comes back near the end doesn't cost what is before it.
 */
import { appendFile, open, readFile, stat, truncate } from 'node:fs/promises'

const pieceBytes = 256 * 1024
const newline = 0x0a
const markEvery = 256

export interface LineReader {
  /** Lines before the first that it reads. */
  readonly before: number
  /** The next whole lines; none: there are no more for now. */
  next(): Promise<string[]>
}

export class LineFiles {
  readonly #file: (kind: string, id: string) => string
  /** By file: where lines 1, 1 + markEvery, … begin. */
  readonly #marks = new Map<string, number[]>()

  constructor(file: (kind: string, id: string) => string) {
    this.#file = file
  }

  /** Behind what it holds already; all of it, or nothing where the disk is full. */
  async append(
    kind: string,
    id: string,
    text: Buffer,
    { bytes, lines }: { readonly bytes: number; readonly lines: number },
  ): Promise<void> {
    const file = this.#file(kind, id)
    try {
      await appendFile(file, text, { mode: 0o600 })
      this.#mark(file, text, { bytes, lines })
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
    const lines = this.#mark(file, content.subarray(0, bytes), { bytes: 0, lines: 0 })
    const { mtime } = await stat(file)
    return { time: mtime.toISOString(), bytes, lines }
  }

  forget(kind: string, id: string): void {
    this.#marks.delete(this.#file(kind, id))
  }

  /** Behind so many lines; returns how many there are then. */
  #mark(file: string, text: Buffer, { bytes, lines }: { bytes: number; lines: number }): number {
    const marks = lines === 0 ? [] : (this.#marks.get(file) ?? [])
    this.#marks.set(file, marks)
    let total = lines
    for (let at = 0; at < text.length; at = text.indexOf(newline, at) + 1) {
      if (total % markEvery === 0) marks[total / markEvery] = bytes + at
      total += 1
    }
    return total
  }

  /** From a little before line `from` on. */
  reader(kind: string, id: string, from = 1): LineReader {
    const file = this.#file(kind, id)
    const marks = this.#marks.get(file) ?? []
    const mark = Math.max(0, Math.min(Math.floor((from - 1) / markEvery), marks.length - 1))
    let position = marks[mark] ?? 0
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
    return { before: mark * markEvery, next }
  }
}
