/**
 * Reads the tar that an engine makes of a path: ustar with PAX and GNU extensions, names kept as bytes (tar-stream
 * decodes them as UTF-8 and loses what isn't). Strict, because a half transfer must never look like a smaller tree:
 * a bad checksum, an odd record or a stream that ends before the end-of-archive block is `transfer_failed`, infra.
 * Yields each header, followed by the entry's bytes in order.
 */
import type { Readable } from 'node:stream'
import { RunnerError } from '../errors.ts'
import type { BytePath } from './path-name.ts'

export type TarKind = 'file' | 'hardlink' | 'symlink' | 'directory' | 'fifo' | 'device' | 'other'

export interface TarHeader {
  /** As in the archive, without a trailing slash. */
  readonly path: BytePath
  readonly kind: TarKind
  readonly mode: number
  readonly uid: number
  readonly gid: number
  /** Whole seconds since 1970. */
  readonly time: number
  readonly size: number
  readonly target: BytePath
}

const block = 512

const kinds: Readonly<Record<string, TarKind>> = {
  '0': 'file',
  '\0': 'file',
  '7': 'file',
  '1': 'hardlink',
  '2': 'symlink',
  '3': 'device',
  '4': 'device',
  '5': 'directory',
  '6': 'fifo',
}

const broken = (what: string): RunnerError =>
  new RunnerError(
    'transfer_failed',
    'infra',
    `the archive from the engine is broken: ${what}; the execution is run again`,
  )

/** Takes an exact number of bytes from a stream of chunks. */
class ByteSource {
  readonly #chunks: AsyncIterator<Uint8Array>
  #rest: Buffer = Buffer.alloc(0)

  constructor(stream: Readable) {
    this.#chunks = stream[Symbol.asyncIterator]()
  }

  /** Up to `limit` bytes, at least one; null at the end of the stream. */
  async some(limit: number): Promise<Buffer | null> {
    while (this.#rest.length === 0) {
      const next = await this.#chunks.next()
      if (next.done === true) return null
      const { buffer, byteOffset, byteLength } = next.value
      this.#rest = Buffer.from(buffer, byteOffset, byteLength)
    }
    const taken = this.#rest.subarray(0, limit)
    this.#rest = this.#rest.subarray(taken.length)
    return taken
  }

  async exactly(count: number): Promise<Buffer> {
    const parts: Buffer[] = []
    for (let missing = count; missing > 0;) {
      const part = await this.some(missing)
      if (part === null) throw broken('it ends in the middle')
      missing -= part.length
      parts.push(part)
    }
    return parts.length === 1 ? (parts[0] ?? Buffer.alloc(0)) : Buffer.concat(parts)
  }

  async close(): Promise<void> {
    await this.#chunks.return?.()
  }
}

export async function* readTar(stream: Readable): AsyncGenerator<TarHeader | Buffer> {
  const source = new ByteSource(stream)
  try {
    let extended: Map<string, BytePath> = new Map()
    while (true) {
      const raw = await source.exactly(block)
      if (raw.every((byte) => byte === 0)) break
      checkSum(raw)
      const type = String.fromCharCode(raw[156] ?? 0)
      const length = numberOf(raw, 124, 12)
      if (type === 'x' || type === 'L' || type === 'K') {
        if (length > 1024 * 1024) throw broken('an extended header of more than 1 MiB')
        const data = await source.exactly(padded(length))
        const value = data.subarray(0, length)
        if (type === 'x') extended = new Map([...extended, ...paxRecords(value)])
        else extended.set(type === 'L' ? 'path' : 'linkpath', stringOf(value, 0, value.length))
        continue
      }
      if (type === 'g') {
        await source.exactly(padded(length))
        continue
      }
      const header = headerOf(raw, type, extended)
      extended = new Map()
      yield header
      for (let missing = header.size; missing > 0;) {
        const chunk = await source.some(missing)
        if (chunk === null) throw broken('it ends in the middle of a file')
        missing -= chunk.length
        yield chunk
      }
      await source.exactly(padded(header.size) - header.size)
    }
    // The engine may pad; what follows the end is read so that the connection ends in order.
    while ((await source.some(1024 * 1024)) !== null);
  } catch (error) {
    if (error instanceof RunnerError) throw error
    throw new RunnerError('transfer_failed', 'infra', 'the archive from the engine broke off', {
      cause: error,
    })
  } finally {
    await source.close()
  }
}

