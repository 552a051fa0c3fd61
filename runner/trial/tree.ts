/**
 * A container's directory as git would see it: path → mode and blob id, computed here from the engine's archive, so
 * that nothing inside the container takes part. Everything under a `.git` component is left out, hard links are
 * resolved, and what git can't hold (pipes, devices, names that git refuses) is skipped and named. Empty directories
 * don't count. Two readings of a frozen container agree; `readBlobs` checks that they do.
 */
import { createHash, type Hash } from 'node:crypto'
import { RunnerError } from '../errors.ts'
import { isDotGit, showPath, toBytes, type BytePath } from './path-name.ts'
import type { Sandbox } from './sandbox.ts'
import { readTar, type TarHeader } from './tar-reader.ts'

export type TreeMode = '100644' | '100755' | '120000'

export interface TreeEntry {
  readonly mode: TreeMode
  /** Git's id of the bytes (SHA-1 object format); of the target for a link. */
  readonly blob: string
  readonly size: number
  /** A symlink's target. */
  readonly target?: BytePath
  /** Where the bytes are in the archive, when this path is a hard link to them. */
  readonly storedAt?: BytePath
}

export interface Skipped {
  readonly path: BytePath
  readonly why: string
}

export interface Tree {
  readonly entries: ReadonlyMap<BytePath, TreeEntry>
  readonly skipped: readonly Skipped[]
  /** Archive entries and bytes, `.git` included: what reading it cost. */
  readonly count: number
  readonly bytes: number
}

export interface TreeLimits {
  readonly maxEntries: number
  readonly maxBytes: number
}

export type TreeReading =
  | { readonly ok: true; readonly tree: Tree }
  | {
      readonly ok: false
      readonly code: 'not_a_directory' | 'tree_too_large'
      readonly message: string
    }

const maxPathBytes = 4000

export async function readTree(
  sandbox: Sandbox,
  root: string,
  limits: TreeLimits,
  options: { signal?: AbortSignal | undefined } = {},
): Promise<TreeReading> {
  const { kind, tar } = await sandbox.readArchive(root, signalOption(options.signal))
  if (kind !== 'directory') {
    tar.destroy()
    return { ok: false, code: 'not_a_directory', message: `${root} is a ${kind}, not a directory` }
  }
  const entries = new Map<BytePath, TreeEntry>()
  const inGit = new Map<BytePath, TreeEntry>()
  const skipped: Skipped[] = []
  const strip = pathStripper()
  let count = 0
  let bytes = 0
  let file: OpenFile | undefined
  const finish = (): void => {
    if (file === undefined) return
    const entry = { mode: file.mode, blob: file.hash.digest('hex'), size: file.size }
    ;(file.inGit ? inGit : entries).set(file.path, entry)
    file = undefined
  }
  for await (const item of readTar(tar)) {
    if (Buffer.isBuffer(item)) {
      file?.hash.update(item)
      continue
    }
    finish()
    const path = strip(item)
    if (path === null) continue
    count += 1
    bytes += item.size
    if (count > limits.maxEntries || bytes > limits.maxBytes)
      return {
        ok: false,
        code: 'tree_too_large',
        message: `${root} holds more than ${limits.maxEntries} entries or ${limits.maxBytes} bytes`,
      }
    const names = path.split('/')
    const git = names.some(isDotGit)
    if (item.kind === 'file') {
      const why = unusable(path, names, item)
      if (why !== undefined) skipped.push({ path, why })
      const hash = createHash('sha1').update(`blob ${item.size}\0`)
      // A file that git can't hold may still be what a hard link elsewhere points to.
      file = { path, mode: modeOf(item), size: item.size, hash, inGit: git || why !== undefined }
    } else if (item.kind === 'directory') {
      continue
    } else if (!git) {
      const entry = entryOf(item, (target) => {
        const from = strip.path(target)
        const found = entries.get(from) ?? inGit.get(from)
        return found === undefined ? undefined : { ...found, storedAt: found.storedAt ?? from }
      })
      const why = typeof entry === 'string' ? entry : unusable(path, names, item)
      if (why !== undefined) skipped.push({ path, why })
      else if (typeof entry === 'object') entries.set(path, entry)
    } else if (!names.includes('.git')) {
      skipped.push({ path, why: otherCase })
    }
  }
  finish()
  return { ok: true, tree: { entries, skipped, count, bytes } }
}

interface OpenFile {
  readonly path: BytePath
  readonly mode: TreeMode
  readonly size: number
  readonly hash: Hash
  readonly inGit: boolean
}

const modeOf = (header: TarHeader): TreeMode => ((header.mode & 0o100) === 0 ? '100644' : '100755')

/** The entry of anything but a plain file, or why there is none. */
function entryOf(
  header: TarHeader,
  linked: (target: BytePath) => TreeEntry | undefined,
): TreeEntry | string {
  switch (header.kind) {
    case 'symlink':
      return {
        mode: '120000',
        blob: blobId(toBytes(header.target)),
        size: header.target.length,
        target: header.target,
      }
    case 'hardlink':
      return linked(header.target) ?? 'a hard link to something that is not a file'
    case 'fifo':
      return 'a pipe'
    case 'device':
      return 'a device'
    case 'file':
    case 'directory':
    case 'other':
      return 'neither a file nor a link'
  }
}

