/**
 * The lease API's HTTP server: matches routes, turns errors into `{code, message, blame}` with a status, and gives
 * every handler a signal that aborts when its client goes away.
 */
import http from 'node:http'
import type { Duplex } from 'node:stream'
import type { z } from 'zod'
import { ClosedbookError, RequestError } from '../errors.ts'
import type { Logger } from '../logger.ts'
import { statusByCode } from '../protocol/api.ts'
import { zodMessage } from '../protocol/zod-message.ts'

export interface Call {
  readonly request: http.IncomingMessage
  readonly response: http.ServerResponse
  readonly url: URL
  /** Values of the `:name` parts of the route. */
  readonly params: Readonly<Record<string, string>>
  /** Aborts when the client goes away. */
  readonly signal: AbortSignal
}

export type Handler = (call: Call) => Promise<void> | void

interface Route {
  readonly method: string
  readonly parts: readonly string[]
  readonly handler: Handler
}

export type UpgradeHandler = (
  request: http.IncomingMessage,
  socket: Duplex,
  head: Buffer,
  params: Readonly<Record<string, string>>,
) => void

const jsonLimitBytes = 4 * 1024 * 1024

export class Router {
  readonly #routes: Route[] = []
  readonly #upgrades: { parts: readonly string[]; handler: UpgradeHandler }[] = []
  readonly #log: Logger

  constructor(log: Logger) {
    this.#log = log
  }

  on(method: string, path: string, handler: Handler): void {
    this.#routes.push({ method, parts: path.split('/'), handler })
  }

  onUpgrade(path: string, handler: UpgradeHandler): void {
    this.#upgrades.push({ parts: path.split('/'), handler })
  }

  createServer(): http.Server {
    const server = http.createServer({ requestTimeout: 0, headersTimeout: 15_000 })
    server.on('request', (request, response) => void this.#serve(request, response))
    server.on('upgrade', (request, socket, head) => this.#upgrade(request, socket, head))
    server.on('clientError', (_error, socket) => socket.destroy())
    return server
  }

  async #serve(request: http.IncomingMessage, response: http.ServerResponse): Promise<void> {
    const gone = new AbortController()
    response.once('close', () => gone.abort())
    try {
      const url = urlOf(request)
      const found = this.#find(request.method ?? 'GET', url.pathname)
      await found.handler({
        request,
        response,
        url,
        params: found.params,
        signal: gone.signal,
      })
    } catch (error) {
      if (gone.signal.aborted && response.destroyed) return
      this.#fail(response, error)
    }
  }

  #find(method: string, pathname: string): { handler: Handler; params: Record<string, string> } {
    let other = false
    for (const route of this.#routes) {
      const params = match(route.parts, pathname)
      if (params === null) continue
      if (route.method === method) return { handler: route.handler, params }
      other = true
    }
    throw new RequestError(
      'not_found',
      'caller',
      other ? `${method} is not possible on ${pathname}` : `no such path: ${pathname}`,
    )
  }

  #upgrade(request: http.IncomingMessage, socket: Duplex, head: Buffer): void {
    socket.on('error', () => {})
    try {
      const { pathname } = urlOf(request)
      for (const { parts, handler } of this.#upgrades) {
        const params = match(parts, pathname)
        if (params !== null) return handler(request, socket, head, params)
      }
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

  #fail(response: http.ServerResponse, error: unknown): void {
    const { status, body } = this.#wire(error)
    if (response.headersSent) {
      response.destroy()
      return
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

export async function readJson<T>(call: Call, schema: z.ZodType<T>): Promise<T> {
  const body = await readBody(call.request)
  let value: unknown
  try {
    value = JSON.parse(body.toString())
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
async function readBody(request: http.IncomingMessage): Promise<Buffer> {
  const chunks: Buffer[] = []
  let size = 0
  const read = Promise.withResolvers<void>()
  request.on('data', (chunk: Buffer) => {
    size += chunk.length
    if (size <= jsonLimitBytes) chunks.push(chunk)
    else
      read.reject(
        new RequestError('too_large', 'caller', `the body has more than ${jsonLimitBytes} bytes`),
      )
  })
  request.once('end', read.resolve)
  request.once('error', read.reject)
  await read.promise
  return Buffer.concat(chunks)
}
