/**
 * The thread that holds the headless terminals of all sessions. A terminal answers the queries that programs send
 * (device attributes, cursor position), with nobody attached too: it is the only one that does. It never does anything
 * else for a program: no clipboard, no window operations. What the serializer leaves out of a snapshot is tracked here.
 */
import { parentPort } from 'node:worker_threads'
import { SerializeAddon } from '@xterm/addon-serialize'
import headless from '@xterm/headless'
import type { FromScreens, ToScreens } from './screens.ts'

const scrollback = 1000
const snapshotScrollback = 200
const snapshotLimitChars = 256 * 1024

interface Held {
  readonly terminal: headless.Terminal
  readonly serializer: SerializeAddon
  /** Private modes that the serializer doesn't know, as last set. */
  readonly modes: Map<number, boolean>
  margins: readonly [number, number] | null
  cursorStyle: number
}

const terminals = new Map<number, Held>()
const port = parentPort
const tell = (message: FromScreens): void => port?.postMessage(message)

port?.on('message', (message: ToScreens) => {
  if (message.op === 'open') return open(message)
  const held = terminals.get(message.id)
  if (held === undefined) return
  switch (message.op) {
    case 'write':
      held.terminal.write(message.bytes, () => tell({ op: 'written', id: message.id }))
      return
    case 'resize':
      held.terminal.resize(message.cols, message.rows)
      return
    case 'snapshot':
      held.terminal.write('', () =>
        tell({
          op: 'snapshot',
          id: message.id,
          text: snapshot(held),
          cols: held.terminal.cols,
          rows: held.terminal.rows,
        }),
      )
      return
    case 'close':
      held.terminal.dispose()
      terminals.delete(message.id)
  }
})

/** DECTCEM, mouse encodings: what the serializer leaves out. */
const trackedModes: ReadonlySet<number> = new Set([25, 1005, 1006, 1015, 1016, 2026, 7727])

function open({ id, cols, rows }: Extract<ToScreens, { op: 'open' }>): void {
  const terminal = new headless.Terminal({
    cols,
    rows,
    scrollback,
    allowProposedApi: true,
    logLevel: 'off',
  })
  const serializer = new SerializeAddon()
  // Its types are written for the terminal of the browser; it needs no more than this one has.
  terminal.loadAddon(serializer as unknown as headless.ITerminalAddon)
  const held: Held = { terminal, serializer, modes: new Map(), margins: null, cursorStyle: 0 }
  terminals.set(id, held)
  terminal.onData((data) => tell({ op: 'reply', id, data }))
  const set = (on: boolean) => (params: (number | number[])[]) => {
    for (const mode of params)
      if (typeof mode === 'number' && trackedModes.has(mode)) held.modes.set(mode, on)
    return false
  }
  terminal.parser.registerCsiHandler({ prefix: '?', final: 'h' }, set(true))
  terminal.parser.registerCsiHandler({ prefix: '?', final: 'l' }, set(false))
  terminal.parser.registerCsiHandler({ final: 'r' }, ([top, bottom]) => {
    held.margins = [number(top) || 1, number(bottom) || terminal.rows]
    return false
  })
  terminal.parser.registerCsiHandler({ intermediates: ' ', final: 'q' }, ([style]) => {
    held.cursorStyle = number(style)
    return false
  })
  terminal.parser.registerEscHandler({ final: 'c' }, () => {
    held.modes.clear()
    held.margins = null
    held.cursorStyle = 0
    return false
  })
}

const number = (param: number | number[] | undefined): number =>
  typeof param === 'number' ? param : 0

function snapshot({ terminal, serializer, modes, margins, cursorStyle }: Held): string {
  let text = serializer.serialize({ scrollback: snapshotScrollback })
  if (text.length > snapshotLimitChars) text = serializer.serialize({ scrollback: 0 })
  const { cursorX, cursorY } = terminal.buffer.active
  const more: string[] = []
  if (margins !== null && (margins[0] !== 1 || margins[1] !== terminal.rows)) {
    // Setting margins moves the cursor.
    more.push(`\u001B[${margins[0]};${margins[1]}r`, `\u001B[${cursorY + 1};${cursorX + 1}H`)
  }
  for (const [mode, on] of modes) {
    if (mode === 25 ? !on : on) more.push(`\u001B[?${mode}${on ? 'h' : 'l'}`)
  }
  if (cursorStyle > 0) more.push(`\u001B[${cursorStyle} q`)
  return text + more.join('')
}
