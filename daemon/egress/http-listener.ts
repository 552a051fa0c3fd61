/**
 * The HTTP side of a lease's egress: one server without a port of its own, to which the listeners hand their sockets.
 * Each request is weighed by itself, on whatever connection it comes. What the runtime's parser refuses
 * is recorded too, with its first bytes. Nothing that comes in here may throw out of it.
 */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import { decide } from '../../policy/decide.ts'
import { deny, type Reason } from '../../policy/decision.ts'
import { parseAuthority, type ParsedAuthority } from '../../policy/host.ts'
import { printable } from '../../policy/printable.ts'
import { serveConnect } from './connect.ts'
import {
  admit,
  destination,
  record,
  recordClose,
  whileOpen,
  type Attempt,
  type EgressContext,
} from './context.ts'
import { forwardHttp } from './forward-http.ts'
import { auditPath, parseAbsoluteForm } from './http-target.ts'
import { refuseResponse, refuseSocket } from './refuse.ts'
import { headFault, hostHeaders } from './request-head.ts'

/** How a socket came to us, which says whom its requests may be for. */
interface Entry {
  readonly via: 'proxy' | 'tunnel' | 'direct'
  /** The host of the CONNECT around it. */
  readonly host: string | null
  readonly address: string | null
  /** Something on this socket has been recorded. */
  recorded: boolean
  /** Requests that have not been answered. */
  open: number
}

/** A denied request's body up to this is read away, so that its connection can go on. */
const drainBytes = 64 * 1024
const checkMs = 5_000
const graceMs = 1_000

export class HttpListener {
  readonly #context: EgressContext
  readonly #server: Server
  readonly #entries = new WeakMap<object, Entry>()
  readonly #guard: (socket: Socket, work: Promise<void>) => void

