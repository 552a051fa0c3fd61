/**
 * The board's documents: one file each, replaced whole, and an index of them all in memory. Bounded in number, in
 * bytes each and in bytes together: the oldest make room. What is published is a view of records that are kept
 * elsewhere, so a document that is lost in a power cut costs nothing but its sight.
 */
import { randomUUID } from 'node:crypto'
import { mkdir, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { RequestError } from '../../errors.ts'
import type { Logger } from '../../logger.ts'
import {
  boardIdPattern,
  boardKindPattern,
  inlineBytes,
  type BoardEntry,
} from '../../protocol/board.ts'
import { LineFiles } from './line-files.ts'

export interface BoardLimits {
  readonly maxDocuments: number
  readonly maxDocumentBytes: number
  readonly maxBytes: number
}

export interface Facts {
  readonly kind: string
  readonly id: string
  rev: number
  time: string
  bytes: number
  lines?: number
  /** Kept in memory where it is small. */
  text?: string
}

export type Change =
  | { readonly type: 'put' | 'remove'; readonly facts: Facts }
  | { readonly type: 'reset' }

const maxRemoved = 1_000
const loadAtOnce = 64

export class Board {
  readonly limits: BoardLimits
  readonly epoch: string
  readonly #directory: string
  readonly #lines: LineFiles
  /** In the order of their last change. */
  readonly #facts = new Map<string, Facts>()
  readonly #removed = new Map<string, Facts>()
  readonly #waiting = new Set<() => void>()
  readonly #writing = new Map<string, Promise<void>>()
  #rev = 0
  #bytes = 0
  /** Removals up to here are no longer known one by one. */
  #forgotten = 0

  private constructor(directory: string, epoch: string, limits: BoardLimits) {
    this.#directory = directory
    this.epoch = epoch
    this.limits = limits
    this.#lines = new LineFiles((kind, id) => this.#file(kind, id, 'lines'))
  }

  static async open(directory: string, limits: BoardLimits, log: Logger): Promise<Board> {
    await mkdir(directory, { recursive: true, mode: 0o700 })
    const board = new Board(directory, await epochOf(directory), limits)
    const lost = await board.#load()
    if (lost > 0) log.warn({ lost }, 'board.unreadable')
    return board
  }

  get size(): { documents: number; bytes: number } {
    return { documents: this.#facts.size, bytes: this.#bytes }
  }

  get at(): string {
    return `${this.epoch}-${this.#rev}`
  }

  async put(kind: string, id: string, text: string): Promise<Facts> {
    const key = keyOf(kind, id)
    if (this.#facts.get(key)?.lines !== undefined) throw wrongShape(kind, id)
    const bytes = Buffer.byteLength(text)
    this.#requireFit(bytes)
    const facts: Facts = { kind, id, rev: 0, time: new Date().toISOString(), bytes }
    if (bytes <= inlineBytes) facts.text = text
    await this.#inTurn(key, async () => {
      // numbered when it is written, so that readers see numbers in order
      const rev = this.#rev + 1
      facts.rev = rev
      this.#note(key, facts)
      const file = this.#file(kind, id, 'json')
      const head = JSON.stringify({ rev, time: facts.time })
      await this.#writeWhole(file, `${head}\n${text}`)
    })
    await this.#makeRoom(key)
    return facts
  }

  async get(kind: string, id: string): Promise<{ facts: Facts; text: string } | null> {
    const facts = this.#facts.get(keyOf(kind, id))
    if (facts === undefined || facts.lines !== undefined) return null
    if (facts.text !== undefined) return { facts, text: facts.text }
    await this.#writing.get(keyOf(kind, id))
    const whole = await readFile(this.#file(kind, id, 'json'), 'utf8').catch(() => null)
    return whole === null ? null : { facts, text: whole.slice(whole.indexOf('\n') + 1) }
  }

  list(kind: string, matches: (id: string) => boolean = () => true): Facts[] {
    return [...this.#facts.values()].filter((facts) => facts.kind === kind && matches(facts.id))
  }

  async remove(kind: string, id: string): Promise<boolean> {
    const key = keyOf(kind, id)
    const facts = this.#facts.get(key)
    if (facts === undefined) return false
    this.#forget(key, facts)
    await this.#inTurn(key, async () => {
      this.#lines.forget(kind, id)
      await rm(this.#file(kind, id, facts.lines === undefined ? 'json' : 'lines'), { force: true })
    })
    return true
  }

  /** Lines from number `from` on; what is there already is left out. Returns how many there are now. */
  async append(kind: string, id: string, from: number, lines: readonly string[]): Promise<number> {
    const key = keyOf(kind, id)
    const known = this.#facts.get(key)
    if (known !== undefined && known.lines === undefined) throw wrongShape(kind, id)
    await mkdir(path.join(this.#directory, kind), { recursive: true, mode: 0o700 })
    let total = 0
    await this.#inTurn(key, async () => {
      const have = this.#facts.get(key)?.lines ?? 0
      if (from > have + 1)
        throw new RequestError(
          'board_conflict',
          'caller',
          `${kind}/${id} has ${have} lines; send them from ${have + 1} on`,
        )
      const fresh = lines.slice(have + 1 - from)
      total = have + fresh.length
      if (fresh.length === 0) return
      const text = Buffer.from(fresh.map((line) => `${line}\n`).join(''))
      const before = this.#facts.get(key)?.bytes ?? 0
      const bytes = before + text.length
      this.#requireFit(bytes)
      await this.#lines.append(kind, id, text, { bytes: before, lines: have })
      const time = new Date().toISOString()
      this.#note(key, { kind, id, rev: this.#rev + 1, time, bytes, lines: total })
    })
    await this.#makeRoom(key)
    return total
  }

  /** Lines as they stand, in pieces; then, with `follow`, as they come. */
  async *lines(
    kind: string,
    id: string,
    { from, follow, signal }: { from: number; follow: boolean; signal: AbortSignal },
  ): AsyncGenerator<{ n: number; line: string }[]> {
    const reader = this.#lines.reader(kind, id, from)
    let n = reader.before
    while (!signal.aborted) {
      const more = this.wait(signal)
      // most changes are of something else, and cost a reader nothing
      const grown = (this.#facts.get(keyOf(kind, id))?.lines ?? 0) > n
      const piece = grown ? (await reader.next()).map((line) => ({ n: ++n, line })) : []
      const wanted = piece.filter((each) => each.n >= from)
      if (wanted.length > 0) yield wanted
      if (piece.length > 0) continue
      if (!follow) return
      await more
    }
  }

  /** What changed after `from` (`epoch-rev`), oldest first, without waiting; and where that leads. */
  since(from: string): { at: string; changes: Change[] } {
    const [epoch, number = ''] = from.split('-')
    const rev = Number(number)
    const known = epoch === this.epoch && Number.isSafeInteger(rev) && rev <= this.#rev
    if (!known || rev < this.#forgotten) return { at: this.at, changes: [{ type: 'reset' }] }
    const put = [...this.#facts.values()].filter((facts) => facts.rev > rev)
    const removed = [...this.#removed.values()].filter((facts) => facts.rev > rev)
    const changes = [
      ...put.map((facts) => ({ type: 'put' as const, facts })),
      ...removed.map((facts) => ({ type: 'remove' as const, facts })),
    ].toSorted((a, b) => a.facts.rev - b.facts.rev)
    return { at: this.at, changes }
  }

  /** Resolves at the next change of any kind, or when the reader goes. */
  wait(signal: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      const wake = (): void => {
        this.#waiting.delete(wake)
        signal.removeEventListener('abort', wake)
        resolve()
      }
      this.#waiting.add(wake)
      signal.addEventListener('abort', wake, { once: true })
      if (signal.aborted) wake()
    })
  }

  entry(facts: Facts, text: string | undefined = facts.text): BoardEntry {
    const { kind, id, rev, time, bytes, lines } = facts
    return {
      ...{ kind, id, rev, time, bytes },
      ...(lines === undefined ? {} : { lines }),
      ...(text === undefined ? {} : { document: JSON.parse(text) as never }),
    }
  }

  #requireFit(bytes: number): void {
    if (bytes > this.limits.maxDocumentBytes)
      throw new RequestError(
        'too_large',
        'caller',
        `a document of the board has ${this.limits.maxDocumentBytes} bytes at most; publish its beginning`,
      )
  }

  #note(key: string, facts: Facts): void {
    this.#bytes += facts.bytes - (this.#facts.get(key)?.bytes ?? 0)
    this.#facts.delete(key)
    this.#facts.set(key, facts)
    this.#removed.delete(key)
    this.#rev = facts.rev
    for (const wake of this.#waiting) wake()
  }

  #forget(key: string, facts: Facts): void {
    this.#bytes -= facts.bytes
    this.#facts.delete(key)
    this.#rev += 1
    this.#removed.set(key, { ...facts, rev: this.#rev })
    for (const [oldest, { rev }] of this.#removed) {
      if (this.#removed.size <= maxRemoved) break
      this.#removed.delete(oldest)
      this.#forgotten = rev
    }
    for (const wake of this.#waiting) wake()
  }

  async #makeRoom(kept: string): Promise<void> {
    const { maxDocuments, maxBytes } = this.limits
    for (const [key, { kind, id }] of this.#facts) {
      if (this.#facts.size <= maxDocuments && this.#bytes <= maxBytes) return
      if (key !== kept) await this.remove(kind, id)
    }
  }

  /** One change of a document at a time. */
  async #inTurn(key: string, work: () => Promise<void>): Promise<void> {
    const before = this.#writing.get(key) ?? Promise.resolve()
    const mine = before.then(work, work)
    this.#writing.set(key, mine)
    try {
      await mine
    } finally {
      if (this.#writing.get(key) === mine) this.#writing.delete(key)
    }
  }

  #file(kind: string, id: string, ending: 'json' | 'lines'): string {
    return path.join(this.#directory, kind, `${id}.${ending}`)
  }

  async #writeWhole(file: string, text: string): Promise<void> {
    const temporary = `${file}.${randomUUID()}.tmp`
    await mkdir(path.dirname(file), { recursive: true, mode: 0o700 })
    await writeFile(temporary, text, { mode: 0o600 })
    await rename(temporary, file)
  }

  async #load(): Promise<number> {
    const found: Facts[] = []
    const files: { kind: string; name: string }[] = []
    for (const entry of await readdir(this.#directory, { withFileTypes: true })) {
      if (!entry.isDirectory() || !boardKindPattern.test(entry.name)) continue
      for (const name of await readdir(path.join(this.#directory, entry.name)))
        files.push({ kind: entry.name, name })
    }
    let lost = 0
    for (let at = 0; at < files.length; at += loadAtOnce)
      for (const facts of await Promise.all(
        files.slice(at, at + loadAtOnce).map(({ kind, name }) => this.#read(kind, name)),
      )) {
        if (facts === null) lost += 1
        else found.push(facts)
      }
    // lines carry no number of their own: they count as changed now
    this.#rev = found.reduce((most, { rev }) => Math.max(most, rev), 0) + 1
    for (const facts of found) if (facts.lines !== undefined) facts.rev = this.#rev
    for (const facts of found.toSorted((a, b) => (a.time < b.time ? -1 : 1))) {
      this.#facts.set(keyOf(facts.kind, facts.id), facts)
      this.#bytes += facts.bytes
    }
    this.#forgotten = this.#rev
    return lost
  }

  async #read(kind: string, name: string): Promise<Facts | null> {
    const file = path.join(this.#directory, kind, name)
    const [, id = '', ending] = /^(.+)\.(json|lines)$/.exec(name) ?? []
    try {
      if (!boardIdPattern.test(id)) throw new Error('left by a write that did not end')
      if (ending === 'lines') return { kind, id, rev: 0, ...(await this.#lines.load(kind, id)) }
      const whole = await readFile(file, 'utf8')
      const head = whole.indexOf('\n')
      const { rev, time } = JSON.parse(whole.slice(0, head)) as { rev: number; time: string }
      const text = whole.slice(head + 1)
      const facts: Facts = { kind, id, rev, time, bytes: Buffer.byteLength(text) }
      if (facts.bytes <= inlineBytes) {
        JSON.parse(text)
        facts.text = text
      }
      return facts
    } catch {
      await rm(file, { force: true })
      return null
    }
  }
}

/** Throws for what could be no file of ours. */
export function keyOf(kind: string, id: string): string {
  if (boardKindPattern.test(kind) && boardIdPattern.test(id)) return `${kind}/${id}`
  throw new RequestError(
    'bad_request',
    'caller',
    `${JSON.stringify(`${kind}/${id}`)} names no document: a kind is lower-case letters, an id letters, digits and . _ -`,
  )
}

const wrongShape = (kind: string, id: string): RequestError =>
  new RequestError(
    'board_conflict',
    'caller',
    `${kind}/${id} is of the other sort: a document has no lines, and lines are no document; remove it first`,
  )

async function epochOf(directory: string): Promise<string> {
  const file = path.join(directory, 'epoch')
  const known = await readFile(file, 'utf8').catch(() => '')
  if (/^[0-9a-f]{12}$/.test(known)) return known
  const epoch = randomUUID().replaceAll('-', '').slice(0, 12)
  await writeFile(file, epoch, { mode: 0o600 })
  return epoch
}
