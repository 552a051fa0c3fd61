/**
 * Writes tar headers with names as bytes and nothing that varies: dated 0 and root's unless said otherwise, so that
 * equal trees are equal tars. Set-id bits are never written; the sticky bit is.
 */
import type { BytePath } from './path-name.ts'

const block = 512

export interface TarItem {
  /** Relative, without a trailing slash. */
  readonly path: BytePath
  readonly kind: 'file' | 'directory' | 'symlink' | 'hardlink'
  readonly mode: number
  readonly size?: number
  readonly target?: BytePath
  /** Seconds since 1970. */
  readonly time?: number
  readonly owner?: { readonly uid: number; readonly gid: number }
}

const typeFlag = { file: '0', hardlink: '1', symlink: '2', directory: '5' } as const

export function tarHeader(item: TarItem): Buffer {
  const path = item.kind === 'directory' ? `${item.path}/` : item.path
  const target = item.target ?? ''
  const size = item.kind === 'file' ? (item.size ?? 0) : 0
  const records: [string, string][] = []
  if (path.length > 100) records.push(['path', path])
  if (target.length > 100) records.push(['linkpath', target])
  if (size > 0o77777777777) records.push(['size', `${size}`])
  const owner = item.owner ?? root
  for (const id of ['uid', 'gid'] as const)
    if (owner[id] > 0o7777777) records.push([id, `${owner[id]}`])
  const main = plainHeader(path, typeFlag[item.kind], item.mode, size, target, owner, item.time)
  if (records.length === 0) return main
  const pax = Buffer.concat(records.map(([key, value]) => paxRecord(key, value)))
  return Buffer.concat([
    plainHeader('pax', 'x', 0o644, pax.length, ''),
    pax,
    tarPadding(pax.length),
    main,
  ])
}

export const tarPadding = (size: number): Buffer => Buffer.alloc((block - (size % block)) % block)

export const tarEnd = (): Buffer => Buffer.alloc(2 * block)

export function tarFile(path: BytePath, bytes: Buffer, mode = 0o644): Buffer {
  return Buffer.concat([
    tarHeader({ path, kind: 'file', mode, size: bytes.length }),
    bytes,
    tarPadding(bytes.length),
  ])
}

const root = { uid: 0, gid: 0 }

function plainHeader(
  path: string,
  type: string,
  mode: number,
  size: number,
  target: string,
  { uid, gid } = root,
  time = 0,
): Buffer {
  const header = Buffer.alloc(block)
  header.write(path.slice(0, 100), 0, 'latin1')
  octal(header, mode & 0o1777, 100, 8)
  octal(header, Math.min(uid, 0o7777777), 108, 8)
  octal(header, Math.min(gid, 0o7777777), 116, 8)
  octal(header, Math.min(size, 0o77777777777), 124, 12)
  octal(header, Math.min(time, 0o77777777777), 136, 12)
  header.write(type, 156, 'latin1')
  header.write(target.slice(0, 100), 157, 'latin1')
  header.write('ustar\x0000', 257, 'latin1')
  header.fill(0x20, 148, 156)
  let sum = 0
  for (const byte of header) sum += byte
  octal(header, sum, 148, 7)
  return header
}

const octal = (header: Buffer, value: number, offset: number, length: number): void => {
  header.write(`${value.toString(8).padStart(length - 1, '0')}\0`, offset, 'latin1')
}

/** `<length> <key>=<value>\n`, where the length counts its own digits. */
function paxRecord(key: string, value: BytePath): Buffer {
  const rest = ` ${key}=${value}\n`
  let length = rest.length + 1
  while (`${length}`.length + rest.length !== length) length = `${length}`.length + rest.length
  return Buffer.from(`${length}${rest}`, 'latin1')
}
