/**
 * A terminal for what agents print. It shows and does nothing else: no clipboard (OSC 52), no title but a cleaned one
 * beside it, no link that is followed without a question, and no answer to a question of the program (the daemon's own
 * screen answers those), so that nothing is ever typed by looking.
 */
import { Terminal, type ITheme } from '@xterm/xterm'
import { askToFollow } from './dialog.ts'
import { line, webAddress } from './hostile.ts'

export interface SafeTerminalOptions {
  readonly cols: number
  readonly rows: number
  /** Output of pipes has bare newlines. */
  readonly pipes?: boolean
  readonly onTitle?: (title: string) => void
}

export class SafeTerminal {
  readonly term: Terminal
  readonly #box: HTMLElement
  readonly #observer: ResizeObserver
  readonly #disposables: { dispose(): void }[] = []

  constructor(box: HTMLElement, options: SafeTerminalOptions) {
    this.#box = box
    this.term = new Terminal({
      cols: options.cols,
      rows: options.rows,
      convertEol: options.pipes === true,
      disableStdin: true,
      cursorBlink: false,
      cursorInactiveStyle: 'none',
      scrollback: 5_000,
      fontFamily: 'ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace',
      fontSize: 13,
      lineHeight: 1.1,
      minimumContrastRatio: 4.5,
      theme: themeNow(),
      linkHandler: {
        activate: (_event, address) => {
          const url = webAddress(address)
          if (url !== null) void askToFollow(url)
        },
        allowNonHttpProtocols: false,
      },
    })
    for (const undo of [...swallowed(this.term)]) this.#disposables.push(undo)
    const { onTitle } = options
    if (onTitle !== undefined)
      this.#disposables.push(this.term.onTitleChange((title) => onTitle(line(title, 120))))
    this.term.open(box)
    this.#observer = new ResizeObserver(() => this.fit())
    this.#observer.observe(box)
    this.#disposables.push(onTheme(() => (this.term.options.theme = themeNow())))
    this.fit()
  }

  /** The size of the text follows the place; the size in cells is the session's own. */
  fit(): void {
    const room = this.#box.clientWidth - 22
    if (room <= 0) return
    const size = Math.max(6, Math.min(14, Math.floor((room / this.term.cols / 0.605) * 4) / 4))
    if (this.term.options.fontSize !== size) this.term.options.fontSize = size
  }

  resize(cols: number, rows: number): void {
    if (cols !== this.term.cols || rows !== this.term.rows) this.term.resize(cols, rows)
    this.fit()
  }

  write(bytes: Uint8Array | string): Promise<void> {
    return new Promise((resolve) => this.term.write(bytes, resolve))
  }

  dispose(): void {
    this.#observer.disconnect()
    for (const one of this.#disposables) one.dispose()
    this.term.dispose()
  }
}

/** Questions of the program, and orders to the window: taken and dropped. */
function* swallowed({ parser }: Terminal): Generator<{ dispose(): void }> {
  const drop = (): boolean => true
  for (const id of [
    { final: 'c' },
    { prefix: '>', final: 'c' },
    { prefix: '=', final: 'c' },
    { final: 'n' },
    { prefix: '?', final: 'n' },
    { prefix: '>', final: 'q' },
    { prefix: '?', final: 'u' },
    { intermediates: '$', final: 'p' },
    { prefix: '?', intermediates: '$', final: 'p' },
    { final: 't' },
    { intermediates: "'", final: 'w' },
  ])
    yield parser.registerCsiHandler(id, drop)
  yield parser.registerDcsHandler({ intermediates: '$', final: 'q' }, drop)
  yield parser.registerDcsHandler({ intermediates: '+', final: 'q' }, drop)
  yield parser.registerOscHandler(52, drop)
  for (const code of [4, 10, 11, 12])
    yield parser.registerOscHandler(code, (data) => data.includes('?'))
}

function themeNow(): ITheme {
  const style = getComputedStyle(document.documentElement)
  const of = (name: string): string => style.getPropertyValue(name).trim()
  const light = document.documentElement.dataset['scheme'] === 'light'
  return {
    background: of('--term-back'),
    foreground: of('--term-text'),
    cursor: of('--term-text'),
    selectionBackground: light ? '#b9d4f5' : '#3a4a63',
    ...(light
      ? {
          black: '#24292f',
          brightBlack: '#57606a',
          white: '#6e7781',
          brightWhite: '#24292f',
          yellow: '#7d5d00',
          brightYellow: '#7d5d00',
          green: '#176b34',
          brightGreen: '#176b34',
          cyan: '#155e68',
          brightCyan: '#155e68',
          red: '#b3261e',
          brightRed: '#b3261e',
          blue: '#0b57b5',
          brightBlue: '#0b57b5',
          magenta: '#7a37b3',
          brightMagenta: '#7a37b3',
        }
      : {}),
  }
}

function onTheme(told: () => void): { dispose(): void } {
  document.addEventListener('themechange', told)
  return { dispose: () => document.removeEventListener('themechange', told) }
}
