/** The entries of a zip (wheels, eggs, jars) that is held in memory, by its central directory. Odd ones are left out. */
import { inflateRawSync } from 'node:zlib'

export interface ZipEntry {
  readonly name: string
  readonly size: number
  /** null where it is encrypted, broken or packed in a way that nobody uses. */
  read(): Buffer | null
}

const endMark = 0x06054b50
const centralMark = 0x02014b50
const localMark = 0x04034b50

export const isZip = (head: Buffer): boolean =>
  head.length >= 4 && head.readUInt32LE(0) === localMark

export function zipEntries(bytes: Buffer, maxEntryBytes: number): ZipEntry[] {
  const end = bytes.lastIndexOf(Buffer.from([0x50, 0x4b, 0x05, 0x06]))
  if (end === -1 || end + 22 > bytes.length || bytes.readUInt32LE(end) !== endMark) return []
  const entries: ZipEntry[] = []
  let at = bytes.readUInt32LE(end + 16)
  for (let count = bytes.readUInt16LE(end + 10); count > 0; count -= 1) {
    if (at + 46 > end || bytes.readUInt32LE(at) !== centralMark) break
    const flags = bytes.readUInt16LE(at + 8)
    const method = bytes.readUInt16LE(at + 10)
    const packed = bytes.readUInt32LE(at + 20)
    const size = bytes.readUInt32LE(at + 24)
    const nameLength = bytes.readUInt16LE(at + 28)
    const skip = nameLength + bytes.readUInt16LE(at + 30) + bytes.readUInt16LE(at + 32)
    const offset = bytes.readUInt32LE(at + 42)
    const name = bytes.toString('latin1', at + 46, at + 46 + nameLength)
    entries.push({
      name,
      size,
      read: () => read(bytes, { offset, packed, size, method, flags }, maxEntryBytes),
    })
    at += 46 + skip
  }
  return entries
}

function read(
  bytes: Buffer,
  at: { offset: number; packed: number; size: number; method: number; flags: number },
  maxEntryBytes: number,
): Buffer | null {
  if ((at.flags & 1) !== 0 || at.size > maxEntryBytes || at.offset + 30 > bytes.length) return null
  const start =
    at.offset + 30 + bytes.readUInt16LE(at.offset + 26) + bytes.readUInt16LE(at.offset + 28)
  const data = bytes.subarray(start, start + at.packed)
  if (at.method === 0) return data
  if (at.method !== 8) return null
  try {
    return inflateRawSync(data, { maxOutputLength: Math.max(at.size, 1) })
  } catch {
    return null
  }
}
