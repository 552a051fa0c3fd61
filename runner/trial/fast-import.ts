/**
 * Writes a `git fast-import` stream: two commits without parents, `base` and `new`, each holding only the paths that
 * differ. Blobs are read from the two containers while the stream is consumed, so that no file is ever whole in
 * memory. Ends with `done`: a stream that breaks off is an error in git, never a smaller patch.
 */
import { RunnerError } from '../errors.ts'
import { quoteForGit, toBytes, type BytePath } from './path-name.ts'
import { readBlobs, type TreeEntry } from './tree.ts'
import type { Sandbox } from './sandbox.ts'

export interface Side {
  readonly sandbox: Sandbox
  readonly root: string
  readonly entries: ReadonlyMap<BytePath, TreeEntry>
}

export async function* fastImportStream(
  base: Side,
  next: Side,
  options: { signal?: AbortSignal | undefined } = {},
): AsyncGenerator<Buffer> {
  const marks = new Map<string, number>()
  yield Buffer.from('feature done\n')
  for (const side of [base, next]) {
    const wanted = new Map<BytePath, TreeEntry>()
    const queued = new Set<string>()
    for (const [path, entry] of side.entries) {
      if (entry.target !== undefined || marks.has(entry.blob) || queued.has(entry.blob)) continue
      queued.add(entry.blob)
      wanted.set(entry.storedAt ?? path, entry)
    }
    for await (const item of readBlobs(side.sandbox, side.root, wanted, options)) {
      if (Buffer.isBuffer(item)) {
        yield item
        continue
      }
      const mark = marks.size + 1
      const blob = wanted.get(item.path)?.blob
      if (blob === undefined) throw new TypeError('a blob that nobody asked for')
      if (marks.size > 0) yield Buffer.from('\n')
      marks.set(blob, mark)
      yield Buffer.from(`blob\nmark :${mark}\ndata ${item.size}\n`)
    }
  }
  if (marks.size > 0) yield Buffer.from('\n')
  yield* commit('base', base.entries, marks)
  yield* commit('new', next.entries, marks)
  yield Buffer.from('done\n')
}

function* commit(
  branch: string,
  entries: ReadonlyMap<BytePath, TreeEntry>,
  marks: ReadonlyMap<string, number>,
): Generator<Buffer> {
  yield Buffer.from(
    `commit refs/heads/${branch}\ncommitter closedbook <closedbook@localhost> 0 +0000\ndata ${branch.length}\n${branch}\ndeleteall\n`,
  )
  for (const [path, entry] of entries) {
    if (entry.target === undefined) {
      const mark = marks.get(entry.blob)
      if (mark === undefined)
        throw new RunnerError('collect_failed', 'infra', `no bytes for ${quoteForGit(path)}`)
      yield Buffer.from(`M ${entry.mode} :${mark} ${quoteForGit(path)}\n`)
    } else {
      const target = toBytes(entry.target)
      yield Buffer.from(`M 120000 inline ${quoteForGit(path)}\ndata ${target.length}\n`)
      yield Buffer.concat([target, Buffer.from('\n')])
    }
  }
  yield Buffer.from('\n')
}
