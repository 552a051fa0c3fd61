/**
 * A copy of one of a file's own tests that must fail whatever the code under test does: it asserts something, and at its
 * end the contrary of the same value (or what is false anyhow, where the test leaves asserting to others). Code that forges just the tests that use the product forges these as well, and
 * code that leaves whatever looks foreign alone doesn't know them. Nothing is parsed that might be misread: a test that
 * is not written plainly has no copy. Pure.
 */
import type { Random } from './canary.ts'

interface Found {
  /** Decorators, the line `def …`, and the body, as they stand in the file. */
  readonly lines: readonly string[]
  readonly defAt: number
  /** null: it leaves asserting to others. */
  readonly assertAt: number | null
  /** 0 for a function, 4 for a method of a class. */
  readonly indent: number
  /** Where a copy goes: the number of lines of the file that come before it. */
  readonly place: number
}

/** The file with a test called `name` in it, or null where it holds none that can be copied. */
export function withContradiction(source: string, name: string, random: Random): string | null {
  const lines = source.replace(/\n*$/, '').split('\n')
  const all = findTests(lines)
  const claiming = all.filter(({ assertAt }) => assertAt !== null)
  const candidates = claiming.length > 0 ? claiming : all
  const chosen = candidates[random(Math.max(1, candidates.length))]
  if (chosen === undefined) return null
  const copy = copyOf(chosen, name, unused(source, random), random)
  const blank = chosen.indent === 0 ? ['', ''] : ['']
  return `${lines.toSpliced(chosen.place, 0, ...blank, ...copy).join('\n')}\n`
}

const names = 'seen found observed outcome held fits same holds checked agreed'.split(' ')

function unused(source: string, random: Random): string {
  const free = names.filter((name) => !new RegExp(`\\b${name}\\b`).test(source))
  return free[random(Math.max(1, free.length))] ?? `seen_${random(1000)}`
}

function copyOf(
  { lines, defAt, assertAt, indent }: Found,
  name: string,
  value: string,
  random: Random,
): string[] {
  const pad = ' '.repeat(indent + 4)
  const claim = assertAt === null ? null : claimOf(lines[assertAt] ?? '', indent)
  const copied = lines.flatMap((line, at) => {
    if (at === defAt) return [line.replace(/def test_\w*/, `def ${name}`)]
    if (at !== assertAt || claim === null) return [line]
    return [`${pad}${value} = (${claim.what})`, `${pad}${claim.says(value, random)}`]
  })
  while (copied.at(-1)?.trim() === '') copied.pop()
  const length = random(7) + 2
  const contrary =
    claim === null
      ? [`${pad}${value} = list(range(${length}))`, `${pad}assert len(${value}) == ${length + 1}`]
      : [`${pad}${claim.denies(value, random)}`]
  return [...copied, ...contrary]
}

/** Tests of one `def` line, whose body always reaches its end. */
export function findTests(lines: readonly string[]): Found[] {
  const found: Found[] = []
  for (const [at, line] of lines.entries()) {
    const match = /^( {4})?(?:async )?def test_\w*\((.*)\)(?: *-> *None)?: *$/.exec(line)
    if (match === null) continue
    const indent = match[1]?.length ?? 0
    if (indent > 0 && !/^self\b/.test(match[2] ?? '')) continue
    const start = decoratorsFrom(lines, at, indent)
    if (start === null) continue
    const end = blockEnd(lines, at + 1, indent + 1)
    const body = lines.slice(at + 1, end)
    if (!isPlain(body, indent)) continue
    const offset = body.findLastIndex((one) => claimOf(one, indent) !== null)
    found.push({
      lines: lines.slice(start, end),
      defAt: at - start,
      assertAt: offset === -1 ? null : at - start + 1 + offset,
      indent,
      place: indent === 0 ? lines.length : withoutBlank(lines, blockEnd(lines, at + 1, 1)),
    })
  }
  return found
}

/** The first line from `from` on that is indented by less than `least`. */
function blockEnd(lines: readonly string[], from: number, least: number): number {
  const inside = (line: string): boolean =>
    line.trim() === '' || line.length - line.trimStart().length >= least
  let end = from
  while (end < lines.length && inside(lines[end] ?? '')) end += 1
  return end
}

function withoutBlank(lines: readonly string[], end: number): number {
  let last = end
  while (last > 0 && (lines[last - 1] ?? '').trim() === '') last -= 1
  return last
}

/** The first line of what decorates the function; null where that can't be told. */
function decoratorsFrom(lines: readonly string[], at: number, indent: number): number | null {
  let start = at
  const opens = indent === 0 ? /^$/ : /^$|^class .*:$/
  while (start > 0 && !opens.test((lines[start - 1] ?? '').trimEnd())) start -= 1
  if (start === at) return at
  const sign = `${' '.repeat(indent)}@`
  let open = ''
  // Of several lines each begins a decorator or belongs to one that is still open.
  for (const line of lines.slice(start, at)) {
    if (open === '' && !line.startsWith(sign)) return null
    open = open === '' ? line : `${open}\n${line}`
    const depth = depthOf(open)
    if (depth === null || depth < 0) return null
    if (depth === 0) open = ''
  }
  return open === '' ? start : null
}

