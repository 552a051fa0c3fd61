/**
 * The server's side of `closedbook.exec.v1` on one upgraded connection: reads START, runs the command, sends its output
 * at the client's pace, and ends with EXIT or ERROR. A client that goes away ends the command unless it asked for it to
 * go on. Never throws: what goes wrong reaches the client as a frame and the caller by its recorder.
 */
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import type { IncomingMessage } from 'node:http'
import type { Duplex } from 'node:stream'
import type { Cgroup } from '../engine/cgroup.ts'
import type { Engine } from '../engine/engine.ts'
import { ClosedbookError, RequestError } from '../errors.ts'
import {
  encodeJsonFrame,
  encodeFrame,
  execProtocol,
  execStartSchema,
  FrameReader,
  frameType,
  outputHeader,
} from '../protocol/exec-frames.ts'
import type { ExecEnd, ExecStart } from '../protocol/exec-frames.ts'
import { zodMessage } from '../protocol/zod-message.ts'
import type { OutputStream } from './demux.ts'
import { runExec } from './exec.ts'
import { StdinQueue } from './stdin-queue.ts'

export interface ServeExecOptions {
  readonly engine: Engine
  readonly containerId: string
  readonly cgroup: Cgroup | null
  /** For what START leaves open. */
  readonly defaults?: { readonly workdir?: string | undefined; readonly user?: string | undefined }
  /** Ends the command, as KILL does: the lease is being frozen or closed. */
  readonly signal?: AbortSignal
  readonly recorder?: ServedExecRecorder
}

/** Hears of one exec: `started`, any number of `output`, and then `ended` or `failed`. */
export interface ServedExecRecorder {
  started(exec: string, start: ExecStart): void
  /** Of both streams, in the order of delivery; what the limit dropped is missing. */
  output(exec: string, bytes: Buffer): void
  ended(end: ExecEnd): void
  /** It could not be started, or its end can't be known. */
  failed(exec: string, message: string, error: unknown): void
}

const startDeadlineMs = 10_000
const frameBytes = 64 * 1024
const stalledClientMs = 5_000
/** A client that ignores acknowledgements is read no further than this. */
const stdinLimitBytes = 2 * 1024 * 1024

/** `head` is what the HTTP server had read beyond the request. */
export function serveExec(
  request: IncomingMessage,
  socket: Duplex,
  head: Buffer,
  options: ServeExecOptions,
): void {
  socket.on('error', () => undefined)
  if (request.headers.upgrade?.toLowerCase() !== execProtocol) {
    const message = `This address speaks ${execProtocol}: send "Connection: Upgrade" and "Upgrade: ${execProtocol}".`
    refuseUpgrade(socket, 400, { code: 'bad_request', message, blame: 'caller' })
    return
  }
  socket.write(
    `HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: ${execProtocol}\r\n\r\n`,
  )
  if (head.length > 0) socket.unshift(head)
  void new Connection(socket, options).serve()
}

/** An ordinary JSON error in place of the upgrade. */
export function refuseUpgrade(
  socket: Duplex,
  status: number,
  error: { code: string; message: string; blame: string },
): void {
  const body = JSON.stringify(error)
  socket.end(
    `HTTP/1.1 ${status} Refused\r\nContent-Type: application/json\r\nConnection: close\r\n` +
      `Content-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`,
  )
}

class Connection {
  readonly #socket: Duplex
  readonly #options: ServeExecOptions
  readonly #frames = new FrameReader()
  readonly #stop = new AbortController()
  readonly #started = Promise.withResolvers<ExecStart>()
  readonly #stdin: StdinQueue
  #start: ExecStart | null = null

