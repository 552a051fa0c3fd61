/**
 * Looks at every file of every layer as it streams by, and into archives among them (tar, gzip, zstd, zip, two deep):
 * which hold a test or the solution (by digest, by shingles, by the names in compiled Python), which hold secrets or
 * proxies, and where git repositories are. It keeps candidates, not files; what they mean is decided afterwards.
 */
import { createHash } from 'node:crypto'
import { Readable } from 'node:stream'
import tar from 'tar-stream'
import { showPath } from '../../../trial/path-name.ts'
import {
  credentialsIn,
  holdsCredentials,
  lineAt,
  proxyFile,
  proxyLines,
  secretsIn,
  urlPasswords,
} from '../secrets.ts'
import type { Fingerprints } from './fingerprint.ts'
import { LineScan } from './line-scan.ts'
import { isGzip, isTar, isZstd, peek, unpacked, type LayerEntry } from './saved-image.ts'
import { isZip, zipEntries } from './zip.ts'

/** A file that shares something with a test or the solution. */
export interface Candidate {
  readonly layer: string
  /** In the image, without a leading slash; `a.zip!/b` inside an archive. */
  readonly path: string
  readonly size: number
  readonly blob: string
  /** Sources whose bytes it has. */
  readonly same: readonly number[]
  /** By source: which shingles. */
  readonly shingles: ReadonlyMap<number, ReadonlySet<number>>
  /** Of compiled Python: names by source. */
  readonly names: ReadonlyMap<number, ReadonlySet<string>>
}

export interface Sighting {
  readonly layer: string
  readonly path: string
  readonly line: number | null
  readonly what: string
  readonly kind: 'secret' | 'proxy'
}

export interface Uninspected {
  readonly path: string
  readonly why: string
}

/** A shingle in more files than this is boilerplate: a licence, a form. */
export const commonFrom = 24
/** So many names of one module are no chance. */
export const fewNames = 4
const maxZipBytes = 256 * 1024 * 1024
const maxEntryBytes = 64 * 1024 * 1024
const maxSmallText = 256 * 1024
const maxDepth = 2
const maxSightings = 200

export class LayerScan {
  readonly #prints: Fingerprints
  readonly candidates: Candidate[] = []
  readonly sightings: Sighting[] = []
  readonly uninspected: Uninspected[] = []
  /** Whole histories in one file. */
  readonly bundles = new Set<string>()
  /** Names of tests and solution that plain Python files use, for those that are the base commit's. */
  readonly baseNames: Pick<Candidate, 'blob' | 'names'>[] = []
  /** How many files a shingle is in, by `source:shingle`. */
  readonly commonness = new Map<string, number>()
  /** By layer: files inside of `objects/` of a repository. */
  readonly gitObjects = new Map<string, Set<string>>()
  /** Directories with a HEAD, and those with objects/. */
  readonly heads = new Set<string>()
  readonly objectDirectories = new Set<string>()
  files = 0
  bytes = 0

  constructor(prints: Fingerprints) {
    this.#prints = prints
  }

  async visit({ layer, header, bytes }: LayerEntry): Promise<void> {
    const path = header.path.replace(/^(?:\.?\/)+/, '')
    this.#git(layer, path, header.kind)
    if (header.kind !== 'file' || header.size === 0) return
    this.files += 1
    this.bytes += header.size
    if (/(?:^|\/)objects\/(?:pack\/|[0-9a-f]{2}\/[0-9a-f]{38})/.test(path)) return
    await this.#file({ layer, path: showPath(path), size: header.size }, bytes, 0)
  }

