/**
 * A numbered stream as its reader likes it: JSON lines, server-sent events, or messages of a WebSocket
 * (protocol/stream-frames.ts). Whatever the way, it is read from disk at the reader's pace, so that one who is slow
 * holds a place and a small buffer; a socket that takes nothing for long is cut, and comes back for the next number.
 */
import type { IncomingMessage } from 'node:http'
import type { Duplex } from 'node:stream'
import { WebSocketServer, type WebSocket } from 'ws'
import { z } from 'zod'
import { RequestError } from '../errors.ts'
import { encodeItem, streamClose, streamProtocol } from '../protocol/stream-frames.ts'
import type { Access } from './auth/access.ts'
import type { Call } from './router.ts'
import { beginEvents, sendEvent, write } from './server-sent.ts'

export interface NumberedLine {
  readonly n: number
  /** JSON. */
  readonly line: string
}

export interface Wanted {
  readonly from: number
  readonly follow: boolean
  readonly signal: AbortSignal
}

/** In pieces, each once the one before has been taken. */
export type Numbered = (wanted: Wanted) => AsyncIterable<readonly NumberedLine[]>

/** For the OpenAPI document. */
export const followQuerySchema = z.strictObject({
  from: z.coerce.number().int().positive().optional().describe('first number wanted'),
  follow: z.stringbool({ truthy: ['true'], falsy: ['false'] }).optional(),
})

export interface StreamSocketLimits {
  /** What may lie unwritten in a socket; nothing more is read for it then. */
  readonly windowBytes: number
  /** One that takes none of it for so long is cut. */
  readonly stallMs: number
  readonly pingMs: number
}

const defaults: StreamSocketLimits = {
  windowBytes: 256 * 1024,
  stallMs: 120_000,
  pingMs: 15_000,
}

/** JSON lines, or server-sent events where they are accepted. */
export async function serveNumbered(call: Call, numbered: Numbered): Promise<void> {
  const { request, response, signal, url } = call
  const events = request.headers.accept?.includes('text/event-stream') === true
  const last = Number(request.headers['last-event-id'] ?? NaN)
  const from = events && Number.isSafeInteger(last) ? last + 1 : numberIn(url)
  const follow = url.searchParams.get('follow') === 'true'
  using beat = events ? beginEvents(call) : undefined
  if (beat === undefined) {
    response.writeHead(200, { 'content-type': 'application/x-ndjson' })
    response.flushHeaders()
  }
  for await (const piece of numbered({ from, follow, signal })) {
    if (signal.aborted) break
    if (events)
      for (const { n, line } of piece) await sendEvent(call, { id: String(n), data: line })
    else await write(call, piece.map(({ line }) => `${line}\n`).join(''))
  }
  response.end()
}

/** Throws `bad_request`. */
export function numberIn(url: URL): number {
  const value = Number(url.searchParams.get('from') ?? 1)
  if (Number.isSafeInteger(value) && value >= 1) return value
  throw new RequestError('bad_request', 'caller', 'from must be a number of the stream, from 1 on')
}

/** All sockets of numbered streams. */
export class StreamSockets {
  readonly #limits: StreamSocketLimits
  readonly #server = new WebSocketServer({
    noServer: true,
    // it goes one way
    maxPayload: 1024,
    perMessageDeflate: false,
    clientTracking: false,
    autoPong: false,
    handleProtocols: (offered) => (offered.has(streamProtocol) ? streamProtocol : false),
  })
  #open = 0
  #stalled = 0

  constructor(limits: Partial<StreamSocketLimits> = {}) {
    this.#limits = { ...defaults, ...limits }
  }

  /** Open ones, and those that were cut because they took nothing. */
  get counts(): { open: number; stalled: number } {
    return { open: this.#open, stalled: this.#stalled }
  }

  /** From the number in the query on, as it comes; `follow=false` ends it with what there is. */
  serve(
    upgrade: { request: IncomingMessage; socket: Duplex; head: Buffer; access: Access },
    numbered: Numbered,
  ): void {
    const { request, socket, head, access } = upgrade
    const url = new URL(request.url ?? '/', 'http://daemon')
    const from = numberIn(url)
    const follow = url.searchParams.get('follow') !== 'false'
    this.#server.handleUpgrade(request, socket, head, (webSocket) => {
      void this.#send(webSocket, access, (signal) => numbered({ from, follow, signal }))
    })
  }

  async #send(
    socket: WebSocket,
    { over }: Access,
    open: (signal: AbortSignal) => AsyncIterable<readonly NumberedLine[]>,
  ): Promise<void> {
    const gone = new AbortController()
    const revoke = (): void => socket.close(streamClose.unauthorized, 'the credential has ended')
    socket.on('error', () => {})
    socket.on('message', () => socket.close(streamClose.badFrame, 'this stream goes one way'))
    socket.once('close', () => {
      over.removeEventListener('abort', revoke)
      gone.abort()
    })
    over.addEventListener('abort', revoke, { once: true })
    if (over.aborted) revoke()
    this.#open += 1
    const progress = { taken: 0 }
    using _alive = this.#keepAlive(socket)
    using _moving = this.#cutWhenStuck(socket, progress)
    try {
      for await (const piece of open(gone.signal))
        for (const { n, line } of piece) {
          if (socket.readyState !== socket.OPEN) return
          await this.#sendOne(socket, encodeItem(n, line), progress)
        }
      socket.close(streamClose.ended, 'ended')
    } catch {
      socket.close(streamClose.failed, 'the daemon failed on this stream')
    } finally {
      this.#open -= 1
    }
  }

  /** Resolves at once while there is room, else when this message has been written, or the socket is no more. */
  async #sendOne(socket: WebSocket, message: string, progress: { taken: number }): Promise<void> {
    const room = socket.bufferedAmount < this.#limits.windowBytes
    const { promise, resolve } = Promise.withResolvers<void>()
    socket.send(message, () => {
      progress.taken += 1
      resolve()
    })
    if (room) return
    socket.once('close', resolve)
    await promise
    socket.off('close', resolve)
  }

  /** Also one that is behind by less than the window: nothing more may ever come that would have to wait for it. */
  #cutWhenStuck(socket: WebSocket, progress: { readonly taken: number }): Disposable {
    let before: number | null = null
    const look = setInterval(() => {
      if (socket.bufferedAmount === 0) before = null
      else if (before !== progress.taken) before = progress.taken
      else {
        this.#stalled += 1
        socket.terminate()
      }
    }, this.#limits.stallMs)
    look.unref()
    return { [Symbol.dispose]: () => clearInterval(look) }
  }

  #keepAlive(socket: WebSocket): Disposable {
    let unanswered = false
    socket.on('pong', () => (unanswered = false))
    // one that asks and never listens would fill the memory with answers
    socket.on('ping', (data) => {
      if (socket.bufferedAmount < this.#limits.windowBytes) socket.pong(data)
    })
    const ping = setInterval(() => {
      // one that has not taken what was sent can't have seen a ping behind it
      if (socket.readyState !== socket.OPEN || socket.bufferedAmount > 0) return
      if (unanswered) return socket.terminate()
      unanswered = true
      socket.ping()
    }, this.#limits.pingMs)
    ping.unref()
    return { [Symbol.dispose]: () => clearInterval(ping) }
  }
}
