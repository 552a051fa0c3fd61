/** Attaches this process to a PTY session: looks on, or types; and says how it ended. */
import type { DaemonClient } from '../../daemon/protocol/client.ts'
import type { ControlEvent, PtyAttachment, Ready } from '../../daemon/protocol/pty-client.ts'
import type { PtyEnd, PtyView } from '../../daemon/protocol/pty.ts'
import { RemoteError } from '../../daemon/protocol/errors.ts'
import { TerminalFilter } from '../../daemon/protocol/pty-filter.ts'
import { RunnerError } from '../errors.ts'
import {
  areApart,
  controlKeysBeside,
  keysForPeople,
  parseDetachKeys,
  WatchedKeys,
} from './detach-keys.ts'
import { LocalTerminal, type WindowSize } from './local-terminal.ts'

export interface AttachSessionOptions {
  readonly client: DaemonClient
  readonly view: PtyView
  readonly control: boolean
  readonly detachKeys: string
  /** Absent: beside the detach keys. */
  readonly controlKeys?: string | undefined
  readonly signal: AbortSignal
  /** Words for people, on stderr. */
  readonly say: (text: string) => void
}

export type AttachEnd = PtyEnd | 'detached'

/** `away`: it typed, and the connection was lost. */
type Stand = 'looks' | 'asks' | 'types' | 'away'

interface Keys {
  readonly watched: WatchedKeys
  /** For people. */
  readonly leave: string
  readonly turn: string | null
}

const ctrlC = 0x03
/** Typed while the connection was lost, for when it is there again. */
const heldBytes = 64 * 1024

export async function attachSession(options: AttachSessionOptions): Promise<AttachEnd> {
  const keys = keysOf(options)
  using terminal = LocalTerminal.open()
  if (terminal === null) return await follow(options)
  return await new Attended(options, terminal, keys).ended()
}

function keysOf({ detachKeys, controlKeys }: AttachSessionOptions): Keys {
  const detach = parsed('--detach-keys', detachKeys)
  const beside = controlKeys ?? controlKeysBeside(detachKeys)
  const control = beside === null ? undefined : parsed('--control-keys', beside)
  if (control !== undefined && !areApart(detach, control))
    throw new RunnerError(
      'usage',
      'operator',
      `--control-keys ${beside} and --detach-keys ${detachKeys} begin alike: nobody could tell which is meant`,
    )
  return {
    watched: new WatchedKeys({ detach, control }),
    leave: keysForPeople(detachKeys),
    turn: beside === null ? null : keysForPeople(beside),
  }
}

function parsed(option: string, text: string): number[] {
  const keys = parseDetachKeys(text)
  if (keys !== null) return keys
  throw new RunnerError(
    'usage',
    'operator',
    `${option} ${JSON.stringify(text)}: write keys with commas, the first with ctrl-, such as ctrl-],. or ctrl-p,ctrl-q`,
  )
}

/** No terminal on one side: the text as it comes, from the oldest that is still there. */
async function follow({
  client,
  view,
  control,
  signal,
  say,
}: AttachSessionOptions): Promise<AttachEnd> {
  if (control)
    throw new RunnerError(
      'usage',
      'operator',
      '--control needs a terminal on stdin and stdout; `closedbook exec` runs commands without one',
    )
  const filter = new TerminalFilter({ plain: true })
  const write = async (bytes: Uint8Array): Promise<void> => {
    if (process.stdout.write(filter.push(bytes))) return
    await new Promise<void>((resolve) => process.stdout.once('drain', resolve))
  }
  const attachment = client.attachPty(view.lease, view.pty, {
    from: 0,
    signal,
    onOutput: write,
    onSnapshot: write,
    onGap: ({ from, to }) => say(`closedbook: ${to - from} bytes skipped`),
    onState: (state, retryMs) => {
      if (state === 'lost') say(`closedbook: connection lost; next try in ${retryMs} ms`)
    },
  })
  return orDetached(attachment, signal)
}

/** A person at a terminal, who looks on or types. */
class Attended {
  readonly #options: AttachSessionOptions
  readonly #terminal: LocalTerminal
  readonly #keys: Keys
  readonly #attachment: PtyAttachment
  #session: WindowSize
  #stand: Stand = 'looks'
  /** Told once it is known who types. */
  #greeting = false
  #held: Buffer[] = []
  #lost = false

