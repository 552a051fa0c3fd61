/** ClientHellos: a real one, and ones put together by hand. */
import { Duplex } from 'node:stream'
import { connect } from 'node:tls'

/** The first flight of this runtime's own TLS, which is longer than one segment. */
export function realHello(servername: string): Promise<Buffer> {
  const { promise, resolve } = Promise.withResolvers<Buffer>()
  const wire = new Duplex({
    read: () => undefined,
    write: (chunk: Buffer) => resolve(chunk),
  })
  connect({ socket: wire, servername }).on('error', () => undefined)
  return promise
}

const sized = (bytes: 1 | 2 | 3, body: Buffer): Buffer => {
  const length = Buffer.alloc(bytes)
  length.writeUIntBE(body.length, 0, bytes)
  return Buffer.concat([length, body])
}
const u16 = (value: number): Buffer => Buffer.from([value >> 8, value & 0xff])

export const extension = (type: number, data: Buffer): Buffer =>
  Buffer.concat([u16(type), sized(2, data)])

export const serverNames = (...names: readonly (string | [type: number, name: string])[]): Buffer =>
  extension(
    0,
    sized(
      2,
      Buffer.concat(
        names.map((entry) => {
          const [type, name] = typeof entry === 'string' ? [0, entry] : entry
          return Buffer.concat([Buffer.from([type]), sized(2, Buffer.from(name, 'latin1'))])
        }),
      ),
    ),
  )

/** `null` extensions: the message ends before them, as old clients do. */
export function handshake(extensions: Buffer[] | null, type = 1): Buffer {
  const parts = [
    u16(0x0303),
    Buffer.alloc(32, 7),
    sized(1, Buffer.alloc(32)),
    sized(2, u16(0x1301)),
    sized(1, Buffer.from([0])),
  ]
  if (extensions !== null) parts.push(sized(2, Buffer.concat(extensions)))
  return Buffer.concat([Buffer.from([type]), sized(3, Buffer.concat(parts))])
}

/** In records of at most `size` bytes. */
export function records(message: Buffer, size = 1 << 14): Buffer {
  const parts: Buffer[] = []
  for (let at = 0; at < message.length; at += size) {
    parts.push(Buffer.from([22, 3, 1]), sized(2, message.subarray(at, at + size)))
  }
  return Buffer.concat(parts)
}
