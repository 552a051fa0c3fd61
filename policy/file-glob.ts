/**
 * Patterns for the files of a repository. `*` and `?` stay within one part of a path, `**` crosses parts. A pattern
 * without a slash is for the file's name wherever it lies; one with a slash is for the whole path.
 */
import type { PatternResult } from './host.ts'

const maxLength = 256

/** Whether `text` may stand in a policy; where it may not, the message says what to write. */
export function canonicalFileGlob(text: string): PatternResult {
  const refuse = (message: string): PatternResult => ({ ok: false, message })
  if (text === '') return refuse('empty: write a file name or a pattern, e.g. "*.safetensors"')
  if (text.length > maxLength) return refuse(`longer than ${maxLength} characters`)
  if (text.startsWith('/'))
    return refuse(`paths are relative to the repository: write "${text.replace(/^\/+/, '')}"`)
  if (text.endsWith('/'))
    return refuse(`a folder alone means nothing: write "${text.replace(/\/+$/, '')}/**"`)
  const parts = text.split('/')
  if (parts.some((part) => part === '' || part === '.' || part === '..'))
    return refuse('a path has no empty, "." or ".." part')
  if (/[[\]{}!\\]/.test(text))
    return refuse('only *, ** and ? are patterns: write one entry for each case')
  if (parts.some((part) => part.includes('**') && part !== '**'))
    return refuse('"**" stands for whole parts: write "**/name" or "folder/**"')
  // eslint-disable-next-line no-control-regex
  if (/[\x00-\x1f\x7f]/.test(text)) return refuse('holds a control character')
  return { ok: true }
}

/**
 * `path` is a path in a repository: parts joined by slashes, none of them empty, "." or "..". It comes from the
 * sandbox, so the time is bounded by the product of both lengths: no regular expression.
 */
export function matchesFileGlob(glob: string, path: string): boolean {
  const parts = path.split('/')
  const pattern = glob.split('/')
  if (pattern.length === 1 && glob !== '**') return matchesPart(glob, parts.at(-1) ?? '')
  // `folder/**` is every file below it: at least one more part.
  if (pattern.at(-1) === '**') pattern.push('*')
  return wildcard(pattern, parts, '**', matchesPart)
}

const matchesPart = (pattern: string, part: string): boolean =>
  wildcard(
    Array.from(pattern),
    Array.from(part),
    '*',
    (one, character) => one === '?' || one === character,
  )

/** The greedy match with one star to come back to: a later star that matched never needs an earlier one again. */
function wildcard(
  pattern: readonly string[],
  text: readonly string[],
  star: string,
  matches: (one: string, other: string) => boolean,
): boolean {
  let at = 0
  let next = 0
  let starAt = -1
  let starNext = 0
  while (next < text.length) {
    const one = pattern[at]
    if (one === star) {
      starAt = at++
      starNext = next
    } else if (one !== undefined && matches(one, text[next] ?? '')) {
      at++
      next++
    } else if (starAt >= 0) {
      at = starAt + 1
      next = ++starNext
    } else return false
  }
  while (pattern[at] === star) at++
  return at === pattern.length
}
