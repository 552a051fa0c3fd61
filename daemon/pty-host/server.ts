/** The host's side of pty/host-protocol.ts. */
import http from 'node:http'
import { Socket } from 'node:net'
import type { Duplex } from 'node:stream'
import { WebSocketServer } from 'ws'
import type { z } from 'zod'
import { ClosedbookError, RequestError } from '../errors.ts'
import type { Logger } from '../logger.ts'
import { statusByCode } from '../protocol/api.ts'
import { maxMessageBytes, ptyClose, ptyProtocol } from '../protocol/pty-frames.ts'
import { ptyMarkerSchema } from '../protocol/pty.ts'
import { packageVersion } from '../protocol/version.ts'
import { zodMessage } from '../protocol/zod-message.ts'
import {
  attachHeaders,
  handedViewerSchema,
  heartbeatMs,
  hostProtocol,
  openSessionSchema,
} from '../pty/host-protocol.ts'
import type { Session } from '../pty/session.ts'
import type { Sessions } from '../pty/sessions.ts'
import { Viewer } from '../pty/viewer.ts'

export interface HostServerDeps {
  readonly sessions: Sessions
  readonly shutdown: () => void
  readonly log: Logger
}

interface Answer {
  readonly status: number
  readonly body: object
}

const bodyLimitBytes = 4 * 1024 * 1024
const ok = (body: object = {}): Answer => ({ status: 200, body })

