/**
 * Trees by repository and commit: on disk, and the last used in memory. One fetch of each at a time, which goes on when
 * the one who asked first leaves. A file that can't be read is fetched again.
 */
import { createHash, randomUUID } from 'node:crypto'
import { mkdir, open, readFile, readdir, rename, rm, stat } from 'node:fs/promises'
import path from 'node:path'
import { pageSchema, Tree, type TreeEntry } from './tree.ts'

const maxInMemory = 64
/** On disk; beyond it those written longest ago are dropped when the daemon starts. */
const maxOnDisk = 2_000

export class TreeStore {
  readonly #directory: string
  readonly #trees = new Map<string, Tree>()
  readonly #flights = new Map<string, Promise<Tree>>()

  private constructor(directory: string) {
    this.#directory = directory
  }

  static async open(directory: string): Promise<TreeStore> {
    await mkdir(directory, { recursive: true, mode: 0o700 })
    await prune(directory)
    return new TreeStore(directory)
  }

  async get(id: string, fetch: () => Promise<TreeEntry[]>, signal: AbortSignal): Promise<Tree> {
    signal.throwIfAborted()
    const known = this.#trees.get(id)
    if (known !== undefined) {
      this.#keep(id, known)
      return known
    }
    let flight = this.#flights.get(id)
    if (flight === undefined) {
      flight = this.#load(id, fetch).finally(() => this.#flights.delete(id))
      flight.catch(() => {})
      this.#flights.set(id, flight)
    }
    const aborted = Promise.withResolvers<never>()
    aborted.promise.catch(() => {})
    const abort = (): void => aborted.reject(signal.reason as Error)
    signal.addEventListener('abort', abort, { once: true })
    try {
      return await Promise.race([flight, aborted.promise])
    } finally {
      signal.removeEventListener('abort', abort)
    }
  }

  async #load(id: string, fetch: () => Promise<TreeEntry[]>): Promise<Tree> {
    const file = path.join(this.#directory, createHash('sha256').update(id).digest('hex'))
    const stored = await readTree(file, id)
    const entries = stored ?? (await fetch())
    if (stored === null) await writeTree(file, id, entries)
    const tree = new Tree(entries)
    this.#keep(id, tree)
    return tree
  }

  #keep(id: string, tree: Tree): void {
    this.#trees.delete(id)
    this.#trees.set(id, tree)
    const [oldest] = this.#trees.keys()
    if (this.#trees.size > maxInMemory && oldest !== undefined) this.#trees.delete(oldest)
  }
}

/** Unfinished files of a daemon that died, and the oldest of too many. */
async function prune(directory: string): Promise<void> {
  const kept: { file: string; writtenMs: number }[] = []
  for (const name of await readdir(directory)) {
    const file = path.join(directory, name)
    if (name.includes('.')) await rm(file, { force: true })
    else kept.push({ file, writtenMs: (await stat(file)).mtimeMs })
  }
  kept.sort((a, b) => b.writtenMs - a.writtenMs)
  for (const { file } of kept.slice(maxOnDisk)) await rm(file, { force: true })
}

async function readTree(file: string, id: string): Promise<TreeEntry[] | null> {
  try {
    const stored = JSON.parse(await readFile(file, 'utf8')) as { id?: unknown; entries?: unknown }
    if (stored.id !== id) return null
    return pageSchema.parse(stored.entries)
  } catch {
    return null
  }
}

/** What can't be kept is asked for again: no reason to fail. */
async function writeTree(file: string, id: string, entries: TreeEntry[]): Promise<void> {
  try {
    const fresh = `${file}.${randomUUID()}`
    const handle = await open(fresh, 'wx', 0o600)
    try {
      await handle.writeFile(JSON.stringify({ id, entries }))
      await handle.datasync()
    } finally {
      await handle.close()
    }
    await rename(fresh, file)
  } catch {
    // See above.
  }
}