function headerOf(raw: Buffer, type: string, extended: ReadonlyMap<string, BytePath>): TarHeader {
  const ustar = raw.toString('latin1', 257, 263) === 'ustar\0'
  const prefix = ustar ? stringOf(raw, 345, 155) : ''
  const name = stringOf(raw, 0, 100)
  const path = extended.get('path') ?? (prefix === '' ? name : `${prefix}/${name}`)
  const kind = kinds[type] ?? 'other'
  const sizeText = extended.get('size')
  const size = sizeText === undefined ? numberOf(raw, 124, 12) : Number(sizeText)
  if (!Number.isSafeInteger(size) || size < 0) throw broken(`a size of ${sizeText ?? size}`)
  return {
    path: path.replace(/\/+$/, ''),
    kind,
    mode: numberOf(raw, 100, 8),
    uid: idOf(extended.get('uid'), raw, 108),
    gid: idOf(extended.get('gid'), raw, 116),
    time: timeOf(extended.get('mtime'), raw),
    size: kind === 'file' || kind === 'other' ? size : 0,
    target: extended.get('linkpath') ?? stringOf(raw, 157, 100),
  }
}

function idOf(extended: string | undefined, raw: Buffer, offset: number): number {
  const id = extended === undefined ? numberOf(raw, offset, 8) : Number(extended)
  if (!Number.isSafeInteger(id) || id < 0) throw broken('an owner that is no number')
  return id
}

/** What can't be read or is before 1970 counts as 1970: no reason to lose a file. */
function timeOf(extended: string | undefined, raw: Buffer): number {
  const seconds = Math.floor(Number(extended ?? stringOf(raw, 136, 12).trim().replace(/^/, '0o')))
  return Number.isSafeInteger(seconds) && seconds > 0 ? seconds : 0
}

const padded = (length: number): number => Math.ceil(length / block) * block

function stringOf(bytes: Buffer, offset: number, length: number): BytePath {
  const field = bytes.subarray(offset, offset + length)
  const end = field.indexOf(0)
  return (end === -1 ? field : field.subarray(0, end)).toString('latin1')
}

function numberOf(bytes: Buffer, offset: number, length: number): number {
  const first = bytes[offset] ?? 0
  if ((first & 0x80) !== 0) {
    let value = first & 0x7f
    for (let at = offset + 1; at < offset + length; at++) value = value * 256 + (bytes[at] ?? 0)
    if (!Number.isSafeInteger(value)) throw broken('a number that is too large')
    return value
  }
  const text = stringOf(bytes, offset, length).trim()
  if (!/^[0-7]*$/.test(text)) throw broken('a number that is not octal')
  return text === '' ? 0 : Number.parseInt(text, 8)
}

function checkSum(raw: Buffer): void {
  let sum = 8 * 32
  for (let at = 0; at < block; at++) if (at < 148 || at >= 156) sum += raw[at] ?? 0
  if (sum !== numberOf(raw, 148, 8)) throw broken('a header with a wrong checksum')
}

/** `<length> <key>=<value>\n`, again and again; values are bytes and may hold anything. */
function* paxRecords(bytes: Buffer): Generator<[string, BytePath]> {
  for (let at = 0; at < bytes.length;) {
    const space = bytes.indexOf(0x20, at)
    const length = Number(bytes.toString('latin1', at, space))
    const end = at + length
    const equals = bytes.indexOf(0x3d, space)
    if (space === -1 || !Number.isInteger(length) || end > bytes.length || equals >= end)
      throw broken('a bad extended header')
    yield [
      bytes.toString('latin1', space + 1, equals),
      bytes.toString('latin1', equals + 1, end - 1),
    ]
    at = end
  }
}
