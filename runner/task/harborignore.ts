/**
 * `.harborignore`, in gitignore's syntax: what of tests/ and solution/ never reaches a container. Each file counts for
 * its folder and what is below; the last rule that matches wins, and what a folder leaves out nothing below brings back.
 * The ignore files themselves are left out too. Pure but for the caller's reading.
 */
import type { TreeEntry } from './tree.ts'

export const ignoreFile = '.harborignore'

interface Rule {
  readonly pattern: RegExp
  readonly negated: boolean
  readonly directoriesOnly: boolean
}

export function parseIgnore(text: string): readonly Rule[] {
  return text.split(/\r?\n/).flatMap((line) => {
    let rule = line.replace(/(?<!\\)\s+$/, '')
    if (rule === '' || rule.startsWith('#')) return []
    const negated = rule.startsWith('!')
    if (negated) rule = rule.slice(1)
    const directoriesOnly = rule.endsWith('/')
    if (directoriesOnly) rule = rule.replace(/\/+$/, '')
    if (rule === '') return []
    return [{ pattern: patternOf(rule), negated, directoriesOnly }]
  })
}

/** A slash anywhere but at the end ties the rule to its folder. */
function patternOf(rule: string): RegExp {
  const anchored = rule.replace(/^\//, '')
  const source = anchored
    .split('/')
    .map((part) => (part === '**' ? '**' : partPattern(part)))
    .join('/')
    .replace(/^\*\*\//, '(?:.*/)?')
    .replace(/\/\*\*$/, '/.+')
    .replaceAll('/**/', '/(?:.*/)?')
    .replace(/^\*\*$/, '.+')
  return new RegExp(rule.includes('/') ? `^${source}$` : `^(?:.*/)?${source}$`, 's')
}

function partPattern(part: string): string {
  let out = ''
  for (let at = 0; at < part.length; at++) {
    const char = part[at] ?? ''
    if (char === '*') out += out.endsWith('[^/]*') ? '' : '[^/]*'
    else if (char === '?') out += '[^/]'
    else if (char === '[' && part.indexOf(']', at + 2) !== -1) {
      const end = part.indexOf(']', at + 2)
      const body = part
        .slice(at + 1, end)
        .replace(/^!/, '^')
        .replaceAll('\\', '\\\\')
      out += `[${body}]`
      at = end
    } else if (char === '\\' && at + 1 < part.length) out += escaped(part[++at] ?? '')
    else out += escaped(char)
  }
  return out
}

const escaped = (char: string): string => char.replace(/[\\^$.*+?()[\]{}|/]/, String.raw`\$&`)

/** Paths, relative to `folder`, of what its ignore files leave out; a folder that is left out stands for all below it. */
export function leftOut(
  entries: readonly TreeEntry[],
  folder: 'tests' | 'solution',
  rulesOf: (path: string) => readonly Rule[] | undefined,
): ReadonlySet<string> {
  const out = new Set<string>()
  for (const { path, kind } of entries) {
    if (!path.startsWith(`${folder}/`)) continue
    const inner = path.slice(folder.length + 1)
    if (parents(inner).some((up) => out.has(up))) continue
    if (inner.split('/').at(-1) === ignoreFile) out.add(inner)
    else if (ignored(folder, inner, kind === 'directory', rulesOf)) out.add(inner)
  }
  return out
}

function ignored(
  folder: string,
  inner: string,
  directory: boolean,
  rulesOf: (path: string) => readonly Rule[] | undefined,
): boolean {
  let result = false
  for (const base of ['', ...parents(inner)])
    for (const { pattern, negated, directoriesOnly } of rulesOf(join(folder, base)) ?? [])
      if (
        (directory || !directoriesOnly) &&
        pattern.test(base === '' ? inner : inner.slice(base.length + 1))
      )
        result = !negated
  return result
}

const join = (folder: string, base: string): string => (base === '' ? folder : `${folder}/${base}`)

const parents = (path: string): string[] => {
  const parts = path.split('/')
  return parts.slice(1).map((_part, index) => parts.slice(0, index + 1).join('/'))
}

/** Whether a path, or a folder that it lies in, is left out. */
export const isLeftOut = (out: ReadonlySet<string>, path: string): boolean =>
  out.has(path) || parents(path).some((up) => out.has(up))
