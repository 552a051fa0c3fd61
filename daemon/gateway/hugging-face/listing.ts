/**
 * The JSON answers about a repository, made from its filtered tree alone: no Xet hash, no link to another page, nothing
 * that could lead a client past this gateway.
 */
import type { HubRoute } from '../../../policy/hugging-face-route.ts'
import type { Pin } from '../../../policy/hugging-face.ts'
import type { Tree, TreeEntry } from './tree.ts'

export function infoOf({ entry, commit }: Pin, tree: Tree, query: URLSearchParams): object {
  const blobs = /^(?:true|1)$/i.test(query.get('blobs') ?? '')
  const files = tree.entries.filter((one) => one.type === 'file')
  return {
    _id: commit.slice(0, 24),
    id: entry.repo,
    modelId: entry.repo,
    author: entry.repo.split('/')[0],
    sha: commit,
    private: false,
    gated: false,
    disabled: false,
    tags: [],
    siblings: files.map(({ path, oid, size, lfs }) => ({
      rfilename: path,
      ...(blobs
        ? {
            size,
            blobId: oid,
            ...(lfs
              ? { lfs: { sha256: lfs.oid, size: lfs.size, pointerSize: lfs.pointerSize } }
              : {}),
          }
        : {}),
    })),
  }
}

/** null: there is no such folder. */
export function treeOf(
  tree: Tree,
  { path, recursive }: Extract<HubRoute, { kind: 'tree' }>,
): object[] | null {
  const prefix = path === '' ? '' : `${path}/`
  const below = tree.entries.filter((entry) => entry.path.startsWith(prefix))
  if (below.length === 0 && path !== '') return null
  return below
    .filter((entry) => recursive || !entry.path.slice(prefix.length).includes('/'))
    .map(entryOf)
}

export function pathsInfoOf(tree: Tree, paths: readonly string[]): object[] {
  const wanted = new Set(paths.map((path) => path.replace(/\/$/, '')))
  return tree.entries.filter(({ path }) => wanted.has(path)).map(entryOf)
}

function entryOf(entry: TreeEntry): object {
  const { type, oid, path } = entry
  if (type === 'directory') return { type, oid, size: 0, path }
  const { size, lfs } = entry
  return { type, oid, size, path, ...(lfs ? { lfs } : {}) }
}

/** The one ref there is here. */
export const refsOf = ({ commit }: Pin): object => ({
  tags: [],
  branches: [{ name: 'main', ref: 'refs/heads/main', targetCommit: commit }],
  converts: [],
  pullRequests: [],
})

/** `paths` of a form or of JSON; null where it is neither. */
export function pathsIn(contentType: string, body: string): string[] | null {
  if (!contentType.includes('json')) return new URLSearchParams(body).getAll('paths')
  try {
    const value = JSON.parse(body) as { paths?: unknown } | null
    const paths = typeof value?.paths === 'string' ? [value.paths] : value?.paths
    return Array.isArray(paths) && paths.every((path) => typeof path === 'string') ? paths : null
  } catch {
    return null
  }
}