  constructor(options: AttachSessionOptions, terminal: LocalTerminal, keys: Keys) {
    const { client, view, control, signal } = options
    this.#options = options
    this.#terminal = terminal
    this.#keys = keys
    this.#session = { cols: view.cols, rows: view.rows }
    this.#attachment = client.attachPty(view.lease, view.pty, {
      mode: control ? 'control' : 'view',
      ...terminal.window,
      signal,
      onReady: (ready) => this.#ready(ready),
      onSnapshot: (screen, { cols, rows }) => terminal.show(screen, { cols, rows }),
      onOutput: (bytes) => terminal.write(bytes),
      onSize: (size) => {
        this.#session = size
        if (this.#stand !== 'types') this.#attachment.requestSnapshot()
      },
      onGap: ({ from, to }) => this.#line(`${to - from} bytes skipped`),
      onControl: (event) => this.#hear(event),
      onState: (state, retryMs) => this.#connection(state, retryMs),
    })
    terminal.onWindow(({ cols, rows }) => {
      if (this.#stand === 'types') this.#attachment.resize(cols, rows)
      else this.#attachment.requestSnapshot()
    })
    terminal.onContinue(() => this.#attachment.requestSnapshot())
    terminal.onTyped((typed) => this.#typed(typed))
  }

  ended(): Promise<AttachEnd> {
    return orDetached(this.#attachment, this.#options.signal)
  }

  #line(text: string): void {
    this.#options.say(`\r\u001B[K[closedbook: ${text}]\r`)
  }

  #ready({ cols, rows, mode, resizable }: Ready): void {
    this.#session = { cols, rows }
    const typing = mode === 'control'
    this.#greeting = typing
    if (!typing)
      this.#line(`${named(this.#options.view)}, read-only; ${this.#keys.leave} leaves, Ctrl-C too`)
    if (!(resizable && typing)) this.#sizeNote()
  }

  #connection(state: 'connected' | 'lost', retryMs: number): void {
    const { offset } = this.#attachment
    if (state === 'connected') {
      if (this.#lost) this.#line(`connected again, resumed at byte ${offset}`)
    } else {
      if (this.#stand === 'types') this.#stand = 'away'
      this.#line(`connection lost at byte ${offset}; next try in ${retryMs} ms`)
    }
    this.#lost = state === 'lost'
  }

  #hear({ event, reason }: ControlEvent): void {
    const { leave, turn } = this.#keys
    const greeting = this.#greeting
    this.#greeting = false
    switch (event) {
      case 'granted': {
        const assists = this.#options.view.trial === null ? '' : '; it makes the trial assisted'
        if (greeting) this.#line(`${named(this.#options.view)}; you type; ${leave} leaves`)
        else
          this.#line(`you type now${assists}${turn === null ? '' : `; ${turn} hands control back`}`)
        this.#stand = 'types'
        for (const bytes of this.#held.splice(0)) void this.#attachment.write(bytes)
        return
      }
      case 'waiting':
        this.#stand = 'asks'
        this.#drop()
        return this.#line(
          `${greeting ? `${named(this.#options.view)}, read-only for now; ` : ''}another types, and was asked for control${turn === null ? '' : `; ${turn} takes the request back`}; ${leave} leaves`,
        )
      case 'requested':
        return this.#line(
          `somebody asks for control; ${turn === null ? `${leave} leaves` : turn}, and it is theirs`,
        )
      case 'refused':
        this.#stand = 'looks'
        this.#drop()
        return this.#line(reason ?? 'refused')
      case 'released':
      case 'lost':
        this.#stand = 'looks'
        return this.#line('you only look on now')
    }
  }

  #typed(typed: Buffer): void {
    for (let left = typed; left.length > 0;) {
      const { bytes, pressed, rest } = this.#keys.watched.push(left)
      if (bytes.length > 0) this.#send(bytes)
      if (pressed === 'detach') return this.#attachment.close()
      if (pressed === 'control') this.#turn()
      left = rest
    }
    // One who only looks on can always leave.
    const looksOn = this.#stand === 'looks' || this.#stand === 'asks'
    if (looksOn && typed.includes(ctrlC)) this.#attachment.close()
  }

  #send(bytes: Buffer): void {
    if (this.#stand === 'types') void this.#attachment.write(bytes)
    else if (this.#stand === 'away') {
      const held = this.#held.reduce((sum, { length }) => sum + length, 0)
      if (held + bytes.length <= heldBytes) this.#held.push(bytes)
    }
  }

  /** Control went to somebody else meanwhile, and what was typed would come as a surprise later. */
  #drop(): void {
    if (this.#held.splice(0).length > 0) this.#line('what you typed meanwhile is dropped')
  }

  /** Asks for control, takes that back, or hands control over. */
  #turn(): void {
    switch (this.#stand) {
      case 'looks':
        this.#stand = 'asks'
        return this.#attachment.requestControl()
      case 'asks':
        this.#stand = 'looks'
        this.#attachment.releaseControl()
        return this.#line('you ask for control no more')
      // to the one who asked first, or to nobody
      case 'types':
        return this.#attachment.releaseControl()
      case 'away':
        return undefined
    }
  }

  #sizeNote(): void {
    const { window } = this.#terminal
    const { cols, rows } = this.#session
    if (window.cols >= cols && window.rows >= rows) return
    this.#line(
      `the session is ${cols}x${rows}, your window ${window.cols}x${window.rows}: make it larger to see all`,
    )
  }
}

async function orDetached(attachment: PtyAttachment, signal: AbortSignal): Promise<AttachEnd> {
  try {
    return await attachment.ended
  } catch (error) {
    if (!(error instanceof RemoteError && error.code === 'detached')) throw error
    signal.throwIfAborted()
    return 'detached'
  }
}

const named = ({ role, pty, cols, rows }: PtyView): string =>
  `${role === 'person' ? 'a person' : `the ${role}`}'s terminal ${pty.slice(0, 8)}, ${cols}x${rows}`
