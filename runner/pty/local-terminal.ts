/**
 * The terminal of the person who attaches: raw while attached, and put back as it was on every way out: a return, an
 * exception, a signal, the end of the process. Windows that change their size are told of once they have settled.
 */
import { spawnSync } from 'node:child_process'
import { writeSync } from 'node:fs'
import { TerminalFilter } from '../../daemon/protocol/pty-filter.ts'

const settleMs = 100

export interface WindowSize {
  readonly cols: number
  readonly rows: number
}

export class LocalTerminal implements Disposable {
  readonly #filter = new TerminalFilter()
  readonly #over = new AbortController()
  readonly #onExit = (): void => this[Symbol.dispose]()
  readonly #onCrash = (error: unknown): void => {
    this[Symbol.dispose]()
    process.stderr.write(`closedbook: ${String(error)}\n`)
    process.exit(70)
  }
  #restored = false
  #wrote = false

  private constructor() {
    this.#raw()
    process.stdin.resume()
    process.on('exit', this.#onExit)
    process.on('uncaughtException', this.#onCrash)
    process.on('unhandledRejection', this.#onCrash)
  }

  /** null where stdin or stdout is no terminal. */
  static open(): LocalTerminal | null {
    return process.stdin.isTTY && process.stdout.isTTY ? new LocalTerminal() : null
  }

  get window(): WindowSize {
    return { cols: process.stdout.columns || 80, rows: process.stdout.rows || 24 }
  }

  onTyped(take: (bytes: Buffer) => void): void {
    process.stdin.on('data', take)
    this.#over.signal.addEventListener('abort', () => process.stdin.off('data', take))
  }

  onWindow(take: (size: WindowSize) => void): void {
    let timer: NodeJS.Timeout | undefined
    const changed = (): void => {
      clearTimeout(timer)
      timer = setTimeout(() => take(this.window), settleMs)
    }
    process.stdout.on('resize', changed)
    this.#over.signal.addEventListener('abort', () => {
      clearTimeout(timer)
      process.stdout.off('resize', changed)
    })
  }

  /** After it was stopped and let go on, whatever stopped it has changed the terminal. */
  onContinue(take: () => void): void {
    const again = (): void => {
      this.#raw()
      take()
    }
    process.on('SIGCONT', again)
    this.#over.signal.addEventListener('abort', () => process.off('SIGCONT', again))
  }

  /** Output of a session; hostile, so it is filtered. Resolves when there is room for more. */
  async write(bytes: Uint8Array): Promise<void> {
    const passed = this.#filter.push(bytes)
    this.#wrote = true
    if (passed.length > 0) await this.own(passed)
  }

  /** Words of ours. */
  async own(text: string | Uint8Array): Promise<void> {
    if (process.stdout.write(text) || this.#restored) return
    await new Promise<void>((resolve) => {
      process.stdout.once('drain', resolve)
      process.stdout.once('close', resolve)
    })
  }

  /** A screen of its own size: what scrolls in the session scrolls here alike, where the window is higher. */
  show(screen: Uint8Array, session: WindowSize): Promise<void> {
    const { rows } = this.window
    // What was there before goes into the scrollback.
    const before = this.#wrote ? '' : '\n'.repeat(rows)
    const margins = rows > session.rows ? `\u001B[1;${session.rows}r` : '\u001B[r'
    return this.write(
      Buffer.concat([
        Buffer.from(`${before}\u001B[?25h\u001B[0m${margins}\u001B[H\u001B[2J`),
        screen,
      ]),
    )
  }

  /** Node leaves newlines to the terminal, and a session's output must reach it as it is. */
  #raw(): void {
    process.stdin.setRawMode(true)
    spawnSync('stty', ['-opost'], { stdio: ['inherit', 'ignore', 'ignore'] })
  }

  [Symbol.dispose](): void {
    if (this.#restored) return
    this.#restored = true
    this.#over.abort()
    process.off('exit', this.#onExit)
    process.off('uncaughtException', this.#onCrash)
    process.off('unhandledRejection', this.#onCrash)
    try {
      if (this.#wrote) writeSync(1, `${this.#filter.restore()}\r\n`)
      process.stdin.setRawMode(false)
    } catch {
      // The terminal went away, and with it what there was to restore.
    }
    process.stdin.pause()
  }
}
