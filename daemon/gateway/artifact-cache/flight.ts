/**
 * One fetch of one object, with any number of readers. Bytes go from the source to a partial file and from there to
 * the readers, so a slow reader holds up nobody. What broke off is resumed, here and after a restart. Readers get all
 * but the end of it as it comes; the end is held back until the whole has the digest that names it, so nobody ends with
 * a whole file that is wrong.
 */
import type { Hash } from 'node:crypto'
import { constants } from 'node:fs'
import { open, type FileHandle } from 'node:fs/promises'
import type { Readable } from 'node:stream'
import type { BlobStore } from './blob-store.ts'
import { hasherOf, objectKey, type ObjectName } from './object-name.ts'
import { DigestError, SourceError, type Source } from './source.ts'

export const heldBackBytes = 64 * 1024
const maxPendingBytes = 4 * 1024 * 1024
const maxTries = 5
const longestPauseMs = 10_000
const rereadBytes = 1024 * 1024

export interface FlightOptions {
  readonly store: BlobStore
  /** Nothing is touched before. */
  readonly ready: Promise<void>
  /** Before the source is asked a second time; doubled each time after. */
  readonly firstPauseMs: number
}

export class Flight {
  readonly name: ObjectName
  readonly key: string
  /** Resolves when the fetch is over, either way. */
  readonly ended: Promise<void>
  readers = 0
  readonly #store: BlobStore
  readonly #source: Source
  readonly #firstPauseMs: number
  readonly #stop = new AbortController()
  #handle: FileHandle | null = null
  #hash: Hash
  #written = 0
  #etag: string | null = null
  /** The source has answered: what an earlier fetch left counts from here on, and is not taken back. */
  #confirmed = false
  #verified = false
  #failure: Error | null = null
  #progress = Promise.withResolvers<void>()

  constructor(name: ObjectName, source: Source, { store, ready, firstPauseMs }: FlightOptions) {
    this.name = name
    this.key = objectKey(name)
    this.#store = store
    this.#firstPauseMs = firstPauseMs
    this.#source = source
    this.#hash = hasherOf(name)
    this.ended = this.#run(ready)
  }

  get failure(): Error | null {
    return this.#failure
  }

  /** Not to be boarded any more. */
  get stopping(): boolean {
    return this.#stop.signal.aborted || this.#failure !== null
  }

  get written(): number {
    return this.#written
  }

  /** How many bytes, from the first on, readers may have. */
  get readable(): number {
    const { size } = this.name
    if (this.#verified) return size
    return this.#confirmed ? Math.max(0, Math.min(this.#written, size - heldBackBytes)) : 0
  }

  /** Resolves at the next change of `readable`, or when the fetch has failed. */
  get progress(): Promise<void> {
    return this.#progress.promise
  }

  async read(buffer: Uint8Array, position: number, length: number): Promise<number> {
    if (this.#handle === null) throw new Error('read before there was anything')
    const { bytesRead } = await this.#handle.read(buffer, 0, length, position)
    return bytesRead
  }

  stop(why: string): void {
    this.#stop.abort(new SourceError(why, { retryAfterMs: 0 }))
  }

  /** When the fetch is over and nobody reads any more. */
  async close(): Promise<void> {
    const handle = this.#handle
    this.#handle = null
    await handle?.close().catch(() => {})
  }

  async #run(ready: Promise<void>): Promise<void> {
    try {
      await ready
      const flags = constants.O_RDWR | constants.O_CREAT
      this.#handle = await open(this.#store.partialPath(this.key), flags, 0o600)
      await this.#takeUp(this.#handle)
      await this.#fetchAll(this.#handle)
      if (this.#hash.digest('hex') !== this.name.hex) {
        await this.#store.remove(this.key)
        this.#written = 0
        throw new DigestError(this.key)
      }
      this.#verified = true
      this.#tell()
      await this.#handle.datasync()
      await this.#store.publish(this.key)
    } catch (error) {
      this.#failure = error instanceof Error ? error : new Error(String(error))
    }
    this.#tell()
  }

  /** What an earlier fetch left is kept if the source still has the same. */
  async #takeUp(handle: FileHandle): Promise<void> {
    const { size } = await handle.stat()
    if (size === 0) return
    if (size > this.name.size) {
      await handle.truncate(0)
      return
    }
    this.#etag = await this.#store.readEtag(this.key)
    const buffer = Buffer.allocUnsafe(rereadBytes)
    for (let at = 0; at < size;) {
      const { bytesRead } = await handle.read(buffer, 0, buffer.length, at)
      if (bytesRead === 0) break
      this.#stop.signal.throwIfAborted()
      this.#hash.update(buffer.subarray(0, bytesRead))
      at += bytesRead
      this.#written = at
    }
  }