  constructor(socket: Duplex, options: ServeExecOptions) {
    this.#socket = socket
    this.#options = options
    this.#stdin = new StdinQueue((total) => {
      this.#acknowledge(total)
    })
  }

  async serve(): Promise<void> {
    const socket = this.#socket
    const exec = randomBytes(12).toString('hex')
    socket.on('data', (chunk: Buffer) => {
      this.#read(chunk)
    })
    for (const event of ['end', 'close'] as const)
      socket.on(event, () => {
        this.#left()
      })
    const late = setTimeout(() => {
      this.#started.reject(bad(`No START frame came within ${startDeadlineMs / 1000} s.`))
    }, startDeadlineMs)
    try {
      this.#start = await this.#started.promise
      clearTimeout(late)
      this.#sendLast(encodeJsonFrame(frameType.exit, await this.#run(exec, this.#start)))
    } catch (thrown) {
      this.#sendLast(encodeJsonFrame(frameType.error, wireError(thrown)))
    } finally {
      clearTimeout(late)
      this.#stdin.readable.destroy()
    }
  }

  async #run(exec: string, start: ExecStart): Promise<ExecEnd> {
    const { engine, containerId, cgroup, signal, recorder } = this.#options
    recorder?.started(exec, start)
    const stop =
      signal === undefined ? this.#stop.signal : AbortSignal.any([this.#stop.signal, signal])
    stop.addEventListener('abort', () => {
      // A client that takes no output must not keep a command that has been ended from being over.
      setTimeout(() => this.#socket.destroy(), stalledClientMs).unref()
    })
    try {
      const end = await runExec(engine, containerId, start, {
        execId: exec,
        cgroup,
        stdin: this.#stdin.readable,
        signal: stop,
        onStarted: () => {
          if (this.#isOpen()) this.#socket.write(encodeJsonFrame(frameType.started, { exec }))
        },
        onOutput: (stream, offset, bytes) => {
          recorder?.output(exec, bytes)
          return this.#send(stream, offset, bytes)
        },
      })
      recorder?.ended(end)
      return end
    } catch (thrown) {
      recorder?.failed(exec, wireError(thrown).message, thrown)
      throw thrown
    }
  }

  #sendLast(frame: Buffer): void {
    if (this.#isOpen()) this.#socket.end(frame)
    else this.#socket.destroy()
  }

  async #send(stream: OutputStream, offset: number, bytes: Buffer): Promise<void> {
    const type = stream === 'stdout' ? frameType.stdout : frameType.stderr
    const socket = this.#socket
    for (let at = 0; at < bytes.length && this.#isOpen(); at += frameBytes) {
      const part = bytes.subarray(at, at + frameBytes)
      socket.cork()
      socket.write(outputHeader(type, offset + at, part.length))
      const more = socket.write(part)
      socket.uncork()
      if (!more) await drained(socket)
    }
  }

  #read(chunk: Buffer): void {
    try {
      for (const { type, payload } of this.#frames.push(chunk)) this.#frame(type, payload)
    } catch (thrown) {
      this.#started.reject(thrown instanceof RangeError ? bad(thrown.message) : thrown)
      this.#stop.abort('killed')
    }
  }

  #frame(type: number, payload: Buffer): void {
    switch (type) {
      case frameType.start:
        this.#started.resolve(this.#parseStart(payload))
        return
      case frameType.stdin:
        this.#stdin.push(payload)
        if (this.#stdin.queuedBytes > stdinLimitBytes) this.#socket.pause()
        return
      case frameType.stdinEnd:
        this.#stdin.end()
        return
      case frameType.kill:
        this.#stop.abort('killed')
        return
      default:
        throw bad(`A client never sends frames of type ${type}.`)
    }
  }

  #parseStart(payload: Buffer): ExecStart {
    let value: unknown
    try {
      value = JSON.parse(payload.toString('utf8'))
    } catch {
      throw bad('START holds no JSON.')
    }
    const parsed = execStartSchema.safeParse(value)
    if (!parsed.success) throw bad(`START is wrong: ${zodMessage(parsed.error)}`)
    const user = parsed.data.user ?? this.#options.defaults?.user
    const workdir = parsed.data.workdir ?? this.#options.defaults?.workdir
    return {
      ...parsed.data,
      ...(user === undefined ? {} : { user }),
      ...(workdir === undefined ? {} : { workdir }),
    }
  }

  #left(): void {
    this.#started.reject(bad('The client left before START.'))
    if (this.#start?.onDisconnect !== 'continue') this.#stop.abort('disconnected')
    this.#stdin.end()
  }

  #acknowledge(totalBytes: number): void {
    if (!this.#isOpen()) return
    if (this.#socket.isPaused()) this.#socket.resume()
    if (this.#start?.stdinAcks !== true) return
    const payload = Buffer.alloc(8)
    payload.writeBigUInt64BE(BigInt(totalBytes))
    this.#socket.write(encodeFrame(frameType.stdinAck, payload))
  }

  #isOpen(): boolean {
    return !this.#socket.destroyed && this.#socket.writable
  }
}

function bad(message: string): RequestError {
  return new RequestError('bad_request', 'caller', message)
}

function wireError(thrown: unknown): { code: string; message: string; blame: string } {
  if (thrown instanceof ClosedbookError)
    return { code: thrown.code, message: thrown.message, blame: thrown.blame }
  return { code: 'internal', message: 'The daemon failed; its log says how.', blame: 'infra' }
}

/** Resolves when the socket takes more, or never will. */
async function drained(socket: Duplex): Promise<void> {
  const done = new AbortController()
  const { signal } = done
  await Promise.race([once(socket, 'drain', { signal }), once(socket, 'close', { signal })]).catch(
    () => undefined,
  )
  done.abort()
}
