/**
 * A folder as a build context: the same bytes and bits of mode give the same hash and the same tar, whatever the
 * checkout's umask, owner and time stamps. Symbolic links go as they are; sockets, pipes and devices are refused.
 */
import { createHash } from 'node:crypto'
import { createReadStream } from 'node:fs'
import { lstat, readdir, readlink } from 'node:fs/promises'
import { join } from 'node:path'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import tar from 'tar-stream'
import { EngineError } from '../daemon/errors.ts'

export interface ContextEntry {
  readonly path: string
  readonly kind: 'file' | 'directory' | 'symlink'
  /** 0o755 or 0o644, as git sees it. */
  readonly mode: number
  readonly source: { readonly file: string; readonly sizeBytes: number } | { readonly text: string }
}

// Not the epoch: zip, and so wheels, can't hold times before 1980.
const mtime = new Date('2026-01-01T00:00:00Z')

export function textEntry(path: string, text: string): ContextEntry {
  return { path, kind: 'file', mode: 0o644, source: { text } }
}

/** Everything under a folder in a fixed order. `only` keeps the named files of its top level. */
export async function readContext(
  folder: string,
  { only }: { only?: readonly string[] } = {},
): Promise<ContextEntry[]> {
  const entries: ContextEntry[] = []
  async function walk(relative: string): Promise<void> {
    const names = await readdir(join(folder, relative))
    for (const name of names.toSorted()) {
      if (relative === '' && only !== undefined && !only.includes(name)) continue
      const path = relative === '' ? name : `${relative}/${name}`
      const file = join(folder, path)
      const stat = await lstat(file)
      const mode = stat.isDirectory() || (stat.mode & 0o111) !== 0 ? 0o755 : 0o644
      if (stat.isSymbolicLink())
        entries.push({ path, kind: 'symlink', mode: 0o777, source: { text: await readlink(file) } })
      else if (stat.isFile())
        entries.push({ path, kind: 'file', mode, source: { file, sizeBytes: stat.size } })
      else if (stat.isDirectory()) {
        entries.push({ path, kind: 'directory', mode, source: { text: '' } })
        await walk(path)
      } else
        throw new EngineError(
          'image_build_failed',
          'task',
          `${file} is neither a file, a directory nor a link: remove it from the build context`,
        )
    }
  }
  await walk('')
  return entries
}

/** sha256 over every entry and the given words; fields are length-prefixed, so that no two recipes can collide. */
export async function recipeHash(
  entries: readonly ContextEntry[],
  words: readonly string[],
): Promise<string> {
  const hash = createHash('sha256')
  const field = (value: string): void => {
    hash.update(`${Buffer.byteLength(value)}:`).update(value)
  }
  for (const word of words) field(word)
  for (const { path, kind, mode, source } of entries) {
    for (const value of [path, kind, mode.toString(8)]) field(value)
    if ('text' in source) field(source.text)
    else {
      hash.update(`${source.sizeBytes}:`)
      await pipeline(createReadStream(source.file), async (chunks: AsyncIterable<Buffer>) => {
        for await (const chunk of chunks) hash.update(chunk)
      })
    }
  }
  return hash.digest('hex')
}

/** The tar of a context, made as it is read. */
export function packContext(entries: readonly ContextEntry[]): Readable {
  const pack = tar.pack()
  const fill = async (): Promise<void> => {
    for (const { path: name, kind, mode, source } of entries) {
      const header = { name, type: kind, mode, mtime, uid: 0, gid: 0 }
      if (kind === 'directory') pack.entry(header)
      else if (kind === 'symlink') pack.entry({ ...header, linkname: textOf(source) })
      else if ('text' in source) pack.entry(header, source.text)
      else
        await pipeline(
          createReadStream(source.file),
          pack.entry({ ...header, size: source.sizeBytes }),
        )
    }
    pack.finalize()
  }
  fill().catch((error: unknown) => pack.destroy(error instanceof Error ? error : undefined))
  return Readable.from(pack, { objectMode: false })
}

const textOf = (source: ContextEntry['source']): string => ('text' in source ? source.text : '')