  async #fetchAll(handle: FileHandle): Promise<void> {
    let failed = 0
    while (this.#written < this.name.size) {
      const before = this.#written
      try {
        await this.#fetch(handle)
      } catch (error) {
        this.#stop.signal.throwIfAborted()
        if (this.#written > before) failed = 0
        failed += 1
        const asked = error instanceof SourceError ? error.retryAfterMs : 0
        if (asked === null || asked > longestPauseMs || failed >= maxTries || isDiskError(error))
          throw error
        await pause(Math.max(asked, this.#firstPauseMs * 2 ** (failed - 1)), this.#stop.signal)
      }
    }
  }

  async #fetch(handle: FileHandle): Promise<void> {
    const { signal } = this.#stop
    const answer = await this.#source({ from: this.#written, etag: this.#etag, signal })
    if (answer.from !== this.#written && answer.from !== 0) {
      answer.body.destroy()
      throw new SourceError('the source answered with another part', { retryAfterMs: null })
    }
    // The whole again. The bytes up to here are the same or the digest will be wrong; nobody has to read them twice.
    let skip = this.#written - answer.from
    if (skip > 0 && !this.#confirmed) skip = await this.#startOver(handle)
    this.#confirmed = true
    if (answer.etag !== this.#etag) {
      this.#etag = answer.etag
      await this.#store.writeEtag(this.key, answer.etag)
    }
    await drain(answer.body, async (chunks) => {
      signal.throwIfAborted()
      const fresh: Buffer[] = []
      for (const chunk of chunks) {
        const left = skip >= chunk.length ? null : chunk.subarray(skip)
        skip = Math.max(0, skip - chunk.length)
        if (left !== null) fresh.push(left)
      }
      await this.#write(handle, fresh)
    })
    if (this.#written < this.name.size)
      throw new SourceError('the source stopped before the end', { retryAfterMs: 0 })
  }

  async #write(handle: FileHandle, chunks: readonly Buffer[]): Promise<void> {
    let bytes = 0
    for (const chunk of chunks) {
      bytes += chunk.length
      this.#hash.update(chunk)
    }
    if (bytes === 0) return
    if (this.#written + bytes > this.name.size)
      throw new SourceError('the source sent more than the object has', { retryAfterMs: null })
    let at = this.#written
    if (chunks.length === 1 && chunks[0] !== undefined) await writeAll(handle, chunks[0], at)
    else {
      const { bytesWritten } = await handle.writev(chunks, at)
      at += bytesWritten
      // A short write is rare: what is left goes in one piece.
      if (bytesWritten < bytes)
        await writeAll(handle, Buffer.concat(chunks).subarray(bytesWritten), at)
    }
    this.#written += bytes
    this.#tell()
  }

  async #startOver(handle: FileHandle): Promise<number> {
    await handle.truncate(0)
    this.#written = 0
    this.#hash = hasherOf(this.name)
    return 0
  }

  #tell(): void {
    const progress = this.#progress
    this.#progress = Promise.withResolvers()
    progress.resolve()
  }
}

async function writeAll(handle: FileHandle, bytes: Buffer, position: number): Promise<void> {
  for (let done = 0; done < bytes.length;) {
    const { bytesWritten } = await handle.write(bytes, done, bytes.length - done, position + done)
    done += bytesWritten
  }
}

/** Gives on all that has come while the last was being written, in one go; the source waits beyond a few MiB. */
async function drain(
  body: Readable,
  write: (chunks: readonly Buffer[]) => Promise<void>,
): Promise<void> {
  let pending: Buffer[] = []
  let bytes = 0
  let over = false
  let failure: Error | null = null
  let wake = Promise.withResolvers<void>()
  body.on('data', (chunk: Buffer) => {
    pending.push(chunk)
    bytes += chunk.length
    if (bytes > maxPendingBytes) body.pause()
    wake.resolve()
  })
  const end = (error?: Error): void => {
    over = true
    failure ??= error ?? null
    wake.resolve()
  }
  body.once('end', () => end())
  body.once('error', (error: Error) => end(error))
  body.once('close', () => end())
  try {
    for (;;) {
      await wake.promise
      wake = Promise.withResolvers()
      if (over) wake.resolve()
      const chunks = pending
      pending = []
      bytes = 0
      if (chunks.length > 0) await write(chunks)
      else if (over) break
      if (body.isPaused()) body.resume()
    }
    if (failure !== null) throw failure as Error
  } finally {
    body.on('error', () => {})
    body.destroy()
  }
}

const isDiskError = (error: unknown): boolean =>
  error instanceof Error &&
  'code' in error &&
  ['ENOSPC', 'EDQUOT', 'EIO', 'EROFS', 'EFBIG'].includes(String(error.code))

async function pause(ms: number, signal: AbortSignal): Promise<void> {
  signal.throwIfAborted()
  const { promise, resolve, reject } = Promise.withResolvers<void>()
  const timer = setTimeout(resolve, ms)
  const abort = (): void => reject(signal.reason as Error)
  signal.addEventListener('abort', abort, { once: true })
  try {
    await promise
  } finally {
    clearTimeout(timer)
    signal.removeEventListener('abort', abort)
  }
}
