/**
 * Paths that the instruction names in backticks: an absolute one must exist or at least its directory (it may be the
 * file to write), a relative one must end like a file or a directory under workdir. What only looks like a path (a
 * route, a MIME type) begins with what neither the image nor file systems in general know, and is left alone.
 */
import { isPathMissing } from '../../../trial/engine-answer.ts'
import type { Sandbox } from '../../../trial/sandbox.ts'
import type { Findings } from '../finding.ts'

/** What stands at the top of a file system, and not of a server's routes. */
const commonTops: ReadonlySet<string> = new Set(
  'app bin build code etc home mnt opt project repo root sbin src srv testbed tmp usr var workspace work'.split(
    ' ',
  ),
)

interface NamedPath {
  readonly path: string
  readonly line: number
}

export async function checkInstructionPaths(options: {
  findings: Findings
  text: string
  sandbox: Sandbox
  /** Paths under workdir, without a leading slash. */
  paths: Iterable<string>
  signal: AbortSignal
}): Promise<void> {
  const { findings, text, sandbox, signal } = options
  const named = namedPaths(text)
  const suffixes = directorySuffixes(options.paths)
  for (const { path, line } of named) {
    if (path.startsWith('/')) {
      if (await absoluteIsFine(sandbox, path, signal)) continue
    } else if (relativeIsFine(path, suffixes)) continue
    findings.add(
      'instruction-path',
      'instruction.md',
      `${path} is not in the image, nor is its directory: correct the instruction or the image`,
      line,
    )
  }
}

function namedPaths(text: string): NamedPath[] {
  const found = new Map<string, NamedPath>()
  let fenced = false
  for (const [index, raw] of text.split('\n').entries()) {
    if (/^\s*(?:```|~~~)/.test(raw)) fenced = !fenced
    if (fenced) continue
    for (const match of raw.matchAll(/`([^`\s]+)`/g)) {
      const path = (match[1] ?? '').replace(/[.,;:]+$/, '').replace(/:\d+(?::\d+)?$/, '')
      const plain = /^\.?\/?[\w@+-][\w.@+-]*(?:\/[\w.@+-]+)+\/?$|^\/[\w.@+-]+\/?$/.test(path)
      const relative = !path.startsWith('/') && !/(?:\.\w{1,5}|\/)$/.test(path)
      if (plain && !relative && !path.includes('..') && !found.has(path))
        found.set(path, { path: path.replace(/^\.\//, ''), line: index + 1 })
    }
  }
  return [...found.values()]
}

/** Every way to end a directory's path: `a/b/c` gives `c`, `b/c` and `a/b/c`. */
function directorySuffixes(paths: Iterable<string>): Set<string> {
  const directories = new Set<string>()
  for (const path of paths)
    for (let at = path.lastIndexOf('/'); at > 0; at = path.lastIndexOf('/', at - 1)) {
      const directory = path.slice(0, at)
      if (directories.has(directory)) break
      directories.add(directory)
    }
  const suffixes = new Set<string>()
  for (const directory of directories)
    for (let at = directory.length; at > 0;) {
      at = directory.lastIndexOf('/', at - 1)
      suffixes.add(directory.slice(at + 1))
    }
  return suffixes
}

function relativeIsFine(path: string, suffixes: ReadonlySet<string>): boolean {
  const trimmed = path.replace(/\/$/, '')
  if (suffixes.has(trimmed)) return true
  const directory = trimmed.slice(0, Math.max(trimmed.lastIndexOf('/'), 0))
  if (suffixes.has(directory)) return true
  // Not a path of this project at all: `text/plain.txt`, `owner/model.v2`.
  const first = trimmed.split('/')[0] ?? ''
  return !suffixes.has(first)
}

async function absoluteIsFine(
  sandbox: Sandbox,
  path: string,
  signal: AbortSignal,
): Promise<boolean> {
  const parts = path.split('/').filter((part) => part !== '')
  const exists = (length: number): Promise<boolean> =>
    isThere(sandbox, `/${parts.slice(0, length).join('/')}`, signal)
  if (await exists(parts.length)) return true
  const looksLikeRoute = !commonTops.has(parts[0] ?? '')
  if (parts.length === 1) return looksLikeRoute
  return (await exists(parts.length - 1)) || (looksLikeRoute && !(await exists(1)))
}

export async function isThere(
  sandbox: Sandbox,
  path: string,
  signal: AbortSignal,
): Promise<boolean> {
  try {
    const { tar } = await sandbox.readArchive(path, { signal })
    tar.destroy()
    return true
  } catch (error) {
    if (isPathMissing(error)) return false
    throw error
  }
}
