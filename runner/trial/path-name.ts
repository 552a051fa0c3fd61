/**
 * File names as the agent may have made them: any bytes but NUL and `/`. Inside this folder a path is a *byte string*
 * (latin1: one char is one byte), so that nothing is lost; outwards (JSON, people) it is quoted as git quotes it:
 * as it is when it is plain UTF-8, else in double quotes with C escapes. Both directions are exact.
 */

/** A path with one char per byte. */
export type BytePath = string

const escapes: Readonly<Record<number, string>> = {
  7: '\\a',
  8: '\\b',
  9: '\\t',
  10: '\\n',
  11: '\\v',
  12: '\\f',
  13: '\\r',
  34: '\\"',
  92: '\\\\',
}
const bytesOfEscape: Readonly<Record<string, number>> = {
  a: 7,
  b: 8,
  t: 9,
  n: 10,
  v: 11,
  f: 12,
  r: 13,
  '"': 34,
  '\\': 92,
}

/** The form that git's plumbing reads back: always in quotes, everything but printable ASCII escaped. */
export function quoteForGit(path: BytePath): string {
  let text = '"'
  for (const char of path) {
    const byte = char.charCodeAt(0)
    const escape = escapes[byte]
    if (escape !== undefined) text += escape
    else if (byte < 0x20 || byte > 0x7e) text += `\\${byte.toString(8).padStart(3, '0')}`
    else text += char
  }
  return `${text}"`
}

/** The form for people and JSON. */
export function showPath(path: BytePath): string {
  const bytes = Buffer.from(path, 'latin1')
  const text = bytes.toString('utf8')
  // oxlint-disable-next-line no-control-regex -- control characters are what it looks for
  const plain = !/[\u0000-\u001f"\\\u007f]/.test(text) && Buffer.from(text, 'utf8').equals(bytes)
  return plain ? text : quoteForGit(path)
}

/** Back from `showPath`. */
export function parsePath(shown: string): BytePath {
  if (!shown.startsWith('"')) return Buffer.from(shown, 'utf8').toString('latin1')
  return shown.slice(1, -1).replace(/\\([0-7]{3}|.)/g, (_whole, escape: string) => {
    const code = escape.length === 3 ? Number.parseInt(escape, 8) : bytesOfEscape[escape]
    return String.fromCharCode(code ?? escape.charCodeAt(0))
  })
}

export const toBytes = (path: BytePath): Buffer => Buffer.from(path, 'latin1')

/** `.git` in any letter case: git refuses each of them as a component. */
export const isDotGit = (component: string): boolean => /^\.git$/i.test(component)
