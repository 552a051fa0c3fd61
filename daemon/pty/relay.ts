/**
 * Carries one viewer's WebSocket between its connection and the pty-host, byte by byte: the daemon has asked who it is and
 * said so in headers of its own, and takes no further part. What either side doesn't read waits in the kernel, not here.
 */
import http from 'node:http'
import type { Duplex } from 'node:stream'
import { ptyProtocol } from '../protocol/pty-frames.ts'
import { attachHeaders } from './host-protocol.ts'

export interface RelayTarget {
  readonly socketPath: string
  readonly pty: string
  readonly attachment: string
  readonly mayControl: boolean
  readonly name: string
}

/** Of the client's headers only those of the handshake pass; tickets among its protocols don't. */
export function relay(
  request: http.IncomingMessage,
  client: Duplex,
  head: Buffer,
  { socketPath, pty, attachment, mayControl, name }: RelayTarget,
): void {
  const outgoing = http.request({
    socketPath,
    agent: false,
    path: `/sessions/${pty}/attach`,
    headers: {
      connection: 'Upgrade',
      upgrade: 'websocket',
      'sec-websocket-version': String(request.headers['sec-websocket-version'] ?? ''),
      'sec-websocket-key': String(request.headers['sec-websocket-key'] ?? ''),
      'sec-websocket-protocol': ptyProtocol,
      [attachHeaders.attachment]: attachment,
      [attachHeaders.mayControl]: String(mayControl),
      [attachHeaders.name]: encodeURIComponent(name),
    },
  })
  client.once('close', () => outgoing.destroy())
  outgoing.on('error', () => {
    // No host, so no session: there is nothing to come back for.
    if (!client.destroyed) refuse(client, 404, 'no such PTY session is held')
  })
  outgoing.on('response', (response) => {
    // It refused the handshake itself.
    response.resume()
    refuse(client, response.statusCode ?? 502, 'this is no handshake of a viewer')
  })
  outgoing.on('upgrade', (response, host, hostHead) => {
    host.on('error', () => client.destroy())
    client.on('error', () => host.destroy())
    client.once('close', () => host.destroy())
    host.once('close', () => client.destroy())
    const lines = Object.entries(response.headers).map(
      ([header, value]) => `${header}: ${String(value)}`,
    )
    client.write(`HTTP/1.1 101 Switching Protocols\r\n${lines.join('\r\n')}\r\n\r\n`)
    if (hostHead.length > 0) client.write(hostHead)
    if (head.length > 0) host.write(head)
    host.pipe(client)
    client.pipe(host)
  })
  outgoing.end()
}

function refuse(client: Duplex, status: number, message: string): void {
  const text = JSON.stringify({ code: 'not_found', message, blame: 'caller' })
  client.end(
    `HTTP/1.1 ${status} Refused\r\nContent-Type: application/json\r\nConnection: close\r\n` +
      `Content-Length: ${Buffer.byteLength(text)}\r\n\r\n${text}`,
  )
}
