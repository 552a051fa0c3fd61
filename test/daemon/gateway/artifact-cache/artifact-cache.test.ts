import { fork } from 'node:child_process'
import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { mkdtemp, readdir, rm, truncate, utimes, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Readable } from 'node:stream'
import t from 'tap'
import { ArtifactCache } from '../../../../daemon/gateway/artifact-cache/artifact-cache.ts'
import type { Artifact } from '../../../../daemon/gateway/artifact-cache/artifact.ts'
import type { ObjectName } from '../../../../daemon/gateway/artifact-cache/object-name.ts'
import {
  CacheFullError,
  DigestError,
  SourceError,
  type Source,
  type SourceAsk,
} from '../../../../daemon/gateway/artifact-cache/source.ts'
import { large, type Content } from '../../../support/hub.ts'

const signal = AbortSignal.timeout(30_000)

const nameOf = (content: Content): ObjectName => ({
  algorithm: 'sha256',
  hex: createHash('sha256').update(content.read(0, content.size)).digest('hex'),
  size: content.size,
})

interface Ask {
  readonly from: number
  readonly etag: string | null
}

/** A source that keeps what it was asked; `serve` may be changed to make trouble. */
class TestSource {
  readonly asks: Ask[] = []
  readonly content: Content
  etag = '"v1"'
  /** Ends the body there with a fault, once each. */
  readonly cuts: number[] = []
  ranges = true
  /** No byte from here on until it is resolved. */
  hold: { at: number; release: Promise<void> } | null = null

  constructor(content: Content) {
    this.content = content
  }

