/** Attaches this process to a PTY session: looks on, or types; and says how it ended. */
import type { DaemonClient } from '../../daemon/protocol/client.ts'
import type { ControlEvent, PtyAttachment } from '../../daemon/protocol/pty-client.ts'
import type { PtyEnd, PtyView } from '../../daemon/protocol/pty.ts'
import { RemoteError } from '../../daemon/protocol/errors.ts'
import { TerminalFilter } from '../../daemon/protocol/pty-filter.ts'
import { RunnerError } from '../errors.ts'
import { DetachKeys, keysForPeople, parseDetachKeys } from './detach-keys.ts'
import { LocalTerminal, type WindowSize } from './local-terminal.ts'

export interface AttachSessionOptions {
  readonly client: DaemonClient
  readonly view: PtyView
  readonly control: boolean
  readonly detachKeys: string
  readonly signal: AbortSignal
  /** Words for people, on stderr. */
  readonly say: (text: string) => void
}

export type AttachEnd = PtyEnd | 'detached'

const ctrlC = 0x03

export async function attachSession(options: AttachSessionOptions): Promise<AttachEnd> {
  const keys = parseDetachKeys(options.detachKeys)
  if (keys === null)
    throw new RunnerError(
      'usage',
      'operator',
      `--detach-keys ${JSON.stringify(options.detachKeys)}: write keys with commas, the first with ctrl-, such as ctrl-],. or ctrl-p,ctrl-q`,
    )
  using terminal = LocalTerminal.open()
  if (terminal === null) return await follow(options)
  return await interact(options, terminal, new DetachKeys(keys))
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

async function interact(
  { client, view, control, detachKeys, signal, say }: AttachSessionOptions,
  terminal: LocalTerminal,
  keys: DetachKeys,
): Promise<AttachEnd> {
  let session: WindowSize = { cols: view.cols, rows: view.rows }
  let lost = false
  let controls = false
  const line = (text: string): void => say(`\r\u001B[K${text}\r`)
  const attachment: PtyAttachment = client.attachPty(view.lease, view.pty, {
    mode: control ? 'control' : 'view',
    ...terminal.window,
    signal,
    onReady: ({ cols, rows, mode, resizable }) => {
      session = { cols, rows }
      const leave = `${keysForPeople(detachKeys)} leaves`
      line(
        control && mode === 'control'
          ? `[closedbook: ${named(view)}; you type; ${leave}]`
          : `[closedbook: ${named(view)}, read-only; ${leave}, Ctrl-C too]`,
      )
      if (!(resizable && mode === 'control')) sizeNote(session, terminal.window, line)
    },
    onSnapshot: (screen, { cols, rows }) => terminal.show(screen, { cols, rows }),
    onOutput: (bytes) => terminal.write(bytes),
    onSize: (size) => {
      session = size
      if (!controls) attachment.requestSnapshot()
    },
    onGap: ({ from, to }) => line(`[closedbook: ${to - from} bytes skipped]`),
    onControl: (event) => {
      if (event.event === 'granted') controls = true
      if (event.event === 'lost' || event.event === 'released') controls = false
      const words = controlWords(event)
      if (words !== null) line(`[closedbook: ${words}]`)
    },
    onState: (state, retryMs) => {
      if (state === 'lost')
        line(
          `[closedbook: connection lost at byte ${attachment.offset}; next try in ${retryMs} ms]`,
        )
      else if (lost) line(`[closedbook: connected again, resumed at byte ${attachment.offset}]`)
      lost = state === 'lost'
    },
  })
  terminal.onWindow(({ cols, rows }) => {
    if (controls) attachment.resize(cols, rows)
    else attachment.requestSnapshot()
  })
  terminal.onContinue(() => attachment.requestSnapshot())
  terminal.onTyped((typed) => {
    const { bytes, detach } = keys.push(typed)
    if (controls && bytes.length > 0) void attachment.write(bytes)
    // One who only looks on, and one who waits in vain for the connection, can always leave.
    if (detach || (!controls && typed.includes(ctrlC))) attachment.close()
  })
  return orDetached(attachment, signal)
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

function sizeNote(session: WindowSize, window: WindowSize, line: (text: string) => void): void {
  if (window.cols >= session.cols && window.rows >= session.rows) return
  line(
    `[closedbook: the session is ${session.cols}x${session.rows}, your window ${window.cols}x${window.rows}: make it larger to see all]`,
  )
}

function controlWords({ event, reason }: ControlEvent): string | null {
  switch (event) {
    case 'granted':
      return null
    case 'requested':
      return 'somebody asks for control'
    case 'refused':
      return reason ?? 'refused'
    case 'released':
    case 'lost':
      return 'you only look on now'
  }
}
