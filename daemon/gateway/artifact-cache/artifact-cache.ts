/**
 * The host's cache of model artifacts, one for all leases of a daemon. Objects are named by their digest, so what one
 * lease fetched is what another gets, and nothing a sandbox does can change it: it only reads. Each object has one fetch
 * under way at most. It keeps to its quota by dropping what was used longest ago and nobody reads. It knows no policy:
 * whoever opens an object here has decided first.
 */
import { open } from 'node:fs/promises'
import { GrowingArtifact, StoredArtifact, type Artifact, type Origin } from './artifact.ts'
import { BlobStore } from './blob-store.ts'
import { Flight } from './flight.ts'
import { objectKey, type ObjectName } from './object-name.ts'
import { CacheFullError, type Source } from './source.ts'

export interface ArtifactCacheOptions {
  readonly directory: string
  readonly maxBytes: number
  /** A fetch that nobody reads any more goes on for so long; what it has written stays for the next. */
  readonly lingerMs?: number
  /** Before a source that broke off is asked again; doubled each time after. */
  readonly firstPauseMs?: number
}

export interface CacheStats {
  readonly objects: number
  readonly bytes: number
  readonly fetching: number
  readonly hits: number
  readonly joins: number
  readonly misses: number
  readonly evicted: number
}

interface Entry {
  /** What it takes of the quota: for an object that is being fetched, all that it will have. */
  size: number
  usedAtMs: number
  complete: boolean
  readers: number
}

const counterOf = { hit: 'hits', join: 'joins', miss: 'misses' } as const satisfies Record<
  Origin,
  string
>

const defaultLingerMs = 10_000
const defaultFirstPauseMs = 250
/** How exactly the order of use survives a restart. */
const touchEveryMs = 60_000

export class ArtifactCache implements AsyncDisposable {
  readonly directory: string
  readonly #store: BlobStore
  readonly #maxBytes: number
  readonly #lingerMs: number
  readonly #firstPauseMs: number
  readonly #entries = new Map<string, Entry>()
  readonly #flights = new Map<string, Flight>()
  /** Files that are being removed: the next fetch of one waits for it. */
  readonly #removing = new Map<string, Promise<void>>()
  readonly #counts = { hits: 0, joins: 0, misses: 0, evicted: 0 }
  #bytes = 0
  #closed = false

  private constructor(store: BlobStore, options: ArtifactCacheOptions) {
    this.directory = options.directory
    this.#store = store
    this.#maxBytes = options.maxBytes
    this.#lingerMs = options.lingerMs ?? defaultLingerMs
    this.#firstPauseMs = options.firstPauseMs ?? defaultFirstPauseMs
  }

