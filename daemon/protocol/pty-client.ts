/**
 * A viewer of a PTY session that comes back: over lost connections and restarted daemons it resumes by offset, so that
 * its reader gets every byte once, in order, or is told of the gap. It gives up only where trying again is pointless.
 */
import { WebSocket } from 'ws'
import { RemoteError } from './errors.ts'
import {
  ackAfterMs,
  ackBytes,
  decodeMessage,
  encodeAck,
  encodeControl,
  encodeInput,
  inputPieceBytes,
  inputWindowBytes,
  isFinalClose,
  maxMessageBytes,
  ptyClose,
  ptyProtocol,
  type PtyMessage,
  type SnapshotFacts,
} from './pty-frames.ts'
import {
  serverControlSchema,
  type ClientControlInput,
  type PtyEnd,
  type ServerControl,
} from './pty.ts'
import { retryDelayMs, silenceMs } from './reconnect.ts'
import { webSocketAddress, type DaemonTarget } from './target.ts'

export interface PtyTarget {
  readonly daemon: DaemonTarget
  /** `/v1/leases/…/attach` */
  readonly path: string
}

export type Gap = Omit<Extract<ServerControl, { type: 'gap' }>, 'type'>
export type ControlEvent = Omit<Extract<ServerControl, { type: 'control' }>, 'type'>
export type Ready = Omit<Extract<ServerControl, { type: 'ready' }>, 'type'>

export interface AttachOptions {
  readonly mode?: 'view' | 'control'
  readonly as?: 'harness' | 'person'
  /** The program waits for this reader: needs control. */
  readonly lossless?: boolean
  /** First byte wanted; absent: a snapshot of the screen first. */
  readonly from?: number
  readonly cols?: number
  readonly rows?: number
  /** Awaited, and acknowledged then. */
  readonly onOutput: (bytes: Uint8Array, offset: number) => void | Promise<void>
  readonly onSnapshot?: (bytes: Uint8Array, facts: SnapshotFacts) => void | Promise<void>
  readonly onGap?: (gap: Gap) => void
  readonly onSize?: (size: { cols: number; rows: number }) => void
  readonly onControl?: (event: ControlEvent) => void
  readonly onReady?: (ready: Ready) => void
  /** `lost` with how long until the next try. */
  readonly onState?: (state: 'connected' | 'lost', retryMs: number) => void
  readonly signal?: AbortSignal
}

export class PtyAttachment {
  /** After the last byte. Rejects with RemoteError for a refusal, an end of the session unseen, or `close()`. */
  readonly ended: Promise<PtyEnd>
  readonly #target: PtyTarget
  readonly #options: AttachOptions
  readonly #end = Promise.withResolvers<PtyEnd>()
  #socket: WebSocket | null = null
  #offset: number | undefined
  #mode: 'view' | 'control'
  #window: { cols: number; rows: number } | null
  #acked = 0
  #ackTimer: NodeJS.Timeout | undefined
  #taking: Promise<void> = Promise.resolve()
  #retries = 0
  #over = false
  #inputNumber = 0
  /** Sent and not acknowledged, by number: what a lost connection may have swallowed is not sent again. */
  readonly #unacked = new Map<number, number>()
  #unackedBytes = 0
  #roomFor: (() => void)[] = []
  #open = Promise.withResolvers<void>()

  constructor(target: PtyTarget, options: AttachOptions) {
    this.#target = target
    this.#options = options
    this.#mode = options.mode ?? 'view'
    this.#window =
      options.cols === undefined || options.rows === undefined
        ? null
        : { cols: options.cols, rows: options.rows }
    this.#offset = options.from
    this.ended = this.#end.promise
    this.ended.catch(() => {})
    options.signal?.addEventListener('abort', () => this.close(), { once: true })
    if (options.signal?.aborted === true) this.close()
    else this.#connect()
  }

  /** Offset of the next byte that this reader waits for. */
  get offset(): number {
    return this.#offset ?? 0
  }

