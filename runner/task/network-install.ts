/**
 * What a script of hidden tests would fetch from the network: verification is offline, so such a script can only fail.
 * Found in the text, line by line; comments and here-documents are not looked at. Pure.
 */

export interface NetworkInstall {
  /** 1-based. */
  readonly line: number
  /** As it stands there, without the blanks around it. */
  readonly text: string
  /** What it is, for people: `apt-get install`. */
  readonly what: string
}

const word = String.raw`(?:^|[\s;&|(\x60"'])(?:sudo\s+(?:-\S+\s+)*)?(?:\S*/)?`
const patterns: readonly (readonly [what: string, pattern: RegExp])[] = [
  [
    'apt',
    new RegExp(`${word}(?:apt|apt-get|aptitude)\\s+(?:-\\S+\\s+)*(?:install|update|upgrade)\\b`),
  ],
  [
    'a package manager',
    new RegExp(
      `${word}(?:yum|dnf|zypper|apk|pacman|brew)\\s+(?:-\\S+\\s+)*(?:install|add|update|-S)`,
    ),
  ],
  [
    'pip install',
    new RegExp(
      `${word}(?:pip[\\d.]*|python[\\d.]*\\s+(?:-\\S+\\s+)*-m\\s+pip|uv\\s+pip)\\s+(?:-\\S+\\s+)*(?:install|download)\\b`,
    ),
  ],
  ['uvx', new RegExp(`${word}(?:uvx|pipx\\s+(?:run|install))\\b`)],
  [
    'uv',
    new RegExp(
      `${word}uv\\s+(?:add|sync|tool\\s+(?:run|install)|python\\s+install|run\\s+(?:\\S+\\s+)*(?:--with|-w)\\b)`,
    ),
  ],
  [
    'npm',
    new RegExp(
      `${word}(?:npm\\s+(?:install|i|ci|add)|npx|pnpm\\s+(?:install|add|dlx)|yarn\\s+(?:install|add))\\b`,
    ),
  ],
  ['conda', new RegExp(`${word}(?:conda|mamba|micromamba)\\s+(?:install|create|update)\\b`)],
  [
    'a language package manager',
    new RegExp(`${word}(?:cargo\\s+install|go\\s+(?:install|get)|gem\\s+install|cpan|cpanm)\\b`),
  ],
  [
    'a download',
    new RegExp(
      `${word}(?:curl|wget)\\s[^;&|#]*(?:https?|ftp)://(?!(?:localhost|127\\.0\\.0\\.1|\\[::1\\])(?:[:/\\s"']|$))`,
    ),
  ],
  [
    'git clone',
    new RegExp(
      `${word}git\\s+(?:-\\S+\\s+)*(?:clone|fetch|pull)\\s[^;&|#]*(?:https?|git|ssh)(?:://|@)`,
    ),
  ],
]

/** Says itself that it stays off the network. */
const offline = /--no-index\b|--offline\b/

export function networkInstalls(script: string): NetworkInstall[] {
  const found: NetworkInstall[] = []
  let end: string | null = null
  for (const { line, text } of joined(script)) {
    if (end !== null) {
      if (text.trim() === end) end = null
      continue
    }
    const code = text.replace(/(^|\s)#.*$/, '$1')
    const what = patterns.find(([, pattern]) => pattern.test(code))?.[0]
    if (what !== undefined && !offline.test(code))
      found.push({ line, text: text.trim().slice(0, 200), what })
    end = /<<-?\s*(["']?)([A-Za-z_]\w*)\1/.exec(code)?.[2] ?? null
  }
  return found
}

/** Lines with their continuations, numbered by the first. */
function* joined(script: string): Generator<{ line: number; text: string }> {
  let start = 0
  let text = ''
  for (const [index, line] of script.split(/\r?\n/).entries()) {
    if (text === '') start = index + 1
    if (/(^|[^\\])\\$/.test(line)) {
      text += `${line.slice(0, -1)} `
      continue
    }
    yield { line: start, text: text + line }
    text = ''
  }
  if (text !== '') yield { line: start, text }
}
