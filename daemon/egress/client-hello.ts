/**
 * Reads the first bytes of a TLS connection as they come, split over segments and records in any way, until the
 * ClientHello is whole, and tells the server name in it. It decides nothing and answers nothing; what isn't
 * a well-formed ClientHello, to the last length field, is "not TLS". (RFC 8446 4.1.2 and 5.1, RFC 6066 3.)
 */
import type { HelloFacts } from '../../policy/decide.ts'

const handshakeRecord = 22
const clientHello = 1
const maxRecordBytes = 1 << 14
const serverNameExtension = 0
/** Encrypted ClientHello, and the draft that came before it: the name that we see need not be the one that counts. */
const hiddenNameExtensions = new Set([0xfe0d, 0xffce])

const notTls: HelloFacts = { kind: 'not_tls' }

export class ClientHelloReader {
  readonly #maxBytes: number
  #raw: Buffer = Buffer.alloc(0)
  /** Where the next record begins in #raw. */
  #next = 0
  #message: Buffer = Buffer.alloc(0)

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes
  }

  /** All bytes so far, to be passed on once they have been allowed. */
  get bytes(): Buffer {
    return this.#raw
  }

  /** null while more is needed. */
  push(chunk: Buffer): HelloFacts | null {
    this.#raw = this.#raw.length === 0 ? chunk : Buffer.concat([this.#raw, chunk])
    for (;;) {
      const record = this.#raw.subarray(this.#next)
      if (record.length > 0 && record[0] !== handshakeRecord) return notTls
      if (record.length > 1 && record[1] !== 3) return notTls
      if (record.length < 5) break
      const length = record.readUInt16BE(3)
      if (length === 0 || length > maxRecordBytes) return notTls
      if (record.length < 5 + length) {
        // The kind of message shows before the record is whole.
        if (this.#message.length === 0 && record.length > 5 && record[5] !== clientHello)
          return notTls
        break
      }
      this.#message = Buffer.concat([this.#message, record.subarray(5, 5 + length)])
      this.#next += 5 + length
      const facts = this.#read()
      if (facts !== null) return facts
    }
    return this.#raw.length > this.#maxBytes ? notTls : null
  }

  #read(): HelloFacts | null {
    const message = this.#message
    if (message[0] !== clientHello) return notTls
    if (message.length < 4) return null
    const length = message.readUIntBE(1, 3)
    if (length > this.#maxBytes) return notTls
    if (message.length < 4 + length) return null
    // No second message may share the flight in clear text.
    if (message.length > 4 + length) return notTls
    return parseClientHello(message.subarray(4)) ?? notTls
  }
}

/** A cursor that answers null once something has been too short. */
class Fields {
  readonly #data: Buffer
  #at = 0

  constructor(data: Buffer) {
    this.#data = data
  }

  get done(): boolean {
    return this.#at === this.#data.length
  }

  take(length: number): Buffer | null {
    const end = this.#at + length
    if (end > this.#data.length) return null
    const part = this.#data.subarray(this.#at, end)
    this.#at = end
    return part
  }

  number(bytes: 1 | 2): number | null {
    return this.take(bytes)?.readUIntBE(0, bytes) ?? null
  }

  /** A length of so many bytes, then that much. */
  vector(lengthBytes: 1 | 2): Buffer | null {
    const length = this.number(lengthBytes)
    return length === null ? null : this.take(length)
  }
}

function parseClientHello(body: Buffer): HelloFacts | null {
  const fields = new Fields(body)
  if (fields.take(2 + 32) === null) return null // version, random
  const session = fields.vector(1)
  const ciphers = fields.vector(2)
  const compression = fields.vector(1)
  if (session === null || session.length > 32) return null
  if (ciphers === null || ciphers.length < 2 || ciphers.length % 2 !== 0) return null
  if (compression === null || compression.length === 0) return null
  // TLS 1.2 and older may end here.
  if (fields.done) return { kind: 'hello', serverName: null, ech: false }
  const extensions = fields.vector(2)
  if (extensions === null || !fields.done) return null
  return parseExtensions(new Fields(extensions))
}

function parseExtensions(fields: Fields): HelloFacts | null {
  const seen = new Set<number>()
  let serverName: string | null = null
  while (!fields.done) {
    const type = fields.number(2)
    const data = fields.vector(2)
    // Two of one kind: which of them counts would be up to the server.
    if (type === null || data === null || seen.has(type)) return null
    seen.add(type)
    if (type === serverNameExtension) {
      serverName = parseServerName(data)
      if (serverName === null) return null
    }
  }
  const ech = [...hiddenNameExtensions].some((type) => seen.has(type))
  return { kind: 'hello', serverName, ech }
}

/** Exactly one entry, of type host_name; every byte as one character, to be weighed by the grammar of names. */
function parseServerName(data: Buffer): string | null {
  const list = new Fields(data)
  const entries = list.vector(2)
  if (entries === null || !list.done) return null
  const fields = new Fields(entries)
  const type = fields.number(1)
  const name = fields.vector(2)
  if (type !== 0 || name === null || name.length === 0 || !fields.done) return null
  return name.toString('latin1')
}