  /** Resolves when the session has taken it; long input goes in pieces. While the connection is lost it waits. */
  async write(bytes: Uint8Array): Promise<void> {
    for (let at = 0; at < bytes.length; at += inputPieceBytes) {
      const piece = bytes.subarray(at, at + inputPieceBytes)
      await this.#open.promise
      while (this.#unackedBytes + piece.length > inputWindowBytes && !this.#over)
        await new Promise<void>((resolve) => this.#roomFor.push(resolve))
      if (this.#over) return
      const n = (this.#inputNumber = (this.#inputNumber + 1) >>> 0)
      this.#unacked.set(n, piece.length)
      this.#unackedBytes += piece.length
      this.#socket?.send(encodeInput(n, piece))
    }
    while (this.#unacked.size > 0 && !this.#over)
      await new Promise<void>((resolve) => this.#roomFor.push(resolve))
  }

  resize(cols: number, rows: number): void {
    this.#window = { cols, rows }
    this.#tell({ type: 'resize', cols, rows })
  }

  requestControl(): void {
    this.#mode = 'control'
    this.#tell({ type: 'control', action: 'request' })
  }

  /** To the one who asked first; `lost` tells that somebody had. */
  grantControl(): void {
    this.#tell({ type: 'control', action: 'grant' })
  }

  releaseControl(): void {
    this.#mode = 'view'
    this.#tell({ type: 'control', action: 'release' })
  }

  /** Asks for the screen as it is now. */
  requestSnapshot(): void {
    this.#tell({ type: 'snapshot' })
  }

  /** Goes away; the session stays. */
  close(): void {
    this.#fail(new RemoteError('detached', 'caller', 'the attachment was closed'))
  }

  #tell(message: ClientControlInput): void {
    if (this.#socket?.readyState === WebSocket.OPEN) this.#socket.send(encodeControl(message))
  }

  #connect(): void {
    const { daemon, path } = this.#target
    const { address, options } = webSocketAddress(daemon, path)
    const socket = new WebSocket(address, ptyProtocol, {
      ...options,
      perMessageDeflate: false,
      maxPayload: maxMessageBytes,
      handshakeTimeout: 15_000,
    })
    this.#socket = socket
    let refused: RemoteError | null = null
    const watchdog = setTimeout(() => socket.terminate(), silenceMs)
    socket.on('ping', () => watchdog.refresh())
    socket.on('error', () => {})
    socket.on('unexpected-response', (_request, response) => {
      const status = response.statusCode ?? 0
      response.resume()
      if (status >= 400 && status < 500 && status !== 429) refused = refusal(status)
      socket.terminate()
    })
    socket.on('open', () => this.#hello())
    socket.on('message', (data: Buffer) => {
      watchdog.refresh()
      // One after the other: a snapshot or an output that the reader takes its time for holds back what follows.
      const message = this.#decode(data, socket)
      if (message === null) return
      if (message.type === 'output' || message.type === 'snapshot' || isEnd(message))
        this.#taking = this.#taking.then(() => this.#take(message, socket))
      else this.#hear(message)
    })
    socket.on('close', (code, reason) => {
      clearTimeout(watchdog)
      if (refused !== null) this.#fail(refused)
      else void this.#taking.then(() => this.#closed(socket, code, String(reason)))
    })
  }

  #hello(): void {
    const { as, lossless } = this.#options
    this.#acked = this.#offset ?? 0
    this.#tell({
      type: 'hello',
      mode: this.#mode,
      as: as ?? 'person',
      acks: true,
      lossless: lossless ?? false,
      ...(this.#offset === undefined ? {} : { resumeFrom: this.#offset }),
      ...this.#window,
    })
  }

  #decode(data: Buffer, socket: WebSocket): PtyMessage | null {
    try {
      return decodeMessage(data)
    } catch {
      socket.close(ptyClose.badFrame)
      return null
    }
  }

  async #take(message: PtyMessage, socket: WebSocket): Promise<void> {
    if (this.#over || socket !== this.#socket) return
    try {
      if (message.type === 'output') {
        const { offset, bytes } = message
        // A reader who was told of a gap goes on behind it.
        this.#offset = offset + bytes.length
        await this.#options.onOutput(bytes, offset)
        this.#acknowledge()
      } else if (message.type === 'snapshot') {
        const { bytes, type: _type, ...facts } = message
        this.#offset = facts.offset
        this.#acked = facts.offset
        await this.#options.onSnapshot?.(bytes, facts)
      } else if (message.type === 'control') this.#finish(message.value)
    } catch (error) {
      this.#fail(error)
    }
  }

  #acknowledge(): void {
    const taken = this.offset
    if (taken - this.#acked >= ackBytes) this.#sendAck()
    else this.#ackTimer ??= setTimeout(() => this.#sendAck(), ackAfterMs)
  }

  #sendAck(): void {
    clearTimeout(this.#ackTimer)
    this.#ackTimer = undefined
    if (this.offset === this.#acked || this.#socket?.readyState !== WebSocket.OPEN) return
    this.#acked = this.offset
    this.#socket.send(encodeAck(this.#acked))
  }

  #hear(message: PtyMessage): void {
    if (message.type === 'inputAck') return this.#inputTaken(message.n)
    if (message.type !== 'control') return
    const parsed = serverControlSchema.safeParse(message.value)
    // One that this client doesn't know is of a newer server, and not for it.
    if (!parsed.success) return
    const { type, ...facts } = parsed.data
    switch (type) {
      case 'ready':
        this.#retries = 0
        this.#open.resolve()
        this.#options.onState?.('connected', 0)
        this.#options.onReady?.(facts as Ready)
        return
      case 'size':
        this.#taking = this.#taking.then(() =>
          this.#options.onSize?.(facts as { cols: number; rows: number }),
        )
        return
      case 'control': {
        const event = facts as ControlEvent
        if (['lost', 'released', 'refused'].includes(event.event)) this.#mode = 'view'
        this.#options.onControl?.(event)
        return
      }
      case 'gap':
        this.#taking = this.#taking.then(() => this.#options.onGap?.(facts as Gap))
        return
      case 'exit':
      case 'bye':
    }
  }

  #finish(value: unknown): void {
    const parsed = serverControlSchema.safeParse(value)
    if (!parsed.success || parsed.data.type !== 'exit') return
    const { type: _type, ...end } = parsed.data
    this.#over = true
    this.#sendAck()
    this.#end.resolve(end)
    this.#settle()
    this.#socket?.close(ptyClose.ended)
  }

  #inputTaken(n: number): void {
    this.#unackedBytes -= this.#unacked.get(n) ?? 0
    this.#unacked.delete(n)
    this.#wakeWriters()
  }

