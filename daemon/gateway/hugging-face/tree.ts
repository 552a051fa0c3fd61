/** The files of a repository at one commit, as the Hub lists them, without anything that leads a client elsewhere. */
import { z } from 'zod'

const oid = z.string().regex(/^[0-9a-f]{40}$/)
const size = z.int().nonnegative()
const path = z
  .string()
  .min(1)
  .max(4096)
  .refine((text) => text.split('/').every((part) => part !== '' && part !== '.' && part !== '..'))

const fileSchema = z.object({
  type: z.literal('file'),
  path,
  oid,
  size,
  lfs: z
    .object({ oid: z.string().regex(/^[0-9a-f]{64}$/), size, pointerSize: size.default(134) })
    .nullish(),
})
const folderSchema = z.object({ type: z.literal('directory'), path, oid })
const entrySchema = z.union([fileSchema, folderSchema])

/** Strict on what we use; the rest (xetHash, security scans, commits) is dropped here. */
export const pageSchema = z.array(z.unknown()).transform((entries, context) => {
  const tree: TreeEntry[] = []
  for (const entry of entries) {
    const known = entrySchema.safeParse(entry)
    // Submodules and what the Hub may invent are not served.
    if (known.success) tree.push(known.data)
    else if (isFile(entry))
      context.addIssue({ code: 'custom', message: `a file entry that can't be read` })
  }
  return tree
})

const isFile = (entry: unknown): boolean =>
  typeof entry === 'object' && entry !== null && 'type' in entry && entry.type === 'file'

export type TreeFile = z.infer<typeof fileSchema>
export type TreeEntry = z.infer<typeof entrySchema>

export class Tree {
  readonly entries: readonly TreeEntry[]
  readonly #files: ReadonlyMap<string, TreeFile>

  constructor(entries: readonly TreeEntry[]) {
    this.entries = entries
    this.#files = new Map(
      entries.flatMap((entry) => (entry.type === 'file' ? [[entry.path, entry] as const] : [])),
    )
  }

  get files(): TreeFile[] {
    return [...this.#files.values()]
  }

  file(at: string): TreeFile | undefined {
    return this.#files.get(at)
  }

  /** Files that the filter lets through, and the folders that have one of them. */
  filtered(allowed: (path: string) => boolean): Tree {
    const files = [...this.#files.values()].filter((file) => allowed(file.path))
    const folders = new Set<string>()
    for (const file of files)
      for (let at = file.path.lastIndexOf('/'); at > 0; at = file.path.lastIndexOf('/', at - 1))
        folders.add(file.path.slice(0, at))
    return new Tree(
      this.entries.filter((entry) =>
        entry.type === 'file' ? allowed(entry.path) : folders.has(entry.path),
      ),
    )
  }
}
