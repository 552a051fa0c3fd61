/** Clients that speak to a proxy by hand. */
import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import { connect as tlsConnect, type TLSSocket } from 'node:tls'
import { allowedHost, type World } from './world.ts'

export const connectLine = (authority: string): string =>
  `CONNECT ${authority} HTTP/1.1\r\nHost: ${authority}\r\n\r\n`

/** Sends the head of a request; for a CONNECT, waits until the tunnel stands. */
export async function proxied(world: World, head: string): Promise<Socket> {
  const socket = connect({ port: world.ports.proxy, host: '127.0.0.1' })
  socket.on('error', () => undefined)
  socket.write(head)
  if (head.startsWith('CONNECT')) {
    const answer = (await nextChunk(socket)).toString('latin1')
    if (!answer.startsWith('HTTP/1.1 200 ')) throw new Error(answer)
  }
  return socket
}

export const tunnelTo = (world: World, host = allowedHost): Promise<Socket> =>
  proxied(world, connectLine(`${host}:443`))

export async function tlsOver(
  world: World,
  socket: Socket,
  servername = allowedHost,
): Promise<TLSSocket> {
  const secure = tlsConnect({ socket, servername, ca: world.cert })
  secure.on('error', () => undefined)
  await once(secure, 'secureConnect')
  return secure
}

export async function nextChunk(socket: Socket): Promise<Buffer> {
  const [chunk] = (await once(socket, 'data')) as [Buffer]
  return chunk
}

/** All bytes until the other side ends. */
export async function received(socket: Socket): Promise<Buffer> {
  const chunks: Buffer[] = []
  socket.on('data', (chunk: Buffer) => chunks.push(chunk))
  await once(socket, 'end')
  return Buffer.concat(chunks)
}
