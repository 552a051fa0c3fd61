/**
 * One WebSocket on a session. It holds a place in the session's log and nothing else: no queue of its own, so that a
 * stalled one costs no memory. What it sends is obeyed only where it controls; its going away ends nothing.
 */
import type { WebSocket } from 'ws'
import {
  decodeMessage,
  encodeControl,
  encodeInputAck,
  encodeSnapshot,
  maxMessageBytes,
  outputHeaderBytes,
  ptyClose,
  writeOutputHeader,
} from '../protocol/pty-frames.ts'
import { clientControlSchema, type ClientControl, type ServerControl } from '../protocol/pty.ts'
import { delayMs, inputLimitBytes, losslessPatienceMs, nextStep, pieceBytes } from './flow.ts'
import type { Size } from './resizer.ts'
import type { Session, SessionViewer } from './session.ts'

export interface ViewerRights {
  /** It may ask for control. */
  readonly mayControl: boolean
  /** Who, for the log. */
  readonly name: string
}

type Hello = Extract<ClientControl, { type: 'hello' }>

const pingMs = 15_000
/** Pings that a viewer with output under way may leave unanswered. */
const slowPongs = 20
const helloMs = 10_000
/** Input is acknowledged a moment later: the echo of a key comes first, and an acknowledgement would delay it. */
const inputAckMs = 10
/** Refused messages after which it is shown the door. */
const refusalsLimit = 100

export class Viewer implements SessionViewer {
  readonly rights: ViewerRights
  readonly #socket: WebSocket
  readonly #session: Session
  #hello: Hello | null = null
  #sent = 0
  #acked = 0
  #ackedAt = performance.now()
  #lost = false
  /** Memory for messages, that goes round: as much as is under way to the socket at once. */
  readonly #frames: Buffer[] = []
  #lossless = false
  #snapshotting = false
  #lastSendAt = 0
  #timer: NodeJS.Timeout | null = null
  #finished = false
  #window: Size | null = null
  #refusals = 0
  #inputBytes = 0
  #inputs: Promise<void> = Promise.resolve()
  /** Taken, and to be acknowledged when the timer says so. */
  #inputsTaken: number[] = []
  #inputAckTimer: NodeJS.Timeout | undefined
  readonly #ping: NodeJS.Timeout
  #unanswered = 0
  readonly #late: NodeJS.Timeout

