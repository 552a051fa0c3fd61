/** How a refusal looks to the program that was refused: at once, with the reason, and a line for people. */
import type { ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import type { Reason } from '../../policy/decision.ts'

const statusByReason: Partial<Record<Reason, number>> = {
  bad_request: 400,
  bad_protocol: 400,
  bad_authority: 400,
  host_mismatch: 421,
  limit_conns: 429,
  dns_failed: 502,
  upstream_bad: 502,
  internal_error: 503,
  upstream_timeout: 504,
}

const wordsByReason: Partial<Record<Reason, string>> = {
  not_allowed_host: 'this host is not on the allowlist',
  denied_host: 'this host is denied by the policy',
  port_not_allowed: 'this port is not allowed',
  bad_authority: 'the host and port are not well formed',
  ip_literal: 'addresses are refused, ask for a name',
  address_not_public: 'the name leads to an address that is not public',
  dns_failed: 'the name could not be looked up',
  direct_tcp: 'there is no direct way out of this sandbox',
  host_mismatch: 'the Host header names another host than the request',
  upgrade_denied: 'upgrades are refused',
  method_denied: 'this method is refused',
  bad_request: 'the request is not well formed',
  bad_protocol: 'this is an HTTP proxy',
  limit_conns: 'too many connections at once',
  limit_bytes: 'the bytes that this sandbox may move are used up',
  upstream_bad: 'the host could not be reached',
  upstream_timeout: 'the host did not answer in time',
}

export const refusalStatus = (reason: Reason): number => statusByReason[reason] ?? 403

export const refusalLine = (reason: Reason): string =>
  `closedbook: ${reason}: ${wordsByReason[reason] ?? 'refused by the policy of this sandbox'}\n`

const phrases: Readonly<Record<number, string>> = {
  400: 'Bad Request',
  403: 'Forbidden',
  408: 'Request Timeout',
  421: 'Misdirected Request',
  429: 'Too Many Requests',
  431: 'Request Header Fields Too Large',
  502: 'Bad Gateway',
  503: 'Service Unavailable',
  504: 'Gateway Timeout',
}

/** Answers on a bare socket and closes it. */
export function refuseSocket(
  socket: Socket,
  reason: Reason,
  status: number = refusalStatus(reason),
): void {
  if (!socket.writable) {
    socket.destroy()
    return
  }
  const body = refusalLine(reason)
  closeWith(
    socket,
    `HTTP/1.1 ${status} ${phrases[status] ?? 'Forbidden'}\r\nX-Closedbook-Reason: ${reason}\r\n` +
      `Content-Type: text/plain\r\nContent-Length: ${body.length}\r\nConnection: close\r\n\r\n${body}`,
  )
}

export function refuseResponse(response: ServerResponse, reason: Reason, keepAlive: boolean): void {
  const body = refusalLine(reason)
  response.writeHead(refusalStatus(reason), {
    'X-Closedbook-Reason': reason,
    'Content-Type': 'text/plain',
    'Content-Length': body.length,
    ...(keepAlive ? {} : { Connection: 'close' }),
  })
  response.end(body)
}

/** A fatal alert, access_denied (49): TLS libraries print it, where a plain close would read as a fault. */
export function refuseTls(socket: Socket): void {
  closeWith(socket, Buffer.from([21, 3, 3, 0, 2, 2, 49]))
}

/** What the client still sends is read and dropped for a moment: closing on unread bytes would lose the answer. */
const lingerMs = 1_000

function closeWith(socket: Socket, last: string | Buffer): void {
  if (!socket.writable) {
    socket.destroy()
    return
  }
  const linger = setTimeout(() => socket.destroy(), lingerMs)
  socket.once('close', () => clearTimeout(linger))
  socket.once('end', () => socket.destroySoon())
  socket.end(last)
  socket.resume()
}
