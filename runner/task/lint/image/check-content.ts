/**
 * What the candidates of the layer scan mean. Bytes of the base commit are the agent's to see, so every shingle that
 * occurs in them (wherever a copy lies) proves nothing; what is left of a test or of the solution and lies in the image
 * is a leak. Without a repository nothing tells the two apart, so a whole file must be there.
 */
import type { Findings } from '../finding.ts'
import type { Fingerprints, Source } from './fingerprint.ts'
import { commonFrom, fewNames, type Candidate, type LayerScan } from './layer-scan.ts'

export interface ContentCheck {
  readonly findings: Findings
  readonly prints: Fingerprints
  readonly scan: LayerScan
  /** Git ids of all files of the base commit; null without a repository. */
  readonly base: ReadonlySet<string> | null
  /** `layer 2 of 5`, and whether the image still shows it. */
  readonly place: (layer: string, path: string, blob: string | null) => Promise<string>
}

const maxFindings = 50
/** So many shingles are at least twelve lines in a row, or as many places. */
const manyShingles = 10
const leastShingles = 3
const leastShare = 0.3
const nameShare = 0.8

export async function checkContent(check: ContentCheck): Promise<void> {
  const { scan, prints, base } = check
  const ordinary = ordinaryShingles(scan, base)
  const names = ordinaryNames(scan, base)
  let count = 0
  const seen = new Set<string>()
  for (const candidate of scan.candidates) {
    const isBase = base?.has(candidate.blob) === true
    for (const [index, source] of prints.sources.entries()) {
      const how = isBase
        ? visibleTest(candidate, index, source)
        : leak(candidate, index, source, { ordinary, names, sure: base !== null })
      if (how === null) continue
      const key = `${candidate.path}\0${source.path}\0${candidate.blob}`
      if (seen.has(key)) continue
      seen.add(key)
      count += 1
      if (count > maxFindings) return
      const where = await check.place(candidate.layer, candidate.path, candidate.blob)
      const rule = isBase
        ? 'test-visible'
        : source.kind === 'test'
          ? 'test-in-image'
          : 'solution-in-image'
      check.findings.add(
        rule,
        `image:/${candidate.path}`,
        isBase
          ? `is ${source.path}, which is meant to be hidden: the agent has it; change the test or move it to the regression suite`
          : `${how} ${source.path} (${where}): leave it out of the image, in every layer`,
      )
    }
  }
}

/** A functional test that the base commit holds as it is. */
const visibleTest = (candidate: Candidate, index: number, source: Source): string | null =>
  candidate.same.includes(index) && /^tests\/functional\/.*test/.test(source.path) ? 'is' : null

function leak(
  candidate: Candidate,
  index: number,
  source: Source,
  known: {
    ordinary: ReadonlyMap<number, ReadonlySet<number>>
    names: ReadonlyMap<number, ReadonlySet<string>>
    sure: boolean
  },
): string | null {
  if (candidate.same.includes(index)) return 'is a copy of'
  const ordinary = known.ordinary.get(index) ?? new Set()
  const found = [...(candidate.shingles.get(index) ?? [])].filter(
    (one) => !ordinary.has(one),
  ).length
  const novel = source.shingles - ordinary.size
  const enough = known.sure
    ? found >= manyShingles || (found >= leastShingles && found >= novel * leastShare)
    : found >= manyShingles && found === novel
  if (enough) return `has ${found} of ${novel} telling places of`
  const plain = known.names.get(index) ?? new Set()
  const named = [...(candidate.names.get(index) ?? [])].filter((name) => !plain.has(name)).length
  const novelNames = [...source.names].filter((name) => !plain.has(name)).length
  return named >= fewNames && named >= novelNames * nameShare ? 'is compiled from' : null
}

/** By source: shingles of the base commit, and those of licences and forms. */
function ordinaryShingles(
  scan: LayerScan,
  base: ReadonlySet<string> | null,
): Map<number, Set<number>> {
  const found = new Map<number, Set<number>>()
  const add = (source: number, shingle: number): void => {
    const known = found.get(source) ?? new Set<number>()
    known.add(shingle)
    found.set(source, known)
  }
  for (const [key, count] of scan.commonness) {
    const [source = 0, shingle = 0] = key.split(':').map(Number)
    if (count > commonFrom) add(source, shingle)
  }
  for (const candidate of scan.candidates)
    if (base?.has(candidate.blob) === true)
      for (const [source, shingles] of candidate.shingles)
        for (const shingle of shingles) add(source, shingle)
  return found
}

/** By source: names that plain text of the base commit uses, so that its own compiled form proves nothing. */
function ordinaryNames(
  scan: LayerScan,
  base: ReadonlySet<string> | null,
): Map<number, Set<string>> {
  const found = new Map<number, Set<string>>()
  for (const { blob, names } of scan.baseNames)
    if (base?.has(blob) === true)
      for (const [source, list] of names)
        found.set(source, new Set([...(found.get(source) ?? []), ...list]))
  return found
}