  /** Takes up what is there; a quota that has shrunk since is kept to at once. */
  static async open(options: ArtifactCacheOptions): Promise<ArtifactCache> {
    await using undo = new AsyncDisposableStack()
    const store = undo.use(await BlobStore.open(options.directory))
    const cache = new ArtifactCache(store, options)
    for (const { key, size, usedAtMs, complete } of await store.list()) {
      if (cache.#entries.has(key)) continue
      cache.#entries.set(key, { size, usedAtMs, complete, readers: 0 })
      cache.#bytes += size
    }
    await Promise.all(cache.#evict(options.maxBytes))
    undo.move()
    return cache
  }

  /** Whether the object could be served without asking anybody. */
  has(name: ObjectName): boolean {
    return this.#entries.get(objectKey(name))?.complete === true
  }

  stats(): CacheStats {
    const { size: objects } = this.#entries
    return { objects, bytes: this.#bytes, fetching: this.#flights.size, ...this.#counts }
  }

  /** Throws CacheFullError. `source` must outlive whoever opens: others may join its fetch. */
  async open(name: ObjectName, source: Source): Promise<Artifact> {
    if (this.#closed) throw new Error('the artifact cache is closed')
    const key = objectKey(name)
    const known = this.#entries.get(key)
    if (known?.complete === true && !this.#flights.has(key)) {
      const stored = await this.#openStored(key, name, known)
      if (stored !== null) return stored
    }
    const flight = this.#flights.get(key)
    if (flight !== undefined && !flight.stopping)
      return this.#board(flight, flight.readable === name.size ? 'hit' : 'join')
    return this.#board(this.#depart(key, name, source), 'miss')
  }

  async #openStored(key: string, name: ObjectName, entry: Entry): Promise<Artifact | null> {
    entry.readers += 1
    const handle = await open(this.#store.blobPath(key), 'r').catch(() => null)
    const whole = handle !== null && (await handle.stat()).size === name.size
    if (handle === null || !whole) {
      // Lost or damaged behind our back.
      await handle?.close()
      entry.readers -= 1
      if (this.#entries.get(key) === entry && !this.#flights.has(key)) await this.#drop(key, entry)
      return null
    }
    this.#counts[counterOf.hit] += 1
    const now = Date.now()
    if (now - entry.usedAtMs > touchEveryMs) void this.#store.touch(key, now)
    entry.usedAtMs = now
    return new StoredArtifact(name.size, handle, () => {
      entry.readers -= 1
    })
  }

  /** Up to its place in the table without a pause, so that two who ask at once get one fetch. */
  #depart(key: string, name: ObjectName, source: Source): Flight {
    const entry = this.#entries.get(key) ?? { size: 0, usedAtMs: 0, complete: false, readers: 0 }
    if (name.size > this.#maxBytes)
      throw new CacheFullError(
        true,
        `the object has ${name.size} bytes and the artifact cache of this host holds ${this.#maxBytes}; raise huggingface.cache.maxBytes`,
      )
    entry.readers += 1
    const dropped = this.#evict(this.#maxBytes - (name.size - entry.size))
    entry.readers -= 1
    if (this.#bytes - entry.size + name.size > this.#maxBytes)
      throw new CacheFullError(
        false,
        'the artifact cache of this host is full of artifacts that are being read',
      )
    this.#entries.set(key, entry)
    this.#resize(entry, name.size)
    entry.complete = false
    entry.usedAtMs = Date.now()
    const before = [this.#flights.get(key)?.ended, this.#removing.get(key)]
    const ready = Promise.all([...before, ...dropped]).then(() => undefined)
    const flight = new Flight(name, source, {
      store: this.#store,
      ready,
      firstPauseMs: this.#firstPauseMs,
    })
    this.#flights.set(key, flight)
    void flight.ended.then(() => this.#landed(flight, entry))
    return flight
  }

  #landed(flight: Flight, entry: Entry): void {
    if (this.#flights.get(flight.key) === flight) {
      this.#flights.delete(flight.key)
      if (flight.failure === null) entry.complete = true
      else if (flight.written === 0) void this.#drop(flight.key, entry)
      else this.#resize(entry, flight.written)
    }
    if (flight.readers === 0) void flight.close()
  }

  #board(flight: Flight, origin: Origin): Artifact {
    this.#counts[counterOf[origin]] += 1
    const entry = this.#entries.get(flight.key)
    flight.readers += 1
    if (entry !== undefined) entry.readers += 1
    return new GrowingArtifact(flight, origin, () => {
      flight.readers -= 1
      if (entry !== undefined) entry.readers -= 1
      if (flight.readers > 0) return
      if (this.#flights.get(flight.key) !== flight) void flight.close()
      else this.#linger(flight)
    })
  }

  #linger(flight: Flight): void {
    const timer = setTimeout(() => {
      if (flight.readers === 0) flight.stop('nobody reads it any more')
    }, this.#lingerMs)
    void flight.ended.then(() => clearTimeout(timer))
  }

  /** Until no more than `goal` bytes are taken; what is read or fetched now stays. */
  #evict(goal: number): Promise<void>[] {
    if (this.#bytes <= goal) return []
    const idle = [...this.#entries]
      .filter(([key, { readers }]) => readers === 0 && !this.#flights.has(key))
      .toSorted(([, a], [, b]) => a.usedAtMs - b.usedAtMs)
    const dropped: Promise<void>[] = []
    for (const [key, entry] of idle) {
      if (this.#bytes <= goal) break
      dropped.push(this.#drop(key, entry))
      this.#counts.evicted += 1
    }
    return dropped
  }

  #drop(key: string, entry: Entry): Promise<void> {
    this.#entries.delete(key)
    this.#resize(entry, 0)
    const removed = this.#store
      .remove(key)
      // It stays on the disk and is found again by the next process.
      .catch(() => {})
      .finally(() => this.#removing.delete(key))
    this.#removing.set(key, removed)
    return removed
  }

  #resize(entry: Entry, size: number): void {
    this.#bytes += size - entry.size
    entry.size = size
  }

  /** Fetches stop where they are; the next process goes on from there. */
  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#closed) return
    this.#closed = true
    const flights = [...this.#flights.values()]
    for (const flight of flights) flight.stop('the daemon ends')
    await Promise.all([...flights.map(({ ended }) => ended), ...this.#removing.values()])
    await this.#store[Symbol.asyncDispose]()
  }
}
