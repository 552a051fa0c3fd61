/**
 * DNS messages, as much of them as answering takes: one question in, its own bytes out again with an address, with nothing or
 * with a refusal. (RFC 1035 4, RFC 6891 for EDNS, RFC 8914 for the extended error.)
 */
export interface DnsQuery {
  readonly id: number
  readonly recursionDesired: boolean
  /** As it is usually written, without the last dot; bytes outside printable ASCII, and dots, as \DDD. */
  readonly name: string
  readonly type: number
  readonly class: number
  /** The question, ready to be sent back. */
  readonly question: Buffer
  readonly edns: boolean
}

export const dnsType = { A: 1, AAAA: 28 } as const
export const dnsCode = { ok: 0, formatError: 1, nameError: 3, notImplemented: 4 } as const

const names: Readonly<Record<number, string>> = {
  1: 'A',
  2: 'NS',
  5: 'CNAME',
  6: 'SOA',
  12: 'PTR',
  15: 'MX',
  16: 'TXT',
  28: 'AAAA',
  33: 'SRV',
  65: 'HTTPS',
  255: 'ANY',
}
export const dnsTypeName = (type: number): string => names[type] ?? `TYPE${type}`

const headerBytes = 12
const responseFlag = 0x8000
const opt = 41
const prohibited = 18

/** null for what isn't a standard query with one question, to the last byte. */
export function parseDnsQuery(message: Buffer): DnsQuery | null {
  if (message.length < headerBytes) return null
  const flags = message.readUInt16BE(2)
  if ((flags & 0xf800) !== 0) return null // a response, or not a standard query
  if (message.readUInt16BE(4) !== 1) return null
  const name = readName(message, headerBytes)
  if (name === null || name.end + 4 > message.length) return null
  return {
    id: message.readUInt16BE(0),
    recursionDesired: (flags & 0x0100) !== 0,
    name: name.text,
    type: message.readUInt16BE(name.end),
    class: message.readUInt16BE(name.end + 2),
    question: message.subarray(headerBytes, name.end + 4),
    edns: hasOpt(message, name.end + 4),
  }
}

/** A question's name is never compressed: nothing stands before it. */
function readName(message: Buffer, start: number): { text: string; end: number } | null {
  const labels: string[] = []
  let at = start
  for (;;) {
    const length = message[at]
    if (length === undefined || length > 63) return null
    at += 1
    if (length === 0) break
    if (at + length > message.length || at + length - start > 254) return null
    labels.push(labelText(message.subarray(at, at + length)))
    at += length
  }
  return { text: labels.length === 0 ? '.' : labels.join('.'), end: at }
}

function labelText(label: Buffer): string {
  let text = ''
  for (const byte of label) {
    const plain = byte > 0x20 && byte < 0x7f && byte !== 0x2e && byte !== 0x5c
    text += plain ? String.fromCharCode(byte) : `\\${byte.toString().padStart(3, '0')}`
  }
  return text
}

/** Only where it always stands: first of the additional records, no others before it. */
function hasOpt(message: Buffer, at: number): boolean {
  const others = message.readUInt16BE(6) + message.readUInt16BE(8)
  if (others !== 0 || message.readUInt16BE(10) === 0 || at + 11 > message.length) return false
  return message[at] === 0 && message.readUInt16BE(at + 1) === opt
}

export interface DnsAnswer {
  readonly code: number
  /** IPv4 in dotted decimal. */
  readonly address?: string
  readonly ttlSeconds?: number
  /** Told to clients that understand EDNS: refused by policy, with these words. */
  readonly prohibited?: string
}

export function encodeDnsAnswer(query: DnsQuery, answer: DnsAnswer): Buffer {
  const header = Buffer.alloc(headerBytes)
  header.writeUInt16BE(query.id, 0)
  const recursion = query.recursionDesired ? 0x0100 : 0
  header.writeUInt16BE(responseFlag | recursion | 0x0080 | answer.code, 2)
  header.writeUInt16BE(1, 4)
  const parts = [header, query.question]
  if (answer.address !== undefined) {
    header.writeUInt16BE(1, 6)
    const record = Buffer.alloc(16)
    record.writeUInt16BE(0xc000 | headerBytes, 0) // the name of the question
    record.writeUInt16BE(dnsType.A, 2)
    record.writeUInt16BE(1, 4)
    record.writeUInt32BE(answer.ttlSeconds ?? 60, 6)
    record.writeUInt16BE(4, 10)
    answer.address.split('.').forEach((part, index) => record.writeUInt8(Number(part), 12 + index))
    parts.push(record)
  }
  if (query.edns) {
    header.writeUInt16BE(1, 10)
    parts.push(encodeOpt(answer.prohibited))
  }
  return Buffer.concat(parts)
}

function encodeOpt(words: string | undefined): Buffer {
  const text = Buffer.from(words ?? '', 'latin1')
  const option = words === undefined ? Buffer.alloc(0) : Buffer.alloc(6)
  if (words !== undefined) {
    option.writeUInt16BE(15, 0)
    option.writeUInt16BE(2 + text.length, 2)
    option.writeUInt16BE(prohibited, 4)
  }
  const fixed = Buffer.alloc(11)
  fixed.writeUInt16BE(opt, 1)
  fixed.writeUInt16BE(1232, 3) // the UDP payload that we take
  fixed.writeUInt16BE(option.length + text.length, 9)
  return Buffer.concat([fixed, option, text])
}

/** For a message that is no query: its id and "format error", or null if there isn't even an id. */
export function encodeDnsFault(message: Buffer): Buffer | null {
  if (message.length < headerBytes || (message.readUInt16BE(2) & responseFlag) !== 0) return null
  const header = Buffer.alloc(headerBytes)
  header.writeUInt16BE(message.readUInt16BE(0), 0)
  const opcode = message.readUInt16BE(2) & 0x7800
  const code = opcode === 0 ? dnsCode.formatError : dnsCode.notImplemented
  header.writeUInt16BE(responseFlag | opcode | code, 2)
  return header
}