  constructor(socket: WebSocket, session: Session, rights: ViewerRights) {
    this.#socket = socket
    this.#session = session
    this.rights = rights
    socket.on('error', () => {})
    socket.on('message', (data: Buffer, binary) => this.#message(data, binary))
    socket.on('close', () => this.#gone())
    socket.on('pong', () => (this.#unanswered = 0))
    this.#late = setTimeout(() => socket.close(ptyClose.badFrame, 'no hello came'), helloMs)
    this.#ping = setInterval(() => this.#pingIt(), pingMs)
  }

  /** Bytes that the session must not run away from it by; 0 for one that isn't lossless. */
  get losslessLag(): number {
    if (!this.#lossless) return 0
    const lag = this.#session.ring.end - this.#acked
    if (lag > 0 && performance.now() - this.#ackedAt > losslessPatienceMs) {
      this.#lossless = false
      return 0
    }
    return lag
  }

  wake(): void {
    if (this.#hello === null || this.#timer !== null) return
    const wait = delayMs(this.#session.ring.end - this.#sent, performance.now() - this.#lastSendAt)
    if (wait === 0) this.#pump()
    else
      this.#timer = setTimeout(() => {
        this.#timer = null
        this.#pump()
      }, wait)
  }

  sized(size: Size): void {
    if (this.#hello !== null) this.#tell({ type: 'size', ...size })
  }

  /** The session has ended: what is left is sent, then the exit. */
  finish(): void {
    if (this.#hello !== null) this.#pump()
  }

  dismiss(): void {
    this.close(ptyClose.noSession, 'the session has ended long ago')
  }

  granted(): void {
    this.#tell({ type: 'control', event: 'granted' })
    if (this.#window !== null && this.#session.resizable) this.#session.resize(this.#window)
  }

  waiting(): void {
    this.#tell({ type: 'control', event: 'waiting' })
  }

  requested(): void {
    this.#tell({ type: 'control', event: 'requested' })
  }

  lost(): void {
    this.#lossless = false
    this.#tell({ type: 'control', event: 'lost' })
  }

  close(code: number, reason: string): void {
    this.#tell({ type: 'bye', reason })
    this.#socket.close(code, reason)
  }

  #pump(): void {
    // One that is closed is told no more; asking again for its snapshot would never end.
    if (this.#socket.readyState !== 1) return
    for (;;) {
      const { ring } = this.#session
      const step = nextStep(
        {
          sent: this.#sent,
          acked: this.#hello?.acks === true ? this.#acked : this.#sent,
          queued: this.#socket.bufferedAmount,
          lossless: this.#lossless,
          lost: this.#lost,
        },
        { start: ring.start, end: ring.end },
      )
      if (step.do === 'wait') break
      if (step.do === 'lose') {
        this.#lost = true
        continue
      }
      if (step.do === 'snapshot') {
        void this.#snapshot()
        return
      }
      this.#send(ring.read(this.#sent, step.bytes))
    }
    const { end, ring } = this.#session
    if (end === null || this.#finished || this.#lost || this.#sent < ring.end) return
    this.#finished = true
    this.#tell({ type: 'exit', ...end })
    this.#socket.close(ptyClose.ended, 'ended')
  }

  #send(bytes: Buffer): void {
    const offset = this.#sent
    this.#sent += bytes.length
    this.#session.tally.sentBytes += bytes.length
    this.#lastSendAt = performance.now()
    const frame = this.#frames.pop() ?? Buffer.allocUnsafeSlow(outputHeaderBytes + pieceBytes)
    const message = frame.subarray(0, outputHeaderBytes + bytes.length)
    writeOutputHeader(message, offset)
    bytes.copy(message, outputHeaderBytes)
    this.#socket.send(message, () => {
      this.#frames.push(frame)
      this.#written()
    })
  }

  #written(): void {
    if (this.#timer === null && this.#hello !== null && this.#isBehind()) this.#pump()
  }

  #isBehind(): boolean {
    return this.#lost || this.#sent < this.#session.ring.end || this.#session.end !== null
  }

  async #snapshot(): Promise<void> {
    if (this.#snapshotting) return
    this.#snapshotting = true
    try {
      const { bytes, ...facts } = await this.#session.snapshot()
      if (facts.offset < this.#session.ring.start || this.#socket.readyState !== 1) return
      if (this.#sent < facts.offset && this.#lost && this.#sent > 0)
        this.#tellGap(
          this.#sent,
          facts.offset,
          this.#sent < this.#session.ring.start ? 'gone' : 'slow',
        )
      this.#sent = facts.offset
      this.#acked = facts.offset
      this.#lost = false
      this.#session.tally.snapshots += 1
      this.#session.tally.sentBytes += bytes.length
      this.#socket.send(encodeSnapshot(facts, bytes.subarray(0, maxMessageBytes - 64)), () =>
        this.#written(),
      )
    } finally {
      this.#snapshotting = false
      this.#pump()
    }
  }

  #message(data: Buffer, binary: boolean): void {
    try {
      if (!binary) throw new RangeError('messages of this protocol are binary')
      const message = decodeMessage(data)
      if (message.type === 'control') {
        const parsed = clientControlSchema.safeParse(message.value)
        if (!parsed.success) throw new RangeError('a control message is not as it must be')
        this.#control(parsed.data)
      } else if (message.type === 'ack') this.#ack(message.offset)
      else if (message.type === 'input') this.#input(message.n, message.bytes)
      else throw new RangeError(`clients never send ${message.type}`)
    } catch (error) {
      if (!(error instanceof RangeError)) throw error
      this.#socket.close(ptyClose.badFrame, error.message.slice(0, 120))
    }
  }

  #control(message: ClientControl): void {
    if (message.type === 'hello') {
      if (this.#hello !== null) throw new RangeError('a second hello')
      return this.#greet(message)
    }
    if (this.#hello === null) throw new RangeError('the first message must be hello')
    const { control } = this.#session
    switch (message.type) {
      case 'resize':
        this.#window = { cols: message.cols, rows: message.rows }
        if (control.holder === this && this.#session.resizable) this.#session.resize(this.#window)
        return
      case 'snapshot':
        this.#lost = true
        this.#pump()
        return
      case 'control':
        if (message.action === 'grant') control.grant(this)
        else if (message.action === 'release') this.#release()
        else if (this.rights.mayControl) control.request(this)
        else this.#refuse('your role may only look on')
    }
  }

  #release(): void {
    this.#lossless = false
    const held = this.#session.control.holder === this
    this.#session.control.release(this)
    if (held) this.#tell({ type: 'control', event: 'released' })
  }

  #greet(hello: Hello): void {
    clearTimeout(this.#late)
    const session = this.#session
    const { ring } = session
    this.#hello = hello
    if (hello.cols !== undefined && hello.rows !== undefined)
      this.#window = { cols: hello.cols, rows: hello.rows }
    const from = hello.resumeFrom
    if (from === undefined) {
      this.#lost = true
    } else if (from > ring.end) throw new RangeError('resumeFrom lies beyond the end')
    else if (from < ring.start) {
      this.#tellGap(from, ring.start, 'gone')
      this.#sent = this.#acked = ring.start
      // A replay from the middle would start with whatever the cut left: the screen is better.
      this.#lost = true
    } else this.#sent = this.#acked = from
    const wantsControl = hello.mode === 'control'
    const mode = wantsControl && this.rights.mayControl ? 'control' : 'view'
    this.#tell({
      type: 'ready',
      pty: session.spec.pty,
      offset: ring.end,
      ...session.size,
      mode,
      resizable: session.resizable,
      role: session.spec.role,
    })
    this.#lossless = mode === 'control' && hello.acks && hello.lossless && !this.#lost
    this.#ackedAt = performance.now()
    session.add(this)
    if (mode === 'control') session.control.request(this)
    else if (wantsControl) this.#refuse('your role may only look on')
    this.#pump()
  }

  #ack(offset: number): void {
    if (offset > this.#sent) throw new RangeError('an acknowledgement of what was never sent')
    // One from before a snapshot comes late, and means nothing.
    if (offset <= this.#acked) return
    this.#acked = offset
    this.#ackedAt = performance.now()
    if (this.#lossless) this.#session.taken()
    this.#pump()
  }

  #input(n: number, bytes: Uint8Array): void {
    if (this.#hello === null) throw new RangeError('the first message must be hello')
    if (this.#session.control.holder !== this) {
      this.#refuse('input is taken only from the one who has control')
      // Dropped, but no longer waited for.
      if (this.#socket.readyState === 1) this.#socket.send(encodeInputAck(n))
      return
    }
    this.#inputBytes += bytes.length
    if (this.#inputBytes > 2 * inputLimitBytes)
      return this.close(ptyClose.inputFlood, 'more input than was acknowledged')
    const as = this.#hello.as
    this.#inputs = this.#inputs.then(async () => {
      await this.#session.input(bytes, as)
      this.#inputBytes -= bytes.length
      this.#inputsTaken.push(n)
      this.#inputAckTimer ??= setTimeout(() => this.#ackInputs(), inputAckMs)
    })
  }

  #ackInputs(): void {
    this.#inputAckTimer = undefined
    for (const n of this.#inputsTaken.splice(0))
      if (this.#socket.readyState === 1) this.#socket.send(encodeInputAck(n))
  }

  #tellGap(from: number, to: number, reason: 'slow' | 'gone'): void {
    this.#session.tally.gaps += 1
    this.#session.tally.gapBytes += to - from
    this.#tell({ type: 'gap', from, to, reason })
  }

  #refuse(reason: string): void {
    this.#refusals += 1
    this.#session.tally.refused += 1
    if (this.#refusals > refusalsLimit) this.close(ptyClose.forbidden, reason)
    else this.#tell({ type: 'control', event: 'refused', reason })
  }

  #tell(message: ServerControl): void {
    if (this.#socket.readyState === 1) this.#socket.send(encodeControl(message))
  }

  #pingIt(): void {
    if (this.#socket.readyState !== 1) return
    // One that is only slow has output waiting for it, and its pong comes behind that.
    this.#unanswered += 1
    const patience = this.#socket.bufferedAmount > 0 ? slowPongs : 1
    if (this.#unanswered > patience) this.#socket.terminate()
    else this.#socket.ping()
  }

  #gone(): void {
    for (const timer of [this.#late, this.#timer ?? undefined, this.#inputAckTimer])
      clearTimeout(timer)
    clearInterval(this.#ping)
    this.#session.remove(this)
  }
}
