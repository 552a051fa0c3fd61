/**
 * A command on a terminal of the host's, made by node-pty, as a stream of bytes both ways. node-pty alone loses what a
 * paused reader has not read when the command ends, and spins while a program reads nothing: so a shell around the
 * command marks its end in the stream and stays, stopped, until all has been read, and writing is done here, with patience.
 */
import { randomBytes } from 'node:crypto'
import { write } from 'node:fs'
import { Duplex } from 'node:stream'
import { spawn, type IPty } from 'node-pty'
import { EndMark, type CommandEnd } from './end-mark.ts'
import type { Size } from './resizer.ts'

/** The terminal is raw before the command makes it so, and what is typed waits for that: a ^C is the program's. */
const script = `exec 3>&1
stty raw -echo 2>/dev/null
mark=$1
shift
words=$("$@" 2>&1 >&3)
printf '\\377%s %s %s\\377' "$mark" "$?" "$words"
kill -STOP $$
`
const aheadBytes = 256 * 1024
const retryMs = { first: 2, most: 50 }

export class HostTerminal extends Duplex {
  /** With the command's status; null where that was never told. */
  readonly over: Promise<number | null>
  readonly #pty: IPty
  readonly #mark: EndMark
  readonly #over = Promise.withResolvers<number | null>()
  readonly #begun = Promise.withResolvers<void>()
  /** Nothing came from the program yet. */
  #silent = true
  #writing = false
  #ended = false
  #shellEnded = false
  #gone = false

  private constructor(pty: IPty, mark: string) {
    super({ readableHighWaterMark: aheadBytes })
    this.#pty = pty
    this.#mark = new EndMark(mark)
    this.over = this.#over.promise
    this.on('error', () => undefined)
    // Bytes, for no encoding was asked for.
    pty.onData((bytes) => this.#take(bytes as unknown as Buffer))
    pty.onExit(() => {
      this.#gone = true
      this.#shellEnded = true
      this.#begun.resolve()
      this.#end(null, this.#mark.held)
    })
  }

  /** Resolves with the first bytes, whether or not anybody reads. */
  get begun(): Promise<void> {
    return this.#begun.promise
  }

  /** Throws where the host has no terminal to give. */
  static open(
    argv: readonly string[],
    { size, env }: { readonly size: Size; readonly env: Readonly<Record<string, string>> },
  ): HostTerminal {
    const mark = randomBytes(12).toString('hex')
    const pty = spawn('/bin/sh', ['-c', script, 'sh', mark, ...argv], {
      ...{ cols: size.cols, rows: size.rows, encoding: null, cwd: '/' },
      env: { ...env },
    })
    return new HostTerminal(pty, mark)
  }

  resize({ cols, rows }: Size): void {
    if (!this.#gone) this.#pty.resize(cols, rows)
  }

  override _read(): void {
    if (!this.#gone) this.#pty.resume()
  }

  override _write(chunk: Buffer, _encoding: string, done: (error?: Error | null) => void): void {
    const put = (): void => {
      this.#writing = true
      this.#put(chunk, retryMs.first, () => {
        this.#writing = false
        if (this.#gone) this.#endShell()
        done()
      })
    }
    void this.#begun.promise.then(put)
  }

  /** The command goes with its terminal: the shell leads its session. */
  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    this.#leave()
    this.#over.resolve(null)
    done(error)
  }

  #take(bytes: Buffer): void {
    if (this.#gone) return
    this.#begun.resolve()
    const { output, end } = this.#mark.push(bytes)
    this.#silent &&= output.length === 0
    if (end !== null) return this.#end(end, output)
    if (output.length > 0 && !this.push(output)) this.#pty.pause()
  }

  /** What the command said is shown only where it never came to a program. */
  #end(end: CommandEnd | null, rest: Buffer): void {
    if (this.#ended || this.destroyed) return
    this.#ended = true
    this.#over.resolve(end?.status ?? null)
    if (rest.length > 0) this.push(Buffer.from(rest))
    else if (this.#silent && end !== null && end.words !== '') this.push(Buffer.from(end.words))
    this.push(null)
    this.#leave()
  }

  /** Not while a write is under way: the number of the closed terminal may be another file's by then. */
  #leave(): void {
    if (this.#gone) return
    this.#gone = true
    this.#begun.resolve()
    this.#pty.resume()
    if (!this.#writing) this.#endShell()
  }

  /** Once, and not when it has ended: its number may be another process's by then. */
  #endShell(): void {
    if (this.#shellEnded) return
    this.#shellEnded = true
    this.#pty.kill('SIGKILL')
  }

  #put(bytes: Buffer, waitMs: number, done: () => void): void {
    // What a dead program didn't read is nobody's.
    if (this.#gone || bytes.length === 0) return done()
    const { fd } = this.#pty as IPty & { readonly fd: number }
    write(fd, bytes, (error, written) => {
      if (error === null) return this.#put(bytes.subarray(written), retryMs.first, done)
      if (error.code !== 'EAGAIN') return done()
      setTimeout(() => this.#put(bytes, Math.min(waitMs * 2, retryMs.most), done), waitMs)
    })
  }
}