  constructor(context: EgressContext, guard: (socket: Socket, work: Promise<void>) => void) {
    this.#context = context
    this.#guard = guard
    const { headersTimeoutMs, idleTimeoutMs } = context.limits
    this.#server = createServer({
      headersTimeout: headersTimeoutMs,
      // A long upload is no fault; a stalled one ends by the idle limit of its connection.
      requestTimeout: 0,
      keepAliveTimeout: Math.min(idleTimeoutMs, 60_000),
      connectionsCheckingInterval: Math.min(checkMs, headersTimeoutMs),
      // Node would answer by itself and tell nobody.
      requireHostHeader: false,
      noDelay: true,
    })
    // All of them are looked at: the runtime would hide a second Host behind the 2,000th header.
    this.#server.maxHeadersCount = 0
    // A connection that neither asks nor answers; a request under way ends by its own clock first.
    this.#server.timeout = idleTimeoutMs + graceMs
    this.#server.on('request', (request, response) => this.#onRequest(request, response, false))
    this.#server.on('checkContinue', (request, response) =>
      this.#onRequest(request, response, true),
    )
    this.#server.on('checkExpectation', (request, response) =>
      this.#onRequest(request, response, false),
    )
    this.#server.on('upgrade', (request, socket: Socket) => this.#onUpgrade(request, socket))
    this.#server.on('connect', (request, socket: Socket, head) =>
      this.#onConnect(request, socket, head),
    )
    this.#server.on('clientError', (error, socket: Socket) => this.#onClientError(error, socket))
    // Starts the check of header timeouts, which a server begins when it listens; this one never does.
    this.#server.emit('listening')
  }

  /** From the forward proxy's port, or from port 80 of any address. */
  adopt(socket: Socket, via: 'proxy' | 'direct'): void {
    const entry = this.#enter(socket, via, null)
    // A connection to port 80 that asks for nothing is still an attempt.
    if (via === 'direct') {
      socket.once('close', () => {
        if (!entry.recorded) this.#recordSilent(entry)
      })
    }
    this.#server.emit('connection', socket)
  }

  close(): void {
    this.#server.close()
    this.#server.closeAllConnections()
  }

  #adoptPlain(socket: Socket, head: Buffer, host: string): void {
    this.#enter(socket, 'tunnel', host)
    if (head.length > 0) socket.unshift(head)
    this.#server.emit('connection', socket)
  }

  #enter(socket: Socket, via: Entry['via'], host: string | null): Entry {
    const address = via === 'direct' ? destination(socket) : null
    const entry: Entry = { via, host, address, recorded: false, open: 0 }
    this.#entries.set(socket, entry)
    return entry
  }

  #entry(socket: Socket): Entry {
    const entry = this.#entries.get(socket)
    if (entry === undefined) throw new Error('a socket that no listener handed over')
    return entry
  }

  #onRequest(request: IncomingMessage, response: ServerResponse, expects: boolean): void {
    request.on('error', () => undefined)
    response.on('error', () => undefined)
    const entry = this.#entry(request.socket)
    entry.open += 1
    response.once('close', () => (entry.open -= 1))
    this.#guard(request.socket, this.#serve(entry, request, response, expects))
  }

  async #serve(
    entry: Entry,
    request: IncomingMessage,
    response: ServerResponse,
    expects: boolean,
  ): Promise<void> {
    const weighed = this.#weigh(entry, request, false)
    const { attempt, decision, detail, path } = weighed
    const keepAlive = drainable(request)
    const refuse = (reason: Reason): void => {
      if (keepAlive) request.resume()
      refuseResponse(response, reason, keepAlive)
    }
    if (decision.action === 'deny' || !weighed.authority?.ok) {
      record(this.#context, attempt, decision, detail)
      if (await this.#context.pace.turn()) refuse(decision.reason)
      else response.destroy()
      return
    }
    const { host, port } = weighed.authority
    const pass = admit(this.#context)
    if ('action' in pass) {
      record(this.#context, attempt, pass, detail)
      refuse(pass.reason)
      return
    }
    using _pass = pass
    using client = whileOpen(this.#context, request.socket)
    const opened = await this.#context.route.open(host, port, { signal: client.signal })
    if (!opened.ok) {
      record(this.#context, attempt, opened, `${detail}: ${opened.detail}`)
      refuse(opened.reason)
      return
    }
    try {
      record(this.#context, attempt, decision, detail)
      await this.#context.audit.flush()
      if (expects) response.writeContinue()
      const traffic = await forwardHttp(request, response, {
        path,
        authority: host,
        upstream: opened.socket,
        limits: this.#context.limits,
        meter: this.#context.meter,
        signal: client.signal,
        onFault: (reason) => refuse(reason),
      })
      recordClose(this.#context, attempt, traffic)
    } finally {
      opened.socket.destroy()
    }
  }

  #weigh(entry: Entry, request: IncomingMessage, upgrade: boolean) {
    entry.recorded = true
    const url = request.url ?? ''
    const method = request.method ?? ''
    const absolute = parseAbsoluteForm(url)
    const hosts = hostHeaders(request)
    const hostHeader = hosts[0] === undefined ? null : parseAuthority(hosts[0], 80)
    let target: ParsedAuthority | null = absolute?.authority ?? null
    if (entry.host !== null) target = { ok: true, host: entry.host, port: 80 }
    let fault = headFault(request, { hostRequired: entry.via !== 'direct' })
    // Only a proxy is asked in the absolute form, and it is asked in no other.
    if (entry.via === 'proxy' ? absolute === null : !url.startsWith('/')) fault ??= 'bad_request'
    const facts = { via: entry.via, method, target, hostHeader, upgrade, fault }
    const decision = decide(this.#context.policy, { kind: 'http', ...facts })
    const authority = entry.via === 'direct' ? hostHeader : target
    const text = (entry.via === 'proxy' ? (absolute?.authorityText ?? url) : hosts[0]) ?? ''
    const attempt: Attempt = {
      protocol: 'http',
      host: authority?.ok === true ? authority.host : text === '' ? null : printable(text, 512),
      address: entry.address,
      port: authority?.ok === true ? authority.port : entry.via === 'direct' ? 80 : null,
      connection: this.#context.audit.nextConnection(),
    }
    const path = absolute?.path ?? url
    return { attempt, decision, authority, path, detail: `${method} ${auditPath(path)}` }
  }

  #onUpgrade(request: IncomingMessage, socket: Socket): void {
    const work = async (): Promise<void> => {
      const { attempt, decision, detail } = this.#weigh(this.#entry(socket), request, true)
      // decide() never allows an upgrade.
      record(this.#context, attempt, decision, detail)
      refuseSocket(socket, decision.reason)
    }
    this.#guard(socket, work())
  }

  #onConnect(request: IncomingMessage, socket: Socket, head: Buffer): void {
    const entry = this.#entry(socket)
    entry.recorded = true
    if (entry.via !== 'proxy') {
      const work = async (): Promise<void> => {
        const reason = entry.via === 'direct' ? 'direct_tcp' : 'method_denied'
        record(this.#context, this.#attempt(entry), deny(reason), 'CONNECT')
        refuseSocket(socket, reason)
      }
      this.#guard(socket, work())
      return
    }
    const adoptPlain = this.#adoptPlain.bind(this)
    this.#guard(socket, serveConnect(this.#context, request, socket, head, { adoptPlain }))
  }

  #onClientError(error: Error & { code?: string; rawPacket?: Buffer }, socket: Socket): void {
    const entry = this.#entry(socket)
    // The client went away; if it had asked for nothing, `close` tells.
    if (error.code === 'ECONNRESET' || error.code === 'EPIPE' || !socket.writable) {
      socket.destroy()
      return
    }
    const work = async (): Promise<void> => {
      entry.recorded = true
      const { reason, status } = describeClientError(error.code ?? '')
      const bytes = error.rawPacket?.toString('hex', 0, 64) ?? ''
      const named = entry.via === 'direct' ? 'direct_tcp' : reason
      const detail = `${error.code ?? error.name}${bytes === '' ? '' : `: first bytes ${bytes}`}`
      record(this.#context, this.#attempt(entry), deny(named), detail)
      // Amid the answer to an earlier request ours would be read as a part of it.
      if (entry.open > 0) socket.destroy()
      else refuseSocket(socket, named, status)
    }
    this.#guard(socket, work())
  }

  #recordSilent(entry: Entry): void {
    try {
      record(this.#context, this.#attempt(entry), deny('direct_tcp'), 'no request')
    } catch {
      // The log has failed or is closed; its owner knows.
    }
  }

  #attempt(entry: Entry): Attempt {
    return {
      protocol: 'http',
      host: entry.host,
      address: entry.address,
      port: entry.via === 'proxy' ? null : 80,
      connection: this.#context.audit.nextConnection(),
    }
  }
}

/** Whether the rest of a refused request may be read, so that the next one on its connection can be. */
function drainable(request: IncomingMessage): boolean {
  if (request.headers['transfer-encoding'] !== undefined) return false
  return Number(request.headers['content-length'] ?? 0) <= drainBytes
}

/** What the parser says of bytes that are no HTTP/1 at all, such as SOCKS, TLS or the preface of HTTP/2. */
const notHttp = new Set(['HPE_INVALID_METHOD', 'HPE_PAUSED_H2_UPGRADE', 'HPE_INVALID_CONSTANT'])

function describeClientError(code: string): { reason: Reason; status: number } {
  if (code === 'ERR_HTTP_REQUEST_TIMEOUT') return { reason: 'bad_request', status: 408 }
  if (code === 'HPE_HEADER_OVERFLOW') return { reason: 'bad_request', status: 431 }
  return { reason: notHttp.has(code) ? 'bad_protocol' : 'bad_request', status: 400 }
}
