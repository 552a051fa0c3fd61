/**
 * Text that came out of a sandbox, made safe to store and to print: everything but printable ASCII is written as
 * `\xNN` or `\u{N}`, the backslash doubled, and the rest cut at `max` characters.
 */
export function printable(text: string, max: number): string {
  let out = ''
  for (const character of text) {
    const code = character.codePointAt(0) ?? 0
    if (character === '\\') out += '\\\\'
    else if (code >= 0x20 && code < 0x7f) out += character
    else if (code < 0x100) out += `\\x${code.toString(16).padStart(2, '0')}`
    else out += `\\u{${code.toString(16)}}`
    if (out.length >= max) return out.slice(0, max)
  }
  return out
}
