/**
 * A running session in the page: closedbook.pty.v1 by a one-time ticket, output acknowledged as it is drawn, resumed by
 * offset after a lost connection. It looks on; only a person who takes control, and was told what that means, types.
 */
import {
  decodeMessage,
  encodeAck,
  encodeControl,
  encodeInput,
  inputPieceBytes,
  isFinalClose,
  ptyProtocol,
  type PtyMessage,
} from '../protocol/pty-frames.ts'
import type { PtyView, ServerControl } from '../protocol/pty.ts'
import { ticketFor } from './api.ts'
import { ask } from './dialog.ts'
import { fill, h } from './dom.ts'
import { exitText } from './format.ts'
import type { Page } from './page.ts'
import { SafeTerminal } from './terminal.ts'

const controlWords: Readonly<Record<string, string>> = {
  waiting: 'another types, and was asked for control',
  requested: 'somebody asks for control',
}
const ticketPrefix = 'closedbook.ticket.'

export function liveTerminal(pty: PtyView, page: Page, onEnd: () => void): HTMLElement {
  const box = h('div', { class: 'term-box' })
  const state = h('span', { class: 'term-state', role: 'status' }, 'connecting…')
  const title = h('span', { class: 'term-title' })
  const size = h('span', { class: 'term-size' })
  const control = h(
    'button',
    { type: 'button', on: { click: () => void takeControl() } },
    'Take control…',
  )
  control.hidden = page.session.role === 'view'
  const element = h(
    'section',
    { class: 'term', aria: { label: 'live terminal' } },
    h(
      'header',
      { class: 'term-bar' },
      h('span', { class: 'live-dot' }),
      state,
      title,
      h('span', { class: 'spring' }),
      size,
      control,
    ),
    box,
  )
  const { signal } = page
  const term = new SafeTerminal(box, {
    cols: pty.cols,
    rows: pty.rows,
    onTitle: (text) => fill(title, text === '' ? null : `“${text}”`),
  })
  signal.addEventListener('abort', () => {
    socket?.close(1000)
    term.dispose()
  })

  let socket: WebSocket | null = null
  let offset: number | null = null
  let inputs = 0
  let mode: 'view' | 'control' = 'view'
  let tries = 0
  let over = false
  // what came is drawn in the order in which it came
  let drawing: Promise<void> = Promise.resolve()

  const say = (text: string): void => fill(state, text)
  const showSize = (cols: number, rows: number): void => {
    term.resize(cols, rows)
    fill(size, `${cols}×${rows}`)
  }
  showSize(pty.cols, pty.rows)

  async function connect(): Promise<void> {
    const path = `/v1/leases/${pty.lease}/ptys/${pty.pty}/attach`
    let ticket: string
    try {
      ticket = await ticketFor(path, mode === 'control' ? 'run' : 'view', signal)
    } catch (error) {
      if (!signal.aborted) again((error as Error).message)
      return
    }
    const scheme = location.protocol === 'https:' ? 'wss:' : 'ws:'
    const next = new WebSocket(`${scheme}//${location.host}${path}`, [
      ptyProtocol,
      `${ticketPrefix}${ticket}`,
    ])
    socket = next
    next.binaryType = 'arraybuffer'
    next.addEventListener('open', () => {
      tries = 0
      const resume = offset === null ? {} : { resumeFrom: offset }
      send(encodeControl({ type: 'hello', mode, as: 'person', acks: true, ...resume }))
    })
    next.addEventListener('message', ({ data }) => {
      if (data instanceof ArrayBuffer) take(decodeMessage(new Uint8Array(data)))
    })
    next.addEventListener('close', ({ code, reason }) => {
      if (socket !== next) return
      socket = null
      if (over || signal.aborted) return
      if (isFinalClose(code) && code !== 1000) say(reason === '' ? `closed (${code})` : reason)
      else if (code === 1000) onEnd()
      else again('connection lost')
    })
  }

  function again(why: string): void {
    const waitMs = Math.min(10_000, 500 * 2 ** tries) * (0.75 + Math.random() / 2)
    tries += 1
    say(`${why}; trying again`)
    setTimeout(() => {
      if (!signal.aborted && !over) void connect()
    }, waitMs)
  }

  function send(frame: Uint8Array): void {
    if (socket?.readyState === WebSocket.OPEN) socket.send(frame as Uint8Array<ArrayBuffer>)
  }

  function take(message: PtyMessage): void {
    if (message.type === 'control') return taken(message.value as ServerControl)
    if (message.type === 'snapshot')
      draw(async () => {
        term.term.reset()
        showSize(message.cols, message.rows)
        await term.write(message.bytes)
        offset = message.offset
      })
    if (message.type === 'output')
      draw(async () => {
        const known = offset ?? message.offset
        const fresh = message.bytes.subarray(Math.max(0, known - message.offset))
        await term.write(fresh)
        offset = Math.max(known, message.offset + message.bytes.length)
        // the server joins what comes at once, so these are few
        send(encodeAck(offset))
      })
  }

  function draw(work: () => Promise<void>): void {
    drawing = drawing.then(async () => {
      if (!signal.aborted) await work()
    })
  }

  function taken(value: ServerControl): void {
    switch (value.type) {
      case 'ready':
        mode = value.mode
        draw(async () => showSize(value.cols, value.rows))
        return showMode()
      case 'size':
        return draw(async () => showSize(value.cols, value.rows))
      case 'control':
        if (value.event === 'granted') mode = 'control'
        else if (value.event !== 'requested') mode = 'view'
        showMode(controlWords[value.event] ?? value.reason)
        return undefined
      case 'gap':
        return say(`live; ${value.to - value.from} bytes were skipped (${value.reason})`)
      case 'exit':
        over = true
        return draw(async () => {
          say(`ended: ${exitText(value.exit)}`)
          element.classList.add('ended')
          onEnd()
        })
      case 'bye':
        return say(value.reason)
    }
  }

  function showMode(reason?: string): void {
    const typing = mode === 'control'
    term.term.options.disableStdin = !typing
    element.classList.toggle('controlling', typing)
    fill(control, typing ? 'Give control back' : 'Take control…')
    say(
      typing
        ? `live; you are typing${reason === undefined ? '' : `; ${reason}`}`
        : `live, looking on${reason === undefined ? '' : `; ${reason}`}`,
    )
    if (typing) term.term.focus()
  }

  async function takeControl(): Promise<void> {
    if (mode === 'control') {
      mode = 'view'
    } else {
      const yes = await ask(
        'Type into this trial?',
        'Take control',
        h(
          'p',
          {},
          'From your first key on this trial counts as assisted, for ever: it is recorded, and never scored.',
        ),
      )
      if (!yes) return
      mode = 'control'
    }
    // a ticket is for one role, so another role is another connection
    const before = socket
    socket = null
    before?.close(1000)
    void connect()
  }

  const encoder = new TextEncoder()
  term.term.onData((text) => {
    if (mode !== 'control') return
    const bytes = encoder.encode(text)
    for (let at = 0; at < bytes.length; at += inputPieceBytes)
      send(encodeInput(++inputs, bytes.subarray(at, at + inputPieceBytes)))
  })

  void connect()
  return element
}
