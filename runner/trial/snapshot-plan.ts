/**
 * Which paths of a container a snapshot takes, from the engine's list of what changed. What we or the engine put there
 * doesn't count, nor do places that grading fills itself: an agent must not bring tests or a reward along. Pure.
 */
import type { FileChange } from '../../daemon/protocol/lease.ts'

/** `whole`: with all that is below. `alone`: a directory of which nothing but mode or owner changed, without. */
export type Depth = 'whole' | 'alone'

export interface SnapshotRead {
  readonly path: string
  /** Of the path itself; a map: of these children of it, and of no others. */
  readonly take: Depth | ReadonlyMap<string, Depth>
}

export interface SnapshotPlan {
  /** Each is one archive. */
  readonly reads: readonly SnapshotRead[]
  /** Directories that are the image's, or stand in for one that was deleted: their mode and owner alone are taken. */
  readonly directories: readonly string[]
  /** Removed before anything is laid out; the parts of what is removed whole are not listed. */
  readonly deleted: readonly string[]
  readonly skipped: readonly { readonly path: string; readonly why: string }[]
}

const left = [
  '/dev',
  '/proc',
  '/sys',
  '/tests',
  '/solution',
  '/logs/agent',
  '/logs/verifier',
  '/etc/hosts',
  '/etc/hostname',
  '/etc/resolv.conf',
  '/.dockerenv',
  '/.closedbook',
]

/** Made by us, and what the agent put into it counts. */
const leftAlone = new Set(['/logs', '/logs/artifacts'])

/** `own`: further places that are ours in this container, such as mounts. */
export function planSnapshot(
  changes: readonly FileChange[],
  own: readonly string[] = [],
): SnapshotPlan {
  const outside = [...left, ...own]
  const skipped: { path: string; why: string }[] = []
  const isOut = (path: string): boolean =>
    leftAlone.has(path) || outside.some((one) => path === one || path.startsWith(`${one}/`))
  const kept = changes.filter(({ path }) => {
    if (isOut(path)) return false
    if (!path.includes('\ufffd')) return true
    skipped.push({ path, why: 'its name is not UTF-8' })
    return false
  })
  const withChildren = new Set(kept.flatMap(({ path }) => parents(path)))
  const filledAgain = new Set(
    kept.filter(({ kind }) => kind !== 'deleted').flatMap(({ path }) => parents(path)),
  )
  // A directory of ours alone changed for what was put into it.
  const touched = new Set(changes.flatMap(({ path }) => parents(path)))
  // An archive of a directory would bring along what lies in it and doesn't count.
  const mixed = new Set(
    changes.filter(({ path }) => isOut(path)).flatMap(({ path }) => parents(path)),
  )
  const added = new Set(
    kept.filter(({ path, kind }) => kind === 'added' && !mixed.has(path)).map(({ path }) => path),
  )
  const roots: (readonly [path: string, depth: Depth])[] = []
  const directories: string[] = []
  const deleted: string[] = []
  for (const { path, kind } of kept) {
    if (kind === 'deleted') {
      deleted.push(path)
      if (filledAgain.has(path)) directories.push(path)
    } else if ((kind !== 'added' || mixed.has(path)) && withChildren.has(path))
      directories.push(path)
    else if (kind === 'modified' && touched.has(path)) continue
    else if (!parents(path).some((up) => added.has(up)))
      roots.push([path, added.has(path) ? 'whole' : 'alone'])
  }
  const gone = new Set(deleted)
  return {
    reads: grouped(roots.toSorted(([a], [b]) => (a < b ? -1 : 1))),
    directories: directories.toSorted(),
    deleted: deleted.filter((path) => !parents(path).some((up) => gone.has(up))).toSorted(),
    skipped,
  }
}

const manyTogether = 32

/** Many changed paths side by side are one request for their directory. */
function grouped(roots: readonly (readonly [string, Depth])[]): SnapshotRead[] {
  return [...Map.groupBy(roots, ([path]) => parentOf(path))].flatMap(
    ([parent, own]): SnapshotRead[] =>
      own.length > manyTogether && parent !== '/'
        ? [
            {
              path: parent,
              take: new Map(own.map(([path, depth]) => [path.slice(parent.length + 1), depth])),
            },
          ]
        : own.map(([path, take]) => ({ path, take })),
  )
}

const parentOf = (path: string): string => path.slice(0, path.lastIndexOf('/')) || '/'

/** `/a`, `/a/b` of `/a/b/c`. */
function parents(path: string): string[] {
  const parts = path.split('/').slice(1, -1)
  return parts.map((_part, index) => `/${parts.slice(0, index + 1).join('/')}`)
}
