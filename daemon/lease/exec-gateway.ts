/**
 * The exec API as a harness sandbox sees it: on loopback in its own namespace, reaching one other lease and nothing
 * else. Which lease that is was fixed when the listener was made; nothing in a request can name another.
 */
import http from 'node:http'
import type net from 'node:net'
import type { Duplex } from 'node:stream'
import { ClosedbookError } from '../errors.ts'

export interface ExecTarget {
  /** Waits until the target is ready and proven; rejects when it will never be. */
  ready(signal: AbortSignal): Promise<void>
  exec(request: http.IncomingMessage, socket: Duplex, head: Buffer): void
}

export class ExecGateway implements AsyncDisposable {
  readonly #server: http.Server
  readonly #sockets = new Set<net.Socket>()
  #shut = false

  constructor(listener: net.Server, target: ExecTarget, name: string) {
    this.#server = http.createServer((request, response) => {
      const answer = (status: number, body: object): void => {
        response.writeHead(status, { 'content-type': 'application/json' })
        response.end(JSON.stringify(body))
      }
      const gone = new AbortController()
      response.once('close', () => gone.abort())
      request.resume()
      if (request.method === 'GET' && request.url === '/v1/ping')
        return answer(200, { status: 'ok' })
      if (this.#shut) return answer(409, shutError)
      if (request.method === 'POST' && request.url === '/v1/run')
        return void target.ready(gone.signal).then(
          () => answer(200, { id: name }),
          (error: unknown) => answer(503, wireError(error)),
        )
      if (request.method === 'POST' && request.url === '/v1/stop') return answer(200, {})
      return answer(404, { code: 'not_found', message: 'no such path here', blame: 'caller' })
    })
    this.#server.on('upgrade', (request, socket, head) => {
      socket.on('error', () => {})
      if (this.#shut || request.method !== 'POST' || request.url !== '/v1/exec')
        return refuse(
          socket,
          this.#shut ? shutError : { code: 'not_found', message: 'no such path', blame: 'caller' },
        )
      try {
        target.exec(request, socket, head)
      } catch (error) {
        refuse(socket, wireError(error))
      }
    })
    this.#server.on('clientError', (_error, socket) => socket.destroy())
    // It never listens itself, so it keeps no list of its connections to close.
    listener.on('connection', (socket) => {
      this.#sockets.add(socket)
      socket.once('close', () => this.#sockets.delete(socket))
      this.#server.emit('connection', socket)
    })
  }

  /** From now on nothing new is run; what runs is ended by the freeze. */
  shut(): void {
    this.#shut = true
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#shut = true
    for (const socket of this.#sockets) socket.destroy()
  }
}

const shutError = { code: 'lease_wrong_state', message: 'the agent phase is over', blame: 'caller' }

const wireError = (error: unknown): object =>
  error instanceof ClosedbookError
    ? { code: error.code, message: error.message, blame: error.blame }
    : { code: 'internal', message: 'the daemon failed; see its log', blame: 'infra' }

function refuse(socket: Duplex, body: object): void {
  const text = JSON.stringify(body)
  socket.end(
    `HTTP/1.1 409 Conflict\r\nContent-Type: application/json\r\nContent-Length: ${Buffer.byteLength(text)}\r\nConnection: close\r\n\r\n${text}`,
  )
}