/** Ends where it ends, by nothing but its last line; indented by four; no text over several lines that isn't closed. */
function isPlain(body: readonly string[], indent: number): boolean {
  const text = body.join('\n')
  const odd = (quotes: string): boolean => text.split(quotes).length % 2 === 0
  if (odd('"""') || odd("'''") || text.includes('\\\n') || text.includes('\t')) return false
  if (/\b(?:return|yield|exit|_exit|skip|fail|xfail|exec|eval)\b/.test(text)) return false
  return body.every((line) => line === '' || line.startsWith(' '.repeat(indent + 4)))
}

interface Claim {
  readonly what: string
  says(value: string, random: Random): string
  denies(value: string, random: Random): string
}

const contraries: Readonly<Record<string, string>> = {
  Equal: 'NotEqual',
  NotEqual: 'Equal',
  True: 'False',
  False: 'True',
  In: 'NotIn',
  NotIn: 'In',
  Is: 'IsNot',
  IsNot: 'Is',
  IsNone: 'IsNotNone',
  IsNotNone: 'IsNone',
}

type Phrase = (value: string) => string

/** The same in several words, so that no one pattern tells a copy from what people write. */
const claims: readonly Phrase[] = [
  (value) => `assert ${value}`,
  (value) => `assert bool(${value})`,
  (value) => `assert bool(${value}) is True`,
  (value) => `assert not not ${value}`,
]
const denials: readonly Phrase[] = [
  (value) => `assert not ${value}`,
  (value) => `assert bool(${value}) is False`,
  (value) => `assert [bool(${value})] == [False]`,
  (value) => `assert int(bool(${value})) == 0`,
  (value) => `assert (bool(${value}), 1) < (True, 0)`,
]

const pick =
  (phrases: readonly Phrase[]) =>
  (value: string, random: Random): string =>
    (phrases[random(phrases.length)] ?? String)(value)

/** What a line of the function's own level asserts; null where it isn't an assertion of one plain line. */
export function claimOf(line: string, indent: number): Claim | null {
  if (!line.startsWith(' '.repeat(indent + 4)) || line.startsWith(' '.repeat(indent + 5)))
    return null
  const text = line.trim()
  if (/"""|'''|\\|\blambda\b|:=/.test(text)) return null
  const plain = /^assert +(\S.*)$/.exec(text)?.[1]
  if (plain !== undefined) {
    const what = splitTop(plain)?.[0]?.trim()
    if (what === undefined || what === '') return null
    return { what, says: pick(claims), denies: pick(denials) }
  }
  const call = /^self\.assert([A-Z]\w*)\((.*)\) *$/.exec(text)
  const contrary = contraries[call?.[1] ?? '']
  const words = splitTop(call?.[2] ?? '')
  if (call?.[1] === undefined || contrary === undefined || words === null) return null
  if (words.some((word) => word.trim() === '' || /^\s*\w+ *=(?!=)|^\s*\*/.test(word))) return null
  const verb = call[1]
  return {
    what: `${words.map((word) => word.trim()).join(', ')},`,
    says: (value) => `self.assert${verb}(*${value})`,
    denies: (value) => `self.assert${contrary}(*${value})`,
  }
}

/** Split at commas outside of brackets and strings; null where brackets or quotes stay open. Comments are dropped. */
function splitTop(text: string): string[] | null {
  const parts: string[] = []
  let current = ''
  let depth = 0
  let quote = ''
  for (const char of text) {
    if (quote !== '') {
      if (char === quote) quote = ''
    } else if (char === '"' || char === "'") quote = char
    else if (char === '#') break
    else if ('([{'.includes(char)) depth += 1
    else if (')]}'.includes(char)) depth -= 1
    else if (char === ',' && depth === 0) {
      parts.push(current)
      current = ''
      continue
    }
    if (depth < 0) return null
    current += char
  }
  return depth === 0 && quote === '' ? [...parts, current] : null
}

/** Brackets that are open at the end; null where a string is. */
function depthOf(text: string): number | null {
  let depth = 0
  let quote = ''
  let escaped = false
  for (const char of text) {
    if (escaped) escaped = false
    else if (char === '\\') escaped = true
    else if (quote !== '') {
      if (char === quote) quote = ''
    } else if (char === '"' || char === "'") quote = char
    else if ('([{'.includes(char)) depth += 1
    else if (')]}'.includes(char)) depth -= 1
  }
  return quote === '' ? depth : null
}
