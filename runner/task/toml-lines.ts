/**
 * Where a key stands in a TOML file, for messages: the parser tells values, not places. A key inside an inline table is
 * told by the line of the table; a key that isn't there by the table that it would be in, else by line 1. Pure.
 */

/** 1-based. `key` is dotted, such as `environment.healthcheck.command`; `steps` also finds `[[steps]]`. */
export function lineOfKey(text: string, key: string): number {
  let best = { line: 1, length: 0 }
  const offer = (line: number, path: string): void => {
    if (path.length > best.length && (path === key || key.startsWith(`${path}.`)))
      best = { line, length: path.length }
  }
  let table = ''
  let quote: string | null = null
  for (const [index, line] of text.split(/\r?\n/).entries()) {
    if (quote !== null) {
      if (line.includes(quote)) quote = null
      continue
    }
    const header = /^\s*\[\[?\s*([^\]]+?)\s*\]\]?/.exec(line)?.[1]
    if (header !== undefined) {
      table = plain(header)
      offer(index + 1, table)
      continue
    }
    const assigned =
      /^\s*((?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*=(.*)$/.exec(line)
    if (assigned === null) continue
    offer(
      index + 1,
      table === '' ? plain(assigned[1] ?? '') : `${table}.${plain(assigned[1] ?? '')}`,
    )
    const opened = /("""|''')/.exec(assigned[2] ?? '')?.[1]
    if (opened !== undefined && (assigned[2] ?? '').split(opened).length % 2 === 0) quote = opened
  }
  return best.line
}

const plain = (key: string): string =>
  key
    .split('.')
    .map((part) => part.trim().replace(/^(["'])(.*)\1$/, '$2'))
    .join('.')
