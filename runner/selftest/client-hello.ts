/** A ClientHello of TLS 1.3 as small as it may be, for a name; with `ech` it also hides another. */

const u16 = (value: number): Buffer => Buffer.from([value >> 8, value & 0xff])

const sized = (bytes: 1 | 2 | 3, body: Buffer): Buffer => {
  const length = Buffer.alloc(bytes)
  length.writeUIntBE(body.length, 0, bytes)
  return Buffer.concat([length, body])
}

const extension = (type: number, data: Buffer): Buffer => Buffer.concat([u16(type), sized(2, data)])

export function clientHello(serverName: string, { ech = false } = {}): Buffer {
  const name = Buffer.concat([Buffer.from([0]), sized(2, Buffer.from(serverName, 'latin1'))])
  const extensions = [extension(0, sized(2, name))]
  if (ech) extensions.push(extension(0xfe0d, Buffer.alloc(8)))
  const body = Buffer.concat([
    u16(0x0303),
    Buffer.alloc(32, 7),
    sized(1, Buffer.alloc(32)),
    sized(2, u16(0x1301)),
    sized(1, Buffer.from([0])),
    sized(2, Buffer.concat(extensions)),
  ])
  const message = Buffer.concat([Buffer.from([1]), sized(3, body)])
  return Buffer.concat([Buffer.from([22, 3, 1]), sized(2, message)])
}