  #wakeWriters(): void {
    for (const resolve of this.#roomFor.splice(0)) resolve()
  }

  #closed(socket: WebSocket, code: number, reason: string): void {
    if (this.#over || socket !== this.#socket) return
    if (isFinalClose(code)) return this.#fail(closedError(code, reason))
    this.#unacked.clear()
    this.#unackedBytes = 0
    this.#wakeWriters()
    this.#open = Promise.withResolvers()
    const retryMs = retryDelayMs(this.#retries)
    this.#retries += 1
    this.#options.onState?.('lost', retryMs)
    setTimeout(() => {
      if (!this.#over) this.#connect()
    }, retryMs)
  }

  #fail(error: unknown): void {
    if (this.#over) return
    this.#over = true
    this.#end.reject(error)
    this.#settle()
    this.#socket?.close(ptyClose.ended)
  }

  #settle(): void {
    clearTimeout(this.#ackTimer)
    this.#open.resolve()
    this.#wakeWriters()
  }
}

function isEnd(message: PtyMessage): boolean {
  return message.type === 'control' && (message.value as { type?: unknown } | null)?.type === 'exit'
}

function refusal(status: number): RemoteError {
  if (status === 404) return new RemoteError('not_found', 'caller', 'there is no such PTY session')
  return status === 401 || status === 403
    ? new RemoteError(
        status === 401 ? 'unauthenticated' : 'forbidden',
        'caller',
        'the daemon refused the token; `closedbook token` makes one with the role view, or run to control',
      )
    : new RemoteError('daemon_refused', 'caller', `the daemon refused the attachment (${status})`)
}

function closedError(code: number, reason: string): RemoteError {
  if (code === ptyClose.noSession)
    return new RemoteError(
      'not_found',
      'caller',
      'that PTY session is not held any more; `closedbook replay` plays its recording',
    )
  if (code === ptyClose.unauthorized)
    return new RemoteError(
      'unauthenticated',
      'caller',
      'the credential of this attachment has ended',
    )
  return new RemoteError(
    'attachment_closed',
    'infra',
    `the daemon closed the attachment (${code}${reason === '' ? '' : `: ${reason}`})`,
  )
}