const otherCase = 'git refuses a name that is .git in another letter case'

/** Why git could not hold it; what is under `.git` itself is left out without a word. */
function unusable(path: BytePath, names: readonly string[], header: TarHeader): string | undefined {
  if (names.includes('.git')) return undefined
  if (names.some(isDotGit)) return otherCase
  if (path.length > maxPathBytes) return `its path has more than ${maxPathBytes} bytes`
  if (header.kind === 'symlink' && /^\.gitmodules$/i.test(names.at(-1) ?? ''))
    return 'git refuses a .gitmodules that is a link'
  return undefined
}

export const blobId = (bytes: Buffer): string =>
  createHash('sha1').update(`blob ${bytes.length}\0`).update(bytes).digest('hex')

/** Takes the archive's first component away; null for the root itself. */
function pathStripper(): { (header: TarHeader): BytePath | null; path(full: BytePath): BytePath } {
  let prefix: string | undefined
  const path = (full: BytePath): BytePath => {
    const start = `${prefix ?? ''}/`
    const inner = full.slice(start.length)
    const bad = inner.split('/').some((name) => name === '' || name === '.' || name === '..')
    if (!full.startsWith(start) || bad)
      throw new RunnerError(
        'transfer_failed',
        'infra',
        `the archive from the engine holds ${showPath(full)}, which is outside of its root`,
      )
    return inner
  }
  const strip = (header: TarHeader): BytePath | null => {
    if (prefix !== undefined) return path(header.path)
    prefix = header.path
    return null
  }
  return Object.assign(strip, { path })
}

export interface Blob {
  readonly path: BytePath
  readonly size: number
}

const fewFiles = 24
const plainPath = /^[\w.+@=-]+(?: [\w.+@=-]+)*(?:\/[\w.+@=-]+(?: [\w.+@=-]+)*)*$/

/**
 * The bytes of plain files (by where they are stored), each as a header and its chunks, in any order. Bytes that
 * don't have the id that the tree gave them are an infra error: the container was not frozen, or the transfer broke.
 */
export async function* readBlobs(
  sandbox: Sandbox,
  root: string,
  wanted: ReadonlyMap<BytePath, TreeEntry>,
  options: { signal?: AbortSignal | undefined } = {},
): AsyncGenerator<Blob | Buffer> {
  if (wanted.size === 0) return
  const paths = [...wanted.keys()]
  if (paths.length <= fewFiles && paths.every((path) => plainPath.test(path))) {
    for (const path of paths) {
      const { tar } = await sandbox.readArchive(`${root}/${path}`, signalOption(options.signal))
      yield* checkedBlobs(readTar(tar), () => path, new Map([[path, wanted.get(path)]]))
    }
    return
  }
  const { tar } = await sandbox.readArchive(root, signalOption(options.signal))
  yield* checkedBlobs(readTar(tar), pathStripper(), new Map(wanted))
}

async function* checkedBlobs(
  items: AsyncIterable<TarHeader | Buffer>,
  pathOf: (header: TarHeader) => BytePath | null,
  wanted: Map<BytePath, TreeEntry | undefined>,
): AsyncGenerator<Blob | Buffer> {
  let open: { path: BytePath; blob: string; hash: Hash } | undefined
  const check = (): void => {
    if (open !== undefined && open.hash.digest('hex') !== open.blob) throw changed(open.path)
    open = undefined
  }
  for await (const item of items) {
    if (Buffer.isBuffer(item)) {
      if (open === undefined) continue
      open.hash.update(item)
      yield item
      continue
    }
    check()
    const path = pathOf(item)
    const entry = path === null ? undefined : wanted.get(path)
    if (path === null || entry === undefined || item.kind === 'directory') continue
    if (item.kind !== 'file' || item.size !== entry.size) throw changed(path)
    wanted.delete(path)
    open = { path, blob: entry.blob, hash: createHash('sha1').update(`blob ${item.size}\0`) }
    yield { path, size: item.size }
  }
  check()
  const [missing] = wanted.keys()
  if (missing !== undefined) throw changed(missing)
}

const changed = (path: BytePath): RunnerError =>
  new RunnerError(
    'transfer_failed',
    'infra',
    `${showPath(path)} was read twice and differed; the sandbox must be frozen before it is read`,
  )

/** A digest of the whole tree: sha256 over `mode blob path NUL`, sorted by the bytes of the path. */
export function treeDigest(entries: ReadonlyMap<BytePath, TreeEntry>): string {
  const hash = createHash('sha256')
  for (const path of [...entries.keys()].sort()) {
    const entry = entries.get(path)
    if (entry !== undefined)
      hash.update(`${entry.mode} ${entry.blob} `).update(path, 'latin1').update('\0')
  }
  return `sha256:${hash.digest('hex')}`
}

export const signalOption = (signal: AbortSignal | undefined): { signal?: AbortSignal } =>
  signal === undefined ? {} : { signal }