export class HostServer {
  readonly server: http.Server
  readonly #deps: HostServerDeps
  readonly #sockets = new WebSocketServer({
    noServer: true,
    maxPayload: maxMessageBytes,
    perMessageDeflate: false,
    clientTracking: false,
    handleProtocols: (protocols) => (protocols.has(ptyProtocol) ? ptyProtocol : false),
  })
  readonly #viewers = new Map<string, Viewer>()
  readonly #handed = new Set<Socket>()
  #daemons = 0

  constructor(deps: HostServerDeps) {
    this.#deps = deps
    this.server = http.createServer({ requestTimeout: 0, headersTimeout: 15_000 })
    this.server.on('request', (request, response) => void this.#serve(request, response))
    this.server.on('upgrade', (request, socket, head) => this.#attach(request, socket, head))
    this.server.on('clientError', (_error, socket) => socket.destroy())
  }

  /** A daemon listens. */
  get hasDaemon(): boolean {
    return this.#daemons > 0
  }

  /** A viewer's socket, from the daemon that started this host. */
  take(message: unknown, socket: unknown): void {
    const parsed = handedViewerSchema.safeParse(message)
    if (!(socket instanceof Socket)) return
    if (!parsed.success) return void socket.destroy()
    const request = Object.assign(new http.IncomingMessage(socket), {
      method: 'GET',
      ...parsed.data,
    })
    this.#handed.add(socket)
    socket.once('close', () => this.#handed.delete(socket))
    this.#attach(request, socket, Buffer.alloc(0))
  }

  /** That daemon is gone: who looks on must come back by the next one, which asks again who it is. */
  dropHanded(): void {
    for (const socket of this.#handed) socket.destroy()
  }

  async #serve(request: http.IncomingMessage, response: http.ServerResponse): Promise<void> {
    const url = new URL(request.url ?? '/', 'http://host')
    try {
      if (request.method === 'GET' && url.pathname === '/events') return this.#events(response)
      const { status, body } = await this.#answer(request, url)
      send(response, status, body)
    } catch (error) {
      if (response.destroyed) return
      if (!(error instanceof ClosedbookError)) this.#deps.log.error({ err: error }, 'pty.crashed')
      const known = error instanceof ClosedbookError
      send(
        response,
        known ? (statusByCode[error.code] ?? 500) : 500,
        known
          ? { code: error.code, message: error.message, blame: error.blame }
          : { code: 'internal', message: 'the pty-host failed; see pty/host.log', blame: 'infra' },
      )
    }
  }

  async #answer(request: http.IncomingMessage, url: URL): Promise<Answer> {
    const { sessions, shutdown } = this.#deps
    const [, kind = '', id = '', what = ''] = url.pathname.split('/')
    switch (`${request.method} ${kind}${id === '' ? '' : '/:id'}${what === '' ? '' : `/${what}`}`) {
      case 'GET hello':
        return ok({
          protocol: hostProtocol,
          pid: process.pid,
          version: packageVersion,
          running: sessions.running,
        })
      case 'GET sessions':
        return ok({ ptys: sessions.views() })
      case 'GET counts':
        return ok({ ...sessions.tally, attachments: this.#viewers.size })
      case 'POST sessions':
        return {
          status: 201,
          body: await sessions.open(await readJson(request, openSessionSchema)),
        }
      case 'DELETE sessions/:id': {
        const session = this.#find(id)
        await session.kill('killed', { alone: url.searchParams.get('alone') === 'true' })
        return ok(sessions.view(id) ?? {})
      }
      case 'POST sessions/:id/markers':
        this.#find(id).marker((await readJson(request, ptyMarkerSchema)).label)
        return ok()
      case 'DELETE attachments/:id':
        this.#viewers
          .get(id)
          ?.close(Number(url.searchParams.get('code') ?? ptyClose.unauthorized), 'closed')
        return ok()
      case 'DELETE leases/:id':
        await sessions.closeLease(id)
        return ok()
      case 'POST shutdown':
        shutdown()
        return ok()
      default:
        throw new RequestError('not_found', 'caller', `no such path: ${url.pathname}`)
    }
  }

  #find(pty: string): Session {
    const session = this.#deps.sessions.find(pty)
    if (session !== undefined) return session
    throw new RequestError('not_found', 'caller', `no PTY session ${pty} is held here`)
  }

  #events(response: http.ServerResponse): void {
    this.#daemons += 1
    response.writeHead(200, { 'content-type': 'application/x-ndjson' })
    response.flushHeaders()
    const stop = this.#deps.sessions.listen((event) => {
      response.write(`${JSON.stringify(event)}\n`)
    })
    const beat = setInterval(() => response.write('\n'), heartbeatMs)
    response.once('close', () => {
      this.#daemons -= 1
      clearInterval(beat)
      stop()
    })
  }

  #attach(request: http.IncomingMessage, socket: Duplex, head: Buffer): void {
    socket.on('error', () => {})
    const [, , pty = ''] = new URL(request.url ?? '/', 'http://host').pathname.split('/')
    const header = (name: string): string => String(request.headers[name] ?? '')
    this.#sockets.handleUpgrade(request, socket, head, (webSocket) => {
      const session = this.#deps.sessions.find(pty)
      // Told by its own protocol: a browser can't read the status of a refused upgrade.
      if (session === undefined) return webSocket.close(ptyClose.noSession, 'no such session')
      const id = header(attachHeaders.attachment)
      const viewer = new Viewer(webSocket, session, {
        mayControl: header(attachHeaders.mayControl) === 'true',
        name: header(attachHeaders.name),
      })
      this.#viewers.set(id, viewer)
      webSocket.once('close', () => {
        if (this.#viewers.get(id) === viewer) this.#viewers.delete(id)
      })
    })
  }
}

function send(response: http.ServerResponse, status: number, body: object): void {
  const text = JSON.stringify(body)
  response.writeHead(status, {
    'content-type': 'application/json',
    'content-length': Buffer.byteLength(text),
  })
  response.end(text)
}

async function readJson<T>(request: http.IncomingMessage, schema: z.ZodType<T>): Promise<T> {
  const chunks: Buffer[] = []
  let size = 0
  for await (const chunk of request as AsyncIterable<Buffer>) {
    size += chunk.length
    if (size > bodyLimitBytes)
      throw new RequestError('too_large', 'caller', 'the body is too large')
    chunks.push(chunk)
  }
  const parsed = schema.safeParse(JSON.parse(Buffer.concat(chunks).toString()))
  if (parsed.success) return parsed.data
  throw new RequestError('bad_request', 'caller', zodMessage(parsed.error))
}
