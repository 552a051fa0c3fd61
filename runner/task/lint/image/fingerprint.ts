/**
 * What tests and solution look like, so that they are known again wherever they lie: each file by size and digest, and
 * by shingles, which are three consecutive lines that say something (trimmed, blank ones left out), or one long line.
 * Of a patch only what it adds counts. Text is compared as bytes (latin1).
 */
import { createHash } from 'node:crypto'
import { blobId } from '../../../trial/tree.ts'
import type { TaskDirectory } from '../directory.ts'

export interface Source {
  /** Relative to the task directory. */
  readonly path: string
  readonly kind: 'test' | 'solution'
  readonly size: number
  readonly sha256: string
  /** Git's id of it. */
  readonly blob: string
  readonly shingles: number
  /** Names that it defines or uses, for compiled Python. */
  readonly names: ReadonlySet<string>
}

export interface ShinglePlace {
  readonly source: number
  readonly shingle: number
  /** The two lines before; empty where one line is enough. */
  readonly before: readonly string[]
}

export interface Fingerprints {
  readonly sources: readonly Source[]
  readonly bySize: ReadonlyMap<number, readonly number[]>
  /** By the last line of the shingle. */
  readonly byLine: ReadonlyMap<string, readonly ShinglePlace[]>
  /** Which sources use a name, of those long enough to be told. */
  readonly byName: ReadonlyMap<string, readonly number[]>
}

/** Smaller files are empty packages and the like, which are everywhere. */
const minBytes = 24
const minShingleChars = 60
const minLastLine = 8
const longLine = 100
const maxSourceBytes = 8 * 1024 * 1024

export async function fingerprint(directory: TaskDirectory): Promise<Fingerprints> {
  const sources: Source[] = []
  const bySize = new Map<number, number[]>()
  const byLine = new Map<string, ShinglePlace[]>()
  const byName = new Map<string, number[]>()
  for (const { path, kind, sizeBytes } of directory.files) {
    const of = /^(?:steps\/[^/]+\/)?(tests|solution)\//.exec(path)?.[1]
    if (of === undefined || kind !== 'file' || sizeBytes < minBytes || sizeBytes > maxSourceBytes)
      continue
    const bytes = await directory.bytes(path)
    const text = bytes.includes(0) ? '' : bytes.toString('latin1')
    const index = sources.length
    let shingles = 0
    for (const { last, before } of shinglesOf(
      /\.(?:patch|diff)$/.test(path) ? added(text) : text,
    )) {
      push(byLine, last, { source: index, shingle: shingles, before })
      shingles += 1
    }
    const names = path.endsWith('.py') ? namesOf(text) : new Set<string>()
    for (const name of names) push(byName, name, index)
    push(bySize, bytes.length, index)
    sources.push({
      path,
      kind: of === 'tests' ? 'test' : 'solution',
      size: bytes.length,
      sha256: createHash('sha256').update(bytes).digest('hex'),
      blob: blobId(bytes),
      shingles,
      names,
    })
  }
  return { sources, bySize, byLine, byName }
}

function push<K, V>(map: Map<K, V[]>, key: K, value: V): void {
  const list = map.get(key)
  if (list === undefined) map.set(key, [value])
  else list.push(value)
}

const added = (patch: string): string =>
  patch
    .split('\n')
    .map((line) => (/^\+(?!\+\+ )/.test(line) ? line.slice(1) : '\0'))
    .join('\n')

interface Shingle {
  readonly last: string
  readonly before: readonly string[]
}

function shinglesOf(text: string): Shingle[] {
  const found = new Map<string, Shingle>()
  let window: string[] = []
  for (const raw of text.split('\n')) {
    const line = raw.trim()
    if (line === '\0') window = []
    if (line === '' || line === '\0') continue
    if (line.length >= longLine) found.set(line, { last: line, before: [] })
    else if (line.length >= minLastLine && window.length === 2) {
      const key = `${window.join('\n')}\n${line}`
      if (key.length >= minShingleChars) found.set(key, { last: line, before: window })
    }
    window = [...window.slice(-1), line]
  }
  return [...found.values()]
}

/** Identifiers of a module that are long enough to mean something; compiled Python holds them as they are. */
export function namesOf(text: string): Set<string> {
  const found = new Set<string>()
  for (const match of text.matchAll(/\b(?:def|class)\s+([A-Za-z_]\w{7,})/g))
    found.add(match[1] ?? '')
  return found
}
