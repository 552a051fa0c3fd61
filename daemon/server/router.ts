/**
 * The lease API's HTTP server: matches routes, asks the gate whether the request may do what its route needs, turns
 * errors into `{code, message, blame}` with a status, and gives every handler a signal that aborts when its client goes
 * away. A route says which role it needs where it is added; without a gate (tests) everybody is an admin.
 */
import http from 'node:http'
import https from 'node:https'
import type net from 'node:net'
import type { Duplex } from 'node:stream'
import type { z } from 'zod'
import { ClosedbookError, RequestError } from '../errors.ts'
import type { Logger } from '../logger.ts'
import { statusByCode } from '../protocol/api.ts'
import { zodMessage } from '../protocol/zod-message.ts'
import { AuthError, socketAccess, type Access, type Door, type Need } from './auth/access.ts'
import type { Gate } from './auth/gate.ts'

export interface Call {
  readonly request: http.IncomingMessage
  readonly response: http.ServerResponse
  readonly url: URL
  /** Values of the `:name` parts of the route. */
  readonly params: Readonly<Record<string, string>>
  /** Aborts when the client goes away, or what it was let in by ends. */
  readonly signal: AbortSignal
  readonly access: Access
}

export type Handler = (call: Call) => Promise<void> | void

/** What is declared of a route: who may use it, and what the OpenAPI document says of it. */
export interface RouteSpec {
  readonly role: Need
  readonly summary: string
  readonly query?: z.ZodType
  readonly body?: z.ZodType
  /** Of a JSON answer. */
  readonly answer?: z.ZodType
  /** Of another answer, or of another body. */
  readonly type?: string
  readonly bodyType?: string
  readonly status?: number
}

export interface Route extends RouteSpec {
  readonly method: string
  readonly path: string
  readonly parts: readonly string[]
  readonly handler: Handler
}

/** `access.over` must end the socket. */
export type UpgradeHandler = (
  request: http.IncomingMessage,
  socket: Duplex,
  head: Buffer,
  params: Readonly<Record<string, string>>,
  access: Access,
) => void

export interface UpgradeRoute extends RouteSpec {
  readonly path: string
  readonly parts: readonly string[]
  readonly handler: UpgradeHandler
}

/** A credential that has ended closes its sockets by their own protocol; this is for those that do not obey. */
const overGraceMs = 5_000

/** What an answer says to browsers unless its route says otherwise: no type guessed, not embedded elsewhere, not kept. */
const networkHeaders = [
  ['x-content-type-options', 'nosniff'],
  ['cross-origin-resource-policy', 'same-origin'],
  ['cache-control', 'no-store'],
] as const

const jsonLimitBytes = 4 * 1024 * 1024

export class Router {
  readonly #routes: Route[] = []
  readonly #upgrades: UpgradeRoute[] = []
  readonly #log: Logger
  readonly #gate: Gate | null

  constructor(log: Logger, gate: Gate | null = null) {
    this.#log = log
    this.#gate = gate
  }

  get routes(): readonly Route[] {
    return this.#routes
  }

  get upgrades(): readonly UpgradeRoute[] {
    return this.#upgrades
  }

  on(method: string, path: string, spec: RouteSpec, handler: Handler): void {
    this.#routes.push({ ...spec, method, path, parts: path.split('/'), handler })
  }

  onUpgrade(path: string, spec: RouteSpec, handler: UpgradeHandler): void {
    this.#upgrades.push({ ...spec, path, parts: path.split('/'), handler })
  }

  createServer(door: Door = { kind: 'socket' }, tls?: https.ServerOptions): http.Server {
    const options = { requestTimeout: 0, headersTimeout: 15_000 }
    const server =
      tls === undefined
        ? http.createServer(options)
        : https.createServer({ ...options, ...tls, handshakeTimeout: 10_000 })
    server.on('request', (request, response) => void this.#serve(request, response, door))
    server.on('upgrade', (request, socket, head) => this.#upgrade(request, socket, head, door))
    server.on('clientError', (_error, socket) => socket.destroy())
    server.on('tlsClientError', (_error: Error, socket: net.Socket) => socket.destroy())
    return server
  }

  async #serve(
    request: http.IncomingMessage,
    response: http.ServerResponse,
    door: Door,
  ): Promise<void> {
    const gone = new AbortController()
    response.once('close', () => gone.abort())
    if (door.kind === 'network')
      for (const [name, value] of networkHeaders) response.setHeader(name, value)
    try {
      const url = urlOf(request)
      const { pathname } = url
      const found = this.#find(request.method ?? 'GET', pathname)
      const need = 'role' in found ? found.role : 'view'
      const access = this.#authorize(request, { door, need, pathname, upgrade: false })
      if (!('role' in found)) throw found.error
      const over = endOnRevoke(access, response, gone)
      try {
        await found.handler({
          request,
          response,
          url,
          params: found.params,
          signal: gone.signal,
          access,
        })
      } finally {
        if (response.writableEnded || response.destroyed) over()
        else response.once('close', over)
      }
    } catch (error) {
      if (gone.signal.aborted && response.destroyed) return
      this.#fail(request, response, error)
    }
  }

  #authorize(request: http.IncomingMessage, asked: Parameters<Gate['authorize']>[1]): Access {
    return this.#gate === null ? socketAccess : this.#gate.authorize(request, asked)
  }