  get source(): Source {
    return async ({ from: asked, etag, signal: stop }: SourceAsk) => {
      this.asks.push({ from: asked, etag })
      const from = this.ranges && (etag === null || etag === this.etag) ? asked : 0
      return { from, etag: this.etag, body: Readable.from(this.#pieces(from, stop)) }
    }
  }

  async *#pieces(from: number, stop: AbortSignal): AsyncGenerator<Buffer> {
    const cut = this.cuts.shift()
    for (let at = from; at < this.content.size;) {
      stop.throwIfAborted()
      if (cut !== undefined && at >= cut) throw new Error('cut off')
      if (this.hold !== null && at >= this.hold.at) {
        const aborted = new Promise<void>((resolve) =>
          stop.addEventListener('abort', () => resolve()),
        )
        await Promise.race([this.hold.release, aborted])
        stop.throwIfAborted()
      }
      const to = Math.min(at + 32_768, this.content.size)
      yield this.content.read(at, to)
      at = to
    }
  }
}

async function readAll(artifact: Artifact, start = 0, end = artifact.size): Promise<Buffer> {
  const whole = Buffer.alloc(end - start)
  for (let at = start; at < end;) {
    const available = await artifact.available(at, { signal })
    const piece = Buffer.alloc(Math.min(100_000, Math.min(available, end) - at))
    const read = await artifact.read(piece, at, piece.length)
    piece.copy(whole, at - start, 0, read)
    at += read
  }
  return whole
}

async function fetched(cache: ArtifactCache, name: ObjectName, source: Source): Promise<Buffer> {
  await using artifact = await cache.open(name, source)
  return await readAll(artifact)
}

interface Kept extends AsyncDisposable {
  readonly directory: string
  open(options?: { maxBytes?: number; lingerMs?: number }): Promise<ArtifactCache>
}

async function folder(): Promise<Kept> {
  const directory = await mkdtemp(join(tmpdir(), 'artifacts-'))
  return {
    directory,
    open: ({ maxBytes = 100_000_000, lingerMs = 50 } = {}) =>
      ArtifactCache.open({ directory, maxBytes, lingerMs, firstPauseMs: 10 }),
    [Symbol.asyncDispose]: () => rm(directory, { recursive: true, force: true }),
  }
}

async function until(what: string, condition: () => boolean): Promise<void> {
  const deadline = Date.now() + 5_000
  while (!condition()) {
    if (Date.now() > deadline) throw new Error(`waited too long: ${what}`)
    await new Promise((resolve) => setTimeout(resolve, 5))
  }
}

t.test('many readers of one object are one fetch, each at its own pace and place', async (t) => {
  await using kept = await folder()
  await using cache = await kept.open()
  const content = large(3_000_000)
  const origin = new TestSource(content)
  const release = Promise.withResolvers<void>()
  origin.hold = { at: 1_000_000, release: release.promise }
  const name = nameOf(content)
  const readers = await Promise.all(
    Array.from({ length: 8 }, async () => cache.open(name, origin.source)),
  )
  t.same(readers.map((one) => one.origin).toSorted(), [...Array(7).fill('join'), 'miss'])
  const [first] = readers
  if (first === undefined) throw new Error('eight readers')
  t.ok(
    (await readAll(first, 200_000, 900_000)).equals(content.read(200_000, 900_000)),
    'a part while it grows',
  )
  const rest = Promise.all(readers.map((one, index) => readAll(one, index * 1000)))
  release.resolve()
  for (const [index, bytes] of (await rest).entries())
    t.ok(bytes.equals(content.read(index * 1000, content.size)))
  await Promise.all(readers.map((one) => one[Symbol.asyncDispose]()))
  t.equal(origin.asks.length, 1)
  await until('published', () => cache.stats().fetching === 0)
  await using hit = await cache.open(name, origin.source)
  t.equal(hit.origin, 'hit')
  t.ok((await readAll(hit)).equals(content.read(0, content.size)))
  t.equal(origin.asks.length, 1)
  t.match(cache.stats(), { objects: 1, bytes: 3_000_000, misses: 1, joins: 7, hits: 1 })
})

t.test(
  'a source that breaks off is asked for the rest, and one without ranges for all',
  async (t) => {
    await using kept = await folder()
    await using cache = await kept.open()
    const content = large(1_000_000)
    const origin = new TestSource(content)
    origin.cuts.push(300_000, 600_000)
    t.ok(
      (await fetched(cache, nameOf(content), origin.source)).equals(content.read(0, content.size)),
    )
    t.same(
      origin.asks.map(({ from }) => from > 0),
      [false, true, true],
      'resumed',
    )
    t.same(
      origin.asks.map(({ etag }) => etag),
      [null, '"v1"', '"v1"'],
    )

    const stubborn = new TestSource(large(1_000_000))
    stubborn.ranges = false
    stubborn.cuts.push(500_000)
    t.ok(
      (await fetched(cache, nameOf(stubborn.content), stubborn.source)).equals(
        stubborn.content.read(0, 1_000_000),
      ),
    )
  },
)

t.test(
  'bytes with another digest are never served whole, never kept, and not asked for again and again',
  async (t) => {
    await using kept = await folder()
    await using cache = await kept.open()
    const content = large(500_000)
    const name = nameOf(content)
    const wrong = new TestSource(large(500_000))
    await t.rejects(fetched(cache, name, wrong.source), DigestError)
    t.equal(wrong.asks.length, 1)
    t.notOk(cache.has(name))
    await using artifact = await cache.open(name, wrong.source)
    await t.rejects(
      Promise.resolve(artifact.available(500_000 - 65_536, { signal })),
      DigestError,
      'the end is held back',
    )
    await until('forgotten', () => cache.stats().bytes === 0)
    const right = new TestSource(content)
    t.ok((await fetched(cache, name, right.source)).equals(content.read(0, content.size)))
    for (const size of [499_999, 500_001]) {
      const other = large(500_000)
      const answer: Source = async () => ({
        from: 0,
        etag: null,
        body: Readable.from([large(size).read(0, size)]),
      })
      await t.rejects(fetched(cache, nameOf(other), answer), `${size} bytes for 500000`)
    }
  },
)

t.test('small files are held until they are verified; git names them its own way', async (t) => {
  await using kept = await folder()
  await using cache = await kept.open()
  const text = Buffer.from('{"a":1}\n')
  const hex = createHash('sha1').update(`blob ${text.length}\0`).update(text).digest('hex')
  const name: ObjectName = { algorithm: 'git-sha1', hex, size: text.length }
  const source =
    (bytes: Buffer): Source =>
    async () => ({ from: 0, etag: null, body: Readable.from([bytes]) })
  await t.rejects(fetched(cache, name, source(Buffer.from('{"a":2}\n'))), DigestError)
  t.same(await fetched(cache, name, source(text)), text)
  const empty: ObjectName = {
    algorithm: 'git-sha1',
    hex: 'e69de29bb2d1d6434b8b29ae775ad8c2e48c5391',
    size: 0,
  }
  t.equal((await fetched(cache, empty, source(Buffer.alloc(0)))).length, 0)
  await t.rejects(
    cache.open({ ...name, hex: '../../../etc/passwd' }, source(text)),
    'no digest, no path',
  )
})

t.test(
  'what a dead process left is resumed if the source has the same, and begun anew if not',
  async (t) => {
    await using kept = await folder()
    const content = large(2_000_000)
    const name = nameOf(content)
    const origin = new TestSource(content)
    const breakOff = async (): Promise<void> => {
      origin.hold = { at: 1_000_000, release: new Promise(() => {}) }
      const cache = await kept.open()
      const artifact = await cache.open(name, origin.source)
      await readAll(artifact, 0, 900_000)
      await cache[Symbol.asyncDispose]()
      await artifact[Symbol.asyncDispose]()
      origin.hold = null
    }
    await breakOff()
    {
      await using cache = await kept.open()
      t.ok(
        cache.stats().bytes >= 900_000 && cache.stats().bytes < 2_000_000,
        'what is there counts',
      )
      t.notOk(cache.has(name))
      t.ok((await fetched(cache, name, origin.source)).equals(content.read(0, content.size)))
      const { from, etag } = origin.asks.at(-1) ?? { from: 0, etag: null }
      t.ok(from >= 900_000, `asked from ${from} on`)
      t.equal(etag, '"v1"')
      await until('published', () => cache.stats().fetching === 0)
    }
    await rm(join(kept.directory, 'blobs'), { recursive: true })
    await breakOff()
    origin.etag = '"v2"'
    {
      await using cache = await kept.open()
      t.ok((await fetched(cache, name, origin.source)).equals(content.read(0, content.size)))
      t.ok((origin.asks.at(-1)?.from ?? 0) > 0, 'it is the source that says it has another version')
    }
  },
)

t.test('a damaged partial file costs one failed download, not a wrong one', async (t) => {
  await using kept = await folder()
  const content = large(1_000_000)
  const name = nameOf(content)
  await (await kept.open())[Symbol.asyncDispose]()
  await writeFile(join(kept.directory, 'partial', `sha256-${name.hex}`), Buffer.alloc(400_000))
  await using cache = await kept.open()
  const origin = new TestSource(content)
  await t.rejects(fetched(cache, name, origin.source), DigestError)
  t.ok((await fetched(cache, name, origin.source)).equals(content.read(0, content.size)))
})

t.test('a whole file that was cut short behind our back is fetched again', async (t) => {
  await using kept = await folder()
  const content = large(200_000)
  const name = nameOf(content)
  const origin = new TestSource(content)
  await using cache = await kept.open()
  await fetched(cache, name, origin.source)
  await until('published', () => cache.stats().fetching === 0)
  await truncate(join(kept.directory, 'blobs', `sha256-${name.hex}`), 1000)
  t.ok((await fetched(cache, name, origin.source)).equals(content.read(0, content.size)))
  t.equal(origin.asks.length, 2)
})

t.test('the quota holds: what was used longest ago goes, what is read stays', async (t) => {
  await using kept = await folder()
  const contents = Array.from({ length: 4 }, () => large(300_000))
  const names = contents.map(nameOf)
  const sources = contents.map((content) => new TestSource(content))
  const get = async (cache: ArtifactCache, index: number): Promise<void> => {
    const [name, source] = [names[index], sources[index]]
    if (name === undefined || source === undefined) throw new Error('no such content')
    await fetched(cache, name, source.source)
    await until('published', () => cache.stats().fetching === 0)
    // The order of use is kept to the millisecond.
    await new Promise((resolve) => setTimeout(resolve, 2))
  }
  const has = (cache: ArtifactCache): boolean[] => names.map((name) => cache.has(name))
  {
    await using cache = await kept.open({ maxBytes: 1_000_000 })
    for (const index of [0, 1, 2, 0, 3]) await get(cache, index)
    t.same(has(cache), [true, false, true, true], '1 was used longest ago')
    t.match(cache.stats(), { bytes: 900_000, evicted: 1 })
    const blobs = await readdir(join(kept.directory, 'blobs'))
    t.equal(blobs.length, 3, 'on the disk too')

    const [name, source] = [names[2], sources[2]]
    if (name === undefined || source === undefined) throw new Error('four contents')
    await using reader = await cache.open(name, source.source)
    for (const index of [1, 0, 3]) await get(cache, index)
    t.equal(cache.has(name), true, 'read all the while')
    t.equal((await readAll(reader)).length, 300_000)
  }
  for (const [index, key] of (await readdir(join(kept.directory, 'blobs'))).entries())
    await utimes(join(kept.directory, 'blobs', key), 1000 + index, 1000 + index)
  await using smaller = await kept.open({ maxBytes: 400_000 })
  t.match(smaller.stats(), { objects: 1, bytes: 300_000 }, 'a smaller quota is kept to at once')
  const big = large(500_000)
  await t.rejects(smaller.open(nameOf(big), new TestSource(big).source), CacheFullError, 'ever')
  const [held] = contents.filter((content) => smaller.has(nameOf(content)))
  if (held === undefined) throw new Error('one is left')
  await using reader = await smaller.open(nameOf(held), new TestSource(held).source)
  const next = large(300_000)
  await t.rejects(
    smaller.open(nameOf(next), new TestSource(next).source),
    CacheFullError,
    'for now',
  )
  await reader[Symbol.asyncDispose]()
  t.equal((await fetched(smaller, nameOf(next), new TestSource(next).source)).length, 300_000)
})

t.test('a fetch that nobody reads stops after a while and goes on where it was', async (t) => {
  await using kept = await folder()
  await using cache = await kept.open({ lingerMs: 20 })
  const content = large(2_000_000)
  const origin = new TestSource(content)
  origin.hold = { at: 1_000_000, release: new Promise(() => {}) }
  const artifact = await cache.open(nameOf(content), origin.source)
  await readAll(artifact, 0, 500_000)
  await artifact[Symbol.asyncDispose]()
  await until('stopped', () => cache.stats().fetching === 0)
  origin.hold = null
  t.ok((await fetched(cache, nameOf(content), origin.source)).equals(content.read(0, content.size)))
  t.ok((origin.asks[1]?.from ?? 0) >= 500_000)
})

t.test('a source that says no is believed, and everybody who waits is told', async (t) => {
  await using kept = await folder()
  await using cache = await kept.open()
  const content = large(100_000)
  let asked = 0
  const refuse: Source = async () => {
    asked += 1
    throw new SourceError('it is gated', { retryAfterMs: null })
  }
  const opened = await Promise.all([1, 2, 3].map(async () => cache.open(nameOf(content), refuse)))
  const ends = await Promise.allSettled(opened.map((one) => readAll(one)))
  for (const end of ends) t.match(end, { status: 'rejected', reason: { message: 'it is gated' } })
  t.equal(asked, 1)
  await Promise.all(opened.map((one) => one[Symbol.asyncDispose]()))
  t.match(cache.stats(), { objects: 0, bytes: 0, fetching: 0 })
})

t.test('one process at a time has the directory, and a killed one leaves no lock', async (t) => {
  await using kept = await folder()
  const module = new URL(
    '../../../../daemon/gateway/artifact-cache/artifact-cache.ts',
    import.meta.url,
  )
  const holder = join(kept.directory, 'holder.mjs')
  await writeFile(
    holder,
    `const { ArtifactCache } = await import(${JSON.stringify(module.href)})
     await ArtifactCache.open({ directory: process.argv[2], maxBytes: 1000 })
     process.send('open')
     setInterval(() => {}, 1000)`,
  )
  const child = fork(holder, [kept.directory], { execArgv: ['--no-warnings'] })
  await once(child, 'message')
  await t.rejects(kept.open(), { code: 'config_invalid', message: /in use by another daemon/ })
  child.kill('SIGKILL')
  await once(child, 'exit')
  const cache = await kept.open()
  await cache[Symbol.asyncDispose]()
})
