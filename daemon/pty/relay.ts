/**
 * Carries one viewer's WebSocket between its connection and the pty-host, byte by byte, where the connection can't be
 * given away: the daemon has asked who it is and said so in headers of its own, and takes no further part. What either
 * side doesn't read waits in the kernel, not here: a few buffers go round for each viewer.
 */
import type { IncomingMessage } from 'node:http'
import net from 'node:net'
import type { Duplex } from 'node:stream'
import { ptyProtocol } from '../protocol/pty-frames.ts'
import { attachHeaders, type HandedViewer } from './host-protocol.ts'

export interface Attaching {
  readonly pty: string
  readonly attachment: string
  readonly mayControl: boolean
  readonly name: string
}

const bufferBytes = 64 * 1024
/** For a client to take the last bytes. */
const lingerMs = 5_000

export function relay(
  socketPath: string,
  client: Duplex,
  head: Buffer,
  viewer: HandedViewer,
): void {
  const free: Buffer[] = []
  let buffer: Buffer = Buffer.allocUnsafeSlow(bufferBytes)
  const host = net.connect({
    path: socketPath,
    onread: {
      buffer: () => buffer,
      callback: (length, bytes) => {
        const used = buffer
        const part = Buffer.from(bytes.buffer, bytes.byteOffset, length)
        const more = client.write(part, () => void free.push(used))
        buffer = free.pop() ?? Buffer.allocUnsafeSlow(bufferBytes)
        if (!more) {
          host.pause()
          client.once('drain', () => host.resume())
        }
        return true
      },
    },
  })
  let connected = false
  host.on('error', () => {
    // No host, so no session: there is nothing to come back for.
    if (connected) client.destroy()
    else refuse(client)
  })
  host.once('connect', () => {
    connected = true
    host.write(textOf(viewer))
    if (head.length > 0) host.write(head)
    client.pipe(host)
  })
  host.once('close', () => {
    // What it still sends is for nobody, and it can't end before it has sent it.
    client.unpipe(host)
    client.resume()
    client.end()
    setTimeout(() => client.destroy(), lingerMs).unref()
  })
  client.on('error', () => host.destroy())
  client.once('close', () => host.destroy())
}

/** Of the client's headers only those of the handshake pass; tickets among its protocols don't. */
export function viewerRequest(request: IncomingMessage, attaching: Attaching): HandedViewer {
  const { pty, attachment, mayControl, name } = attaching
  const passed = (header: string): string => String(request.headers[header] ?? '')
  return {
    url: `/sessions/${pty}/attach`,
    headers: {
      host: 'pty-host',
      connection: 'Upgrade',
      upgrade: 'websocket',
      'sec-websocket-version': passed('sec-websocket-version'),
      'sec-websocket-key': passed('sec-websocket-key'),
      'sec-websocket-protocol': ptyProtocol,
      [attachHeaders.attachment]: attachment,
      [attachHeaders.mayControl]: String(mayControl),
      [attachHeaders.name]: encodeURIComponent(name),
    },
  }
}

function textOf({ url, headers }: HandedViewer): string {
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}`)
  return [`GET ${url} HTTP/1.1`, ...lines, '\r\n'].join('\r\n')
}

function refuse(client: Duplex): void {
  const body = { code: 'not_found', message: 'no such PTY session is held', blame: 'caller' }
  const text = JSON.stringify(body)
  client.end(
    `HTTP/1.1 404 Not Found\r\nContent-Type: application/json\r\nConnection: close\r\n` +
      `Content-Length: ${Buffer.byteLength(text)}\r\n\r\n${text}`,
  )
}
