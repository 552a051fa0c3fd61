/**
 * The files of a task directory and the digest that names them: sha256 over one line for each entry (path, kind,
 * executable or not, content), sorted by the bytes of the path. Owner, time and the other permission bits don't count,
 * so that two clones of a repository agree. A link that leaves the directory and special files are refused.
 */
import { createHash } from 'node:crypto'
import { createReadStream } from 'node:fs'
import { lstat, readdir, readlink, realpath, stat } from 'node:fs/promises'
import { dirname, isAbsolute, join, relative, resolve } from 'node:path'
import { pipeline } from 'node:stream/promises'
import { RunnerError, systemCode } from '../errors.ts'

export interface TreeEntry {
  /** Relative, with `/`. */
  readonly path: string
  readonly kind: 'file' | 'directory' | 'symlink'
  readonly executable: boolean
  readonly sizeBytes: number
  /** sha256 in hex of a file's bytes or of a link's target; empty for a directory. */
  readonly sha256: string
}

/** Of a task: what was found out about it (qualification, reviews, probes). No part of the task, nor of its digest. */
export const evidenceFolder = 'closedbook'

/** `without`: a name at the top that is not looked at. */
export async function readTree(
  root: string,
  { without }: { readonly without?: string } = {},
): Promise<readonly TreeEntry[]> {
  const entries: TreeEntry[] = []
  const top = await realpath(root)
  const walk = async (path: string): Promise<void> => {
    for (const name of await readdir(join(root, path))) {
      if (path === '' && name === without) continue
      const child = path === '' ? name : `${path}/${name}`
      if (name.includes('\ufffd')) throw refused(root, child, 'its name is not UTF-8; rename it')
      entries.push(await readEntry(root, top, child))
      if (entries.at(-1)?.kind === 'directory') await walk(child)
    }
  }
  await walk('')
  return entries.sort((a, b) => Buffer.compare(Buffer.from(a.path), Buffer.from(b.path)))
}

async function readEntry(root: string, top: string, path: string): Promise<TreeEntry> {
  const full = join(root, path)
  const facts = await lstat(full)
  if (facts.isDirectory())
    return { path, kind: 'directory', executable: false, sizeBytes: 0, sha256: '' }
  if (facts.isSymbolicLink()) {
    const target = await readlink(full)
    await checkLink(root, top, path, target)
    const sha256 = createHash('sha256').update(target).digest('hex')
    return { path, kind: 'symlink', executable: false, sizeBytes: 0, sha256 }
  }
  if (!facts.isFile())
    throw refused(
      root,
      path,
      'it is a socket, pipe or device; only files, directories and links may be in a task',
    )
  const hash = createHash('sha256')
  await pipeline(createReadStream(full), hash)
  return {
    path,
    kind: 'file',
    executable: (facts.mode & 0o111) !== 0,
    sizeBytes: facts.size,
    sha256: hash.digest('hex'),
  }
}

async function checkLink(root: string, top: string, path: string, target: string): Promise<void> {
  const fix = 'replace the link by a copy of what it points at'
  if (isAbsolute(target) || !inside(top, resolve(top, dirname(path), target)))
    throw refused(root, path, `it is a link to "${target}", outside the task directory; ${fix}`)
  const real = await realpath(join(root, path)).catch((error: unknown) => {
    if (systemCode(error) === 'ENOENT' || systemCode(error) === 'ELOOP')
      throw refused(root, path, `it is a link to "${target}", which isn't there; ${fix}`)
    throw error
  })
  if (!inside(top, real))
    throw refused(root, path, `it is a link that ends outside the task directory; ${fix}`)
}

const inside = (top: string, path: string): boolean => {
  const way = relative(top, path)
  return way !== '..' && !way.startsWith('../') && !isAbsolute(way)
}

const refused = (root: string, path: string, why: string): RunnerError =>
  new RunnerError('task_invalid', 'task', `${join(root, path)}: ${why}`, { facts: { path } })

/** `sha256:…` of the entries under `prefix` (all of them when empty), with paths relative to it. */
export function treeDigest(entries: readonly TreeEntry[], prefix = ''): string {
  const hash = createHash('sha256')
  const start = prefix === '' ? '' : `${prefix}/`
  for (const entry of entries) {
    if (!entry.path.startsWith(start)) continue
    const path = entry.path.slice(start.length)
    hash.update(`${JSON.stringify([path, entry.kind, entry.executable, entry.sha256])}\n`)
  }
  return `sha256:${hash.digest('hex')}`
}

export const textDigest = (text: string | Uint8Array): string =>
  `sha256:${createHash('sha256').update(text).digest('hex')}`

export const isDirectory = async (path: string): Promise<boolean> =>
  stat(path).then(
    (facts) => facts.isDirectory(),
    () => false,
  )