  /** A path that there is not is told only to those who may look. */
  #find(
    method: string,
    pathname: string,
  ): { handler: Handler; params: Record<string, string>; role: Need } | { error: RequestError } {
    let other = false
    for (const route of this.#routes) {
      const params = match(route.parts, pathname)
      if (params === null) continue
      if (route.method === method) return { handler: route.handler, params, role: route.role }
      other = true
    }
    return { error: this.#unknown(method, pathname, other) }
  }

  #unknown(method: string, pathname: string, other: boolean): RequestError {
    return new RequestError(
      'not_found',
      'caller',
      other ? `${method} is not possible on ${pathname}` : `no such path: ${pathname}`,
    )
  }

  #upgrade(request: http.IncomingMessage, socket: Duplex, head: Buffer, door: Door): void {
    socket.on('error', () => {})
    try {
      const { pathname } = urlOf(request)
      for (const { parts, handler, role } of this.#upgrades) {
        const params = match(parts, pathname)
        if (params === null) continue
        const asked = { door, need: role, pathname, upgrade: true }
        const access = this.#authorize(request, asked)
        destroyOnRevoke(access, socket)
        return handler(request, socket, head, params, access)
      }
      this.#authorize(request, { door, need: 'view', pathname, upgrade: true })
      throw new RequestError('not_found', 'caller', `no such path: ${pathname}`)
    } catch (error) {
      const { status, body } = this.#wire(error)
      const text = JSON.stringify(body)
      socket.end(
        `HTTP/1.1 ${status} ${http.STATUS_CODES[status] ?? ''}\r\nContent-Type: application/json\r\n` +
          `Content-Length: ${Buffer.byteLength(text)}\r\nConnection: close\r\n\r\n${text}`,
      )
    }
  }

  #fail(request: http.IncomingMessage, response: http.ServerResponse, error: unknown): void {
    const { status, body } = this.#wire(error)
    if (response.headersSent) {
      response.destroy()
      return
    }
    if (error instanceof AuthError) {
      // Nothing more is read of a stranger than what came with the question.
      if (!request.complete) response.setHeader('connection', 'close')
      if (status === 401) response.setHeader('www-authenticate', 'Bearer realm="closedbook"')
      if (status === 429) response.setHeader('retry-after', '10')
    }
    sendJson(response, status, body)
  }

  #wire(error: unknown): { status: number; body: object } {
    if (error instanceof ClosedbookError) {
      const status = statusByCode[error.code] ?? 500
      if (status >= 500) this.#log.warn({ err: error }, 'request.failed')
      return { status, body: { code: error.code, message: error.message, blame: error.blame } }
    }
    this.#log.error({ err: error }, 'request.crashed')
    return {
      status: 500,
      body: {
        code: 'internal',
        message: "the daemon failed on this request; its log has the cause ('request.crashed')",
        blame: 'infra',
      },
    }
  }
}

/** Streams that were let in by a credential end with it; returns what forgets about it. */
function endOnRevoke(
  { over }: Access,
  response: http.ServerResponse,
  gone: AbortController,
): () => void {
  const end = (): void => {
    gone.abort()
    if (!response.writableEnded) response.destroy()
  }
  over.addEventListener('abort', end, { once: true })
  return () => over.removeEventListener('abort', end)
}

function destroyOnRevoke({ over }: Access, socket: Duplex): void {
  const end = (): void => {
    const timer = setTimeout(() => socket.destroy(), overGraceMs)
    timer.unref()
    socket.once('close', () => clearTimeout(timer))
  }
  over.addEventListener('abort', end, { once: true })
  socket.once('close', () => over.removeEventListener('abort', end))
}

function match(parts: readonly string[], pathname: string): Record<string, string> | null {
  const actual = pathname.split('/')
  if (actual.length !== parts.length) return null
  const params: Record<string, string> = {}
  for (const [index, part] of parts.entries()) {
    const value = actual[index] ?? ''
    if (part.startsWith(':')) params[part.slice(1)] = decoded(value)
    else if (part !== value) return null
  }
  return params
}

function urlOf(request: http.IncomingMessage): URL {
  const url = URL.parse(request.url ?? '/', 'http://daemon')
  if (url !== null) return url
  throw new RequestError(
    'bad_request',
    'caller',
    `${JSON.stringify(request.url)} is no path of this API`,
  )
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part)
  } catch {
    throw new RequestError(
      'bad_request',
      'caller',
      `${JSON.stringify(part)} is no part of a path: escape it as UTF-8`,
    )
  }
}

export function sendJson(response: http.ServerResponse, status: number, body: object): void {
  const text = JSON.stringify(body)
  response.writeHead(status, {
    'content-type': 'application/json',
    'content-length': Buffer.byteLength(text),
  })
  response.end(text)
}

export async function readText(call: Call, limitBytes: number): Promise<string> {
  return (await readBody(call.request, limitBytes)).toString()
}

export async function readJson<T>(call: Call, schema: z.ZodType<T>): Promise<T> {
  const text = await readText(call, jsonLimitBytes)
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch (error) {
    throw new RequestError(
      'bad_request',
      'caller',
      `the body is not JSON: ${(error as Error).message}`,
    )
  }
  const parsed = schema.safeParse(value)
  if (!parsed.success) throw new RequestError('bad_request', 'caller', zodMessage(parsed.error))
  return parsed.data
}

/** What is beyond the limit is read and dropped: a request that is cut off would take its answer along. */
async function readBody(request: http.IncomingMessage, limitBytes: number): Promise<Buffer> {
  const chunks: Buffer[] = []
  let size = 0
  const read = Promise.withResolvers<void>()
  request.on('data', (chunk: Buffer) => {
    size += chunk.length
    if (size <= limitBytes) chunks.push(chunk)
    else
      read.reject(
        new RequestError('too_large', 'caller', `the body has more than ${limitBytes} bytes`),
      )
  })
  request.once('end', read.resolve)
  request.once('error', read.reject)
  await read.promise
  return Buffer.concat(chunks)
}