  #git(layer: string, path: string, kind: string): void {
    const objects = /^(.*?)(?:^|\/)objects(?:\/(?:pack|info|[0-9a-f]{2})(?:\/.*)?)?$/.exec(path)
    if (objects !== null) this.objectDirectories.add(objects[1] ?? '')
    const head = /^(?:(.*)\/)?HEAD$/.exec(path)
    if (head !== null) this.heads.add(head[1] ?? '')
    if (
      kind === 'file' &&
      /\/objects\/(?:pack\/[^/]+\.pack|[0-9a-f]{2}\/[0-9a-f]{38,62})$/.test(`/${path}`)
    ) {
      const known = this.gitObjects.get(layer) ?? new Set<string>()
      known.add(path)
      this.gitObjects.set(layer, known)
    }
  }

  async #file(
    file: { layer: string; path: string; size: number },
    bytes: AsyncIterable<Buffer>,
    depth: number,
  ): Promise<void> {
    const [head, all] = await peek(bytes)
    if (/^# v[23] git bundle/.test(head.toString('latin1', 0, 20))) this.bundles.add(file.path)
    const packed = foreignPacking(head)
    if (packed !== null && !isPackaged(file.path))
      this.uninspected.push({ path: file.path, why: `it is packed by ${packed}` })
    if (depth < maxDepth && (isGzip(head) || isZstd(head) || isTar(head) || isZip(head)))
      return this.#archive(file, head, all, depth)
    if (depth > 0 || this.#worthReading(file, head)) await this.#content(file, head, all)
  }

  /** Binaries of sizes that no test has can hold nothing that is looked for. */
  #worthReading({ path, size }: { path: string; size: number }, head: Buffer): boolean {
    return this.#prints.bySize.has(size) || !head.includes(0) || path.endsWith('.pyc')
  }

  async #content(
    { layer, path, size }: { layer: string; path: string; size: number },
    head: Buffer,
    all: AsyncIterable<Buffer>,
  ): Promise<void> {
    const text = !head.includes(0)
    const compiled = path.endsWith('.pyc')
    const mayBeSame = this.#prints.bySize.get(size)
    // What is unpacked has no size beforehand (-1).
    const sha256 = mayBeSame === undefined && size >= 0 ? null : createHash('sha256')
    const sha1 = createHash('sha1').update(`blob ${size}\0`)
    const shingles = new Map<number, Set<number>>()
    const names = new Map<number, Set<string>>()
    const scan = new LineScan(this.#prints, ({ source, shingle }) => {
      const known = shingles.get(source) ?? new Set<number>()
      known.add(shingle)
      shingles.set(source, known)
    })
    const whole = text && size <= maxSmallText && (holdsCredentials(path) || proxyFile.test(path))
    const kept: string[] = []
    let rest = ''
    let lines = 0
    let total = 0
    for await (const part of all) {
      total += part.length
      sha256?.update(part)
      sha1.update(part)
      if (!text && !compiled) continue
      const piece = part.toString('latin1')
      if (whole) kept.push(piece)
      if (compiled || path.endsWith('.py')) this.#names(rest.slice(-64) + piece, names)
      if (!compiled) {
        scan.push(piece)
        lines += this.#secrets(layer, path, rest, piece, lines)
      }
      rest = piece.slice(-512)
    }
    scan.end()
    if (whole) this.#settings(layer, path, kept.join(''))
    const digest = sha256?.digest('hex')
    const same = (this.#prints.bySize.get(total) ?? []).filter(
      (index) => this.#prints.sources[index]?.sha256 === digest,
    )
    const blob = size >= 0 ? sha1.digest('hex') : ''
    this.#keep({ layer, path, size: total, blob, same, shingles, names })
  }

  #keep(candidate: Candidate): void {
    const rare = new Map<number, ReadonlySet<number>>()
    for (const [source, found] of candidate.shingles) {
      const left = new Set<number>()
      for (const shingle of found) {
        const key = `${source}:${shingle}`
        const count = (this.commonness.get(key) ?? 0) + 1
        this.commonness.set(key, count)
        if (count <= commonFrom) left.add(shingle)
      }
      if (left.size > 0) rare.set(source, left)
    }
    const compiled = candidate.path.endsWith('.pyc')
    if (!compiled && candidate.names.size > 0)
      this.baseNames.push({ blob: candidate.blob, names: candidate.names })
    const named = compiled && [...candidate.names.values()].some((names) => names.size >= fewNames)
    if (candidate.same.length > 0 || rare.size > 0 || named)
      this.candidates.push({
        ...candidate,
        shingles: rare,
        names: compiled ? candidate.names : new Map(),
      })
  }

  #names(text: string, names: Map<number, Set<string>>): void {
    if (this.#prints.byName.size === 0) return
    for (const match of text.matchAll(/[A-Za-z_]\w{7,}/g))
      // A length byte of the format may be a letter that sticks to the name.
      for (const name of [match[0], match[0].slice(1)])
        for (const source of this.#prints.byName.get(name) ?? []) {
          const known = names.get(source) ?? new Set<string>()
          known.add(name)
          names.set(source, known)
        }
  }

  /** Looks at a piece together with the end of the one before; returns the line breaks of the piece. */
  #secrets(layer: string, path: string, before: string, piece: string, line: number): number {
    const text = before + piece
    for (const secret of secretsIn(text)) {
      if (this.sightings.length >= maxSightings || isForeignExample(path, secret.kind)) continue
      const at = line + lineAt(text, secret.index) - (before.split('\n').length - 1)
      const what = `${secret.kind} ${secret.shown}`
      if (
        this.sightings.some((one) => one.layer === layer && one.path === path && one.what === what)
      )
        continue
      this.sightings.push({ layer, path, line: Math.max(at, 1), what, kind: 'secret' })
    }
    return piece.split('\n').length - 1
  }

  #settings(layer: string, path: string, text: string): void {
    for (const { kind, shown, index } of [...credentialsIn(path, text), ...urlPasswords(text)])
      this.sightings.push({
        layer,
        path,
        line: lineAt(text, index),
        what: `${kind} ${shown}`.trim(),
        kind: 'secret',
      })
    if (proxyFile.test(path))
      for (const line of proxyLines(text))
        this.sightings.push({ layer, path, line, what: 'sets a proxy', kind: 'proxy' })
  }

  async #archive(
    file: { layer: string; path: string; size: number },
    head: Buffer,
    all: AsyncIterable<Buffer>,
    depth: number,
  ): Promise<void> {
    const { layer, path } = file
    // The archive itself may be what tests/ holds.
    const bytes = this.#prints.bySize.has(file.size) ? await this.#alsoAsFile(file, all) : all
    try {
      if (isZip(head)) await this.#zip(file, bytes, depth)
      else if (isTar(head)) await this.#tar(layer, path, bytes, depth)
      else await this.#file({ layer, path: `${path}!`, size: -1 }, unpacked(head, bytes), depth + 1)
    } catch {
      if (!isOrdinaryData(path) && !isPackaged(path))
        this.uninspected.push({ path, why: 'it is packed, but broken or of an unknown kind' })
    }
  }

  async #alsoAsFile(
    file: { layer: string; path: string; size: number },
    all: AsyncIterable<Buffer>,
  ): Promise<AsyncIterable<Buffer>> {
    const parts: Buffer[] = []
    for await (const part of all) parts.push(part)
    const whole = Buffer.concat(parts)
    await this.#content(file, whole, Readable.from([whole]))
    return Readable.from([whole])
  }

  async #zip(
    { layer, path, size }: { layer: string; path: string; size: number },
    bytes: AsyncIterable<Buffer>,
    depth: number,
  ): Promise<void> {
    if (size > maxZipBytes) {
      this.uninspected.push({ path, why: `a zip of more than ${maxZipBytes >> 20} MiB` })
      return
    }
    const parts: Buffer[] = []
    let total = 0
    for await (const part of bytes) {
      total += part.length
      if (total > maxZipBytes) return
      parts.push(part)
    }
    for (const entry of zipEntries(Buffer.concat(parts), maxEntryBytes)) {
      const content = entry.size === 0 ? null : entry.read()
      if (content === null) continue
      const inner = { layer, path: `${path}!/${showPath(entry.name)}`, size: content.length }
      await this.#file(inner, Readable.from([content]), depth + 1)
    }
  }

  async #tar(
    layer: string,
    path: string,
    bytes: AsyncIterable<Buffer>,
    depth: number,
  ): Promise<void> {
    const extract = Readable.from(bytes, { objectMode: true }).pipe(tar.extract())
    for await (const entry of extract) {
      const { name, size, type } = entry.header
      if (type === 'file' && size > 0)
        await this.#file(
          { layer, path: `${path}!/${name}`, size },
          entry as AsyncIterable<Buffer>,
          depth + 1,
        )
      entry.resume()
    }
  }
}

