/** The command line under a real terminal: what it shows, what is typed, and whether the terminal is as it was. */
import { readFile } from 'node:fs/promises'
import { fileURLToPath } from 'node:url'
import { spawn, type IPty } from 'node-pty'
import { until } from './pty.ts'

const bin = fileURLToPath(new URL('../../runner/bin/closedbook.mjs', import.meta.url))

export interface TerminalOptions {
  readonly env: Readonly<Record<string, string>>
  readonly cols?: number
  readonly rows?: number
}

export class Terminal implements AsyncDisposable {
  readonly pty: IPty
  text = ''
  readonly ended: Promise<number>

  /** `closedbook ARGS` in a shell that tells the terminal's settings before and after. */
  constructor(args: string, { env, cols = 140, rows = 50 }: TerminalOptions) {
    const script = `echo "before $(stty -g)"; "$0" --no-warnings ${bin} ${args}; echo "status $?"; echo "after $(stty -g)"`
    this.pty = spawn('/bin/sh', ['-c', script, process.execPath], {
      ...{ cols, rows, name: 'xterm-256color' },
      env: { ...process.env, NO_COLOR: '1', ...env } as Record<string, string>,
    })
    this.pty.onData((data) => (this.text += data))
    this.ended = new Promise((resolve) => this.pty.onExit(({ exitCode }) => resolve(exitCode)))
  }

  /** `after`: in what came after so many characters. */
  async until(what: RegExp, after = 0): Promise<void> {
    try {
      await until(String(what), () => what.test(this.text.slice(after)))
    } catch (cause) {
      throw new Error(`no ${what} in ${JSON.stringify(this.text.slice(-600))}`, { cause })
    }
  }

  type(text: string): void {
    this.pty.write(text)
  }

  /** Of a terminal that is as it was. */
  async restored(): Promise<boolean> {
    await this.until(/after [0-9a-f:]+/)
    const [before, after] = ['before', 'after'].map(
      (word) => new RegExp(`${word} ([0-9a-f:]+)`).exec(this.text)?.[1],
    )
    return before !== undefined && before === after
  }

  /** Pid of the command itself. */
  async command(): Promise<number> {
    const { pid } = this.pty
    const children = await readFile(`/proc/${pid}/task/${pid}/children`, 'utf8')
    return Number(children.trim().split(' ').at(-1))
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.pty.kill('SIGKILL')
    await this.ended
  }
}
