/**
 * The files of the cache: `blobs/` has whole objects, verified and synced before they got their name there; `partial/`
 * has what a fetch has written so far, with the source's etag beside it. No sandbox ever sees the directory. One process
 * at a time: the lock is a socket that dies with its holder.
 */
import { createHash } from 'node:crypto'
import {
  mkdir,
  open,
  readdir,
  readFile,
  rename,
  rm,
  stat,
  utimes,
  writeFile,
} from 'node:fs/promises'
import net from 'node:net'
import path from 'node:path'
import { HostError } from '../../errors.ts'
import { isObjectKey } from './object-name.ts'

export interface StoredFile {
  readonly key: string
  readonly size: number
  readonly usedAtMs: number
  readonly complete: boolean
}

export class BlobStore implements AsyncDisposable {
  readonly directory: string
  readonly #lock: net.Server

  private constructor(directory: string, lock: net.Server) {
    this.directory = directory
    this.#lock = lock
  }

  /** Throws HostError `config_invalid` where another process has it or it can't be made. */
  static async open(directory: string): Promise<BlobStore> {
    try {
      for (const name of ['blobs', 'partial'])
        await mkdir(path.join(directory, name), { recursive: true, mode: 0o700 })
    } catch (error) {
      throw new HostError(
        'config_invalid',
        'operator',
        `cannot make the artifact cache ${directory}: ${(error as Error).message}; set huggingface.cache.dir to a place that can be written`,
        { cause: error },
      )
    }
    return new BlobStore(directory, await takeLock(directory))
  }

  blobPath(key: string): string {
    return path.join(this.directory, 'blobs', key)
  }

  partialPath(key: string): string {
    return path.join(this.directory, 'partial', key)
  }

  /** What earlier processes left. Anything that isn't ours by name is left alone. */
  async list(): Promise<StoredFile[]> {
    const found: StoredFile[] = []
    for (const complete of [true, false]) {
      const folder = path.join(this.directory, complete ? 'blobs' : 'partial')
      for (const key of await readdir(folder)) {
        if (!isObjectKey(key)) continue
        const { size, mtimeMs } = await stat(path.join(folder, key))
        found.push({ key, size, usedAtMs: mtimeMs, complete })
      }
    }
    return found
  }

  async readEtag(key: string): Promise<string | null> {
    const text = await readFile(`${this.partialPath(key)}.etag`, 'utf8').catch(() => '')
    return text === '' ? null : text
  }

  async writeEtag(key: string, etag: string | null): Promise<void> {
    await writeFile(`${this.partialPath(key)}.etag`, etag ?? '', { mode: 0o600 })
  }

  /** The caller has synced the partial file. */
  async publish(key: string): Promise<void> {
    await rename(this.partialPath(key), this.blobPath(key))
    const folder = await open(path.dirname(this.blobPath(key)))
    try {
      await folder.sync()
    } finally {
      await folder.close()
    }
    await rm(`${this.partialPath(key)}.etag`, { force: true })
  }

  async remove(key: string): Promise<void> {
    const partial = this.partialPath(key)
    for (const file of [this.blobPath(key), partial, `${partial}.etag`])
      await rm(file, { force: true })
  }

  async touch(key: string, whenMs: number): Promise<void> {
    await utimes(this.blobPath(key), whenMs / 1000, whenMs / 1000).catch(() => {})
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await new Promise<void>((resolve) => this.#lock.close(() => resolve()))
  }
}

async function takeLock(directory: string): Promise<net.Server> {
  const { dev, ino } = await stat(directory, { bigint: true })
  const id = createHash('sha256').update(`${dev}:${ino}`).digest('hex').slice(0, 32)
  const lock = net.createServer((socket) => socket.destroy())
  await new Promise<void>((resolve, reject) => {
    lock.once('error', reject)
    // An abstract name: the kernel frees it when the process ends, however it ends.
    lock.listen(`\0closedbook-artifacts-${id}`, resolve)
  }).catch((error: unknown) => {
    throw new HostError(
      'config_invalid',
      'operator',
      `the artifact cache ${directory} is in use by another daemon; give this one a huggingface.cache.dir of its own`,
      { cause: error },
    )
  })
  lock.unref()
  return lock
}
