/**
 * Follows a numbered stream of the daemon over WebSocket (stream-frames.ts) and comes back after a lost connection for
 * the number after the last one it gave. What its reader has not taken waits with the daemon, not here. It gives up
 * only where trying again is pointless: a refusal, an ended credential, the end of the stream.
 */
import { setTimeout as delay } from 'node:timers/promises'
import { WebSocket } from 'ws'
import { z } from 'zod'
import { RemoteError } from './errors.ts'
import { retryDelayMs, silenceMs } from './reconnect.ts'
import {
  isFinalStreamClose,
  streamClose,
  streamProtocol,
  type StreamItem,
} from './stream-frames.ts'
import { webSocketAddress, type DaemonTarget } from './target.ts'
import { understood } from './understood.ts'

export interface FollowOptions {
  /** First number wanted. */
  readonly from?: number
  /** Ends with what there is, in place of waiting for more. */
  readonly toEnd?: boolean
  readonly signal?: AbortSignal
  /** `lost` with how long until the next try. */
  readonly onState?: (state: 'connected' | 'lost', retryMs: number) => void
}

const itemSchema = z.strictObject({ n: z.int().positive(), data: z.json() })
/** Items that were received and not taken; nothing is read from the socket beyond. */
const heldItems = 256

/** Ends when the stream has, or `signal` aborts. Throws RemoteError. */
export async function* followStream(
  daemon: DaemonTarget,
  path: string,
  { from = 1, toEnd = false, signal, onState }: FollowOptions = {},
): AsyncGenerator<StreamItem> {
  let next = from
  let tries = 0
  const gone = (): boolean => signal?.aborted === true
  while (!gone()) {
    const connection = new Connection(daemon, `${path}?from=${next}&follow=${!toEnd}`, {
      onOpen: () => {
        tries = 0
        onState?.('connected', 0)
      },
    })
    const stop = (): void => connection.close()
    signal?.addEventListener('abort', stop, { once: true })
    try {
      for await (const item of connection.items()) {
        next = item.n + 1
        yield item
      }
      if (connection.ended) return
    } finally {
      signal?.removeEventListener('abort', stop)
      connection.close()
    }
    if (gone()) return
    const retryMs = retryDelayMs(tries)
    tries += 1
    onState?.('lost', retryMs)
    await delay(retryMs, undefined, signal === undefined ? {} : { signal }).catch(() => {})
  }
}

class Connection {
  readonly #socket: WebSocket
  readonly #received: StreamItem[] = []
  #wake: () => void = () => {}
  #closed = false
  #ended = false
  #error: RemoteError | null = null

  constructor(daemon: DaemonTarget, path: string, { onOpen }: { onOpen: () => void }) {
    const { address, options } = webSocketAddress(daemon, path)
    const socket = new WebSocket(address, streamProtocol, {
      ...options,
      perMessageDeflate: false,
      handshakeTimeout: 15_000,
    })
    this.#socket = socket
    const watchdog = setTimeout(() => {
      // of one whose reader takes its time nothing is read, and so nothing heard
      if (socket.isPaused) watchdog.refresh()
      else socket.terminate()
    }, silenceMs)
    socket.on('error', () => {})
    socket.on('open', onOpen)
    socket.on('ping', () => watchdog.refresh())
    socket.on('unexpected-response', (_request, response) => {
      const status = response.statusCode ?? 0
      response.resume()
      if (status >= 400 && status < 500 && status !== 429) this.#error = refusal(status)
      socket.terminate()
    })
    socket.on('message', (data: Buffer) => {
      watchdog.refresh()
      try {
        this.#received.push(understood(itemSchema, JSON.parse(data.toString())))
      } catch (error) {
        this.#error = error instanceof RemoteError ? error : notUnderstood(error)
        socket.terminate()
      }
      if (this.#received.length >= heldItems) socket.pause()
      this.#wake()
    })
    socket.on('close', (code, reason) => {
      clearTimeout(watchdog)
      this.#closed = true
      this.#ended = code === streamClose.ended
      if (!this.#ended && isFinalStreamClose(code)) this.#error ??= closedError(code, reason)
      this.#wake()
    })
  }

  /** In order, and by its end. */
  get ended(): boolean {
    return this.#ended
  }

  async *items(): AsyncGenerator<StreamItem> {
    for (;;) {
      const item = this.#received.shift()
      if (item !== undefined) {
        yield item
        continue
      }
      if (this.#error !== null) throw this.#error
      if (this.#closed) return
      this.#socket.resume()
      await new Promise<void>((resolve) => (this.#wake = resolve))
    }
  }

  close(): void {
    this.#socket.terminate()
    this.#closed = true
    this.#wake()
  }
}

function refusal(status: number): RemoteError {
  if (status === 401 || status === 403)
    return new RemoteError(
      status === 401 ? 'unauthenticated' : 'forbidden',
      'caller',
      'the daemon refused the token; `closedbook token create --role view` makes one there',
    )
  return new RemoteError(
    status === 404 ? 'not_found' : 'daemon_refused',
    'caller',
    `the daemon refused the stream (${status})`,
  )
}

function closedError(code: number, reason: Buffer): RemoteError {
  if (code === streamClose.unauthorized)
    return new RemoteError('unauthenticated', 'caller', 'the credential of this stream has ended')
  return new RemoteError(
    'daemon_protocol',
    'infra',
    `the daemon closed the stream (${code}: ${reason.toString()})`,
  )
}

const notUnderstood = (cause: unknown): RemoteError =>
  new RemoteError('daemon_protocol', 'infra', 'the daemon sent what is no item of a stream', {
    cause,
  })
