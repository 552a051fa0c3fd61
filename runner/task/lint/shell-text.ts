/** Shell scripts and Dockerfiles as logical lines, and a line as commands. Not a shell: enough to see what is started. */

export interface LogicalLine {
  /** Where it begins, from 1. */
  readonly line: number
  readonly text: string
}

/** Continued lines joined; comments and the bodies of here-documents left out, for they may be of any language. */
export function* logicalLines(source: string): Generator<LogicalLine> {
  let pending = ''
  let start = 1
  let ends: string[] = []
  for (const [index, raw] of source.split(/\r?\n/).entries()) {
    if (ends.length > 0) {
      if (raw.trim() === ends[0]) ends = ends.slice(1)
      continue
    }
    if (raw.trim() === '' || /^\s*#/.test(raw)) continue
    if (pending === '') start = index + 1
    const open = /\\\s*$/.test(raw)
    pending += open ? `${raw.replace(/\s*\\\s*$/, '')} ` : raw
    if (open) continue
    yield { line: start, text: pending }
    ends = [
      ...pending.matchAll(/"(?:\\.|[^"\\])*"(?!\w)|'[^']*'(?!\w)|<<-?\s*(["']?)(\w+)\1/g),
    ].flatMap((match) => match[2] ?? [])
    pending = ''
  }
  if (pending !== '') yield { line: start, text: pending }
}

export interface Command {
  readonly words: readonly string[]
  /** What stands behind it: `|`, `&&`, `;` …; empty at the end of the line. */
  readonly separator: string
}

/** Words as a shell would see them, without expansion; leading assignments and words such as `then` are dropped. */
export function commandsOf(
  line: string,
  { keepAssignments = false }: { keepAssignments?: boolean } = {},
): Command[] {
  const commands: Command[] = []
  let words: string[] = []
  let word: string | null = null
  const endWord = (): void => {
    if (word !== null) words.push(word)
    word = null
  }
  const endCommand = (separator: string): void => {
    endWord()
    const useful = keepAssignments ? words : withoutPrefix(words)
    if (useful.length > 0) commands.push({ words: useful, separator })
    words = []
  }
  for (let at = 0; at < line.length; at += 1) {
    const char = line[at] ?? ''
    if (char === "'" || char === '"') {
      const end = closing(line, at)
      word =
        (word ?? '') + line.slice(at + 1, end).replace(char === '"' ? /\\(["\\$`])/g : /$^/, '$1')
      at = end
    } else if (char === '\\') {
      at += 1
      word = (word ?? '') + (line[at] ?? '')
    } else if (/\s/.test(char)) endWord()
    else if (char === '#' && word === null) break
    else if (/[;&|()]/.test(char)) {
      const twice = line[at + 1] === char && char !== '(' && char !== ')'
      // 2>&1 and >&2 are no ends of a command
      if (char === '&' && word !== null && (word as string).endsWith('>')) {
        word += char
        continue
      }
      endCommand(twice ? char + char : char)
      if (twice) at += 1
    } else word = (word ?? '') + char
  }
  endCommand('')
  return commands
}

function closing(line: string, from: number): number {
  const quote = line[from]
  for (let at = from + 1; at < line.length; at += 1) {
    if (line[at] === '\\' && quote === '"') at += 1
    else if (line[at] === quote) return at
  }
  return line.length
}

const prefixes = new Set([
  'then',
  'else',
  'do',
  'if',
  '!',
  'time',
  'exec',
  'sudo',
  'env',
  'command',
  '{',
])

function withoutPrefix(words: readonly string[]): readonly string[] {
  const start = words.findIndex((word) => !prefixes.has(word) && !/^[A-Za-z_]\w*=/.test(word))
  return start === -1 ? [] : words.slice(start)
}