/** What package managers put there, and nobody of the task wrote. */
const isPackaged = (path: string): boolean =>
  /(?:^|\/)(?:site-packages|dist-packages|node_modules|usr\/(?:lib|share)|usr\/local\/(?:share|go)|lib\/(?:python\d[\d.]*|ruby|node|go)|go\/pkg\/mod|\.cargo\/registry|opt\/[^/]*conda[^/]*)\//.test(
    path,
  )

/** Archives of kinds that are not opened here. */
function foreignPacking(head: Buffer): string | null {
  const start = head.toString('latin1', 0, 6)
  if (start === '\xfd7zXZ\0') return 'xz'
  if (start.startsWith('BZh')) return 'bzip2'
  if (start === '7z\xbc\xaf\x27\x1c') return '7z'
  return start.startsWith('Rar!') ? 'rar' : null
}

/** Keys that packages bring for their own tests and manuals are nobody's secret. */
function isForeignExample(path: string, kind: string): boolean {
  // Made anew on every Debian machine, and a browser's key that everybody has.
  if (/ssl-cert-snakeoil\.key$|(?:^|\/)etc\/chromium\.d\//.test(path)) return true
  if (!isPackaged(path)) return false
  if (kind === 'a private key') return true
  return /(?:^|\/)(?:tests?|testing|examples?|docs?|doc|demo|testdata|fixtures|man)\//i.test(path)
}

/** Fonts, pictures and caches start with bytes like an archive's now and then. */
const isOrdinaryData = (path: string): boolean =>
  /\.(?:svgz|dat|bin|cache|pack|idx|npz|pt|pth)$/i.test(path)
