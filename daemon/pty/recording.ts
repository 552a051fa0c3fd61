/**
 * Writes a session's recording as it happens: asciicast v2, on disk within a second. It is the only reader that may make
 * the program wait, and only for the disk; a full disk ends the recording, never the program. Beyond its limit it says
 * how many bytes are missing, and where. Input is not recorded: people type secrets.
 */
import { createWriteStream, type WriteStream } from 'node:fs'
import { once } from 'node:events'
import { StringDecoder } from 'node:string_decoder'
import type { Exit } from '../protocol/exec-frames.ts'
import { castLine } from '../protocol/pty-cast.ts'
import type { Size } from './resizer.ts'

export const defaultLimitBytes = 64 * 1024 * 1024
const flushMs = 500
const flushBytes = 64 * 1024
/** Output within such a time is one event. */
const sameEventMs = 8
const sameEventBytes = 64 * 1024
/** More than this unwritten, and the program waits. */
const backlogBytes = 1024 * 1024

export interface RecordingOptions {
  readonly size: Size
  readonly title: string
  readonly limitBytes?: number
}

export class Recording {
  readonly #stream: WriteStream
  readonly #decoder = new StringDecoder('utf8')
  readonly #startedAt = performance.now()
  readonly #limit: number
  readonly #timer: NodeJS.Timeout
  #text: string[] = []
  #textBytes = 0
  #textTime = 0
  #lines: string[] = []
  #linesBytes = 0
  #written = 0
  #failed: Error | null = null
  #ended = false
  #unrecorded = 0
  #full = false

  /** The file must not be there yet. */
  constructor(file: string, { size, title, limitBytes = defaultLimitBytes }: RecordingOptions) {
    this.#limit = limitBytes
    this.#stream = createWriteStream(file, { flags: 'wx', mode: 0o600 })
    this.#stream.on('error', (error) => (this.#failed ??= error))
    const header = {
      version: 2,
      width: size.cols,
      height: size.rows,
      timestamp: Math.floor(Date.now() / 1000),
      title,
      env: { TERM: 'xterm-256color' },
    }
    this.#write(`${JSON.stringify(header)}\n`)
    this.#timer = setInterval(() => this.flush(), flushMs)
    this.#timer.unref()
  }

  /** Bytes of output that are not in it. */
  get unrecordedBytes(): number {
    return this.#unrecorded
  }

  get failed(): boolean {
    return this.#failed !== null
  }

  /** The program must wait: see `drained`. */
  get isBehind(): boolean {
    return this.#failed === null && this.#stream.writableLength > backlogBytes
  }

  async drained(): Promise<void> {
    if (this.isBehind) await once(this.#stream, 'drain').catch(() => undefined)
  }

  output(bytes: Buffer): void {
    if (this.#ended) return
    if (this.#full || this.#failed !== null) {
      this.#unrecorded += bytes.length
      return
    }
    const now = this.#seconds()
    if (
      this.#text.length > 0 &&
      (now - this.#textTime > sameEventMs / 1000 || this.#textBytes > sameEventBytes)
    )
      this.#closeText()
    if (this.#text.length === 0) this.#textTime = now
    this.#text.push(this.#decoder.write(bytes))
    this.#textBytes += bytes.length
    if (this.#written + this.#linesBytes + this.#textBytes > this.#limit) {
      this.#closeText()
      this.#line('m', `the recording ends here: it has reached its limit of ${this.#limit} bytes`)
      this.#full = true
      this.flush()
    }
  }

  size({ cols, rows }: Size): void {
    if (!this.#full) this.#event('r', `${cols}x${rows}`)
  }

  marker(label: string): void {
    // Beyond the limit too, but not without end.
    if (this.#written < this.#limit * 1.25) this.#event('m', label)
  }

  flush(): void {
    this.#takeText()
    this.#writeLines()
  }

  #writeLines(): void {
    if (this.#lines.length === 0) return
    const text = this.#lines.join('')
    this.#lines = []
    this.#linesBytes = 0
    this.#write(text)
  }

  async end(exit: Exit): Promise<void> {
    if (this.#ended) return
    this.#closeText()
    const rest = this.#decoder.end()
    if (rest !== '') this.#line('o', rest)
    if (this.#unrecorded > 0) this.#line('m', `${this.#unrecorded} bytes were not recorded`)
    this.#line('x', exit === 'unknown' ? exit : String('code' in exit ? exit.code : exit.signal))
    this.flush()
    this.#ended = true
    clearInterval(this.#timer)
    if (this.#failed !== null) return
    this.#stream.end()
    if (!this.#stream.closed) await once(this.#stream, 'close').catch(() => undefined)
  }

  #event(code: string, data: string): void {
    if (this.#ended) return
    this.#closeText()
    this.#line(code, data)
    this.flush()
  }

  #closeText(): void {
    this.#takeText()
    if (this.#linesBytes > flushBytes) this.#writeLines()
  }

  #takeText(): void {
    const text = this.#text.join('')
    this.#text = []
    this.#textBytes = 0
    if (text !== '') this.#line('o', text, this.#textTime)
  }

  #line(code: string, data: string, time = this.#seconds()): void {
    const line = castLine(time, code, data)
    this.#lines.push(line)
    this.#linesBytes += line.length
  }

  #write(text: string): void {
    this.#written += Buffer.byteLength(text)
    if (this.#failed === null) this.#stream.write(text)
  }

  #seconds(): number {
    return (performance.now() - this.#startedAt) / 1000
  }
}
