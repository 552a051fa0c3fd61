/**
 * Text for a terminal. What an agent or a model wrote may hold escape sequences that repaint the screen, set its title
 * or hide text: every control character but line feed and tab, and every character that reorders text, is shown by its
 * code instead. Colour only where it is asked for.
 */
const hostile =
  // oxlint-disable-next-line no-control-regex
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]/g

export function plainText(text: string): string {
  return text
    .replaceAll('\r\n', '\n')
    .toWellFormed()
    .replace(hostile, (char) => {
      const code = char.charCodeAt(0)
      return code < 0x100 ? `\\x${hex(code, 2)}` : `\\u${hex(code, 4)}`
    })
}

/** The same on one line. */
export const plainLine = (text: string): string => plainText(text).replace(/[\n\t]+/g, ' ')

const hex = (code: number, width: number): string => code.toString(16).padStart(width, '0')

export const cut = (text: string, length: number): string =>
  text.length <= length
    ? text
    : `${text
        .slice(0, Math.max(0, length - 1))
        .toWellFormed()
        .replace(/\ufffd$/, '')}…`

const codes = { bold: 1, dim: 2, red: 31, green: 32, yellow: 33, cyan: 36 } as const
export type Style = keyof typeof codes
export type Paint = (style: Style, text: string) => string

export const painter =
  (color: boolean): Paint =>
  (style, text) =>
    color ? `\u001b[${codes[style]}m${text}\u001b[0m` : text

/** On a terminal, unless NO_COLOR says no or FORCE_COLOR says yes. */
export function wantsColor(stream: { readonly isTTY?: boolean }, env: NodeJS.ProcessEnv): boolean {
  if ((env['NO_COLOR'] ?? '') !== '') return false
  if ((env['FORCE_COLOR'] ?? '') !== '') return env['FORCE_COLOR'] !== '0'
  return stream.isTTY === true && env['TERM'] !== 'dumb'
}

export function durationText(ms: number): string {
  if (ms < 1000) return `${Math.round(ms)} ms`
  if (ms < 59_950) return `${(ms / 1000).toFixed(1)} s`
  const seconds = Math.round(ms / 1000)
  const minutes = Math.floor(seconds / 60)
  if (minutes < 60) return `${minutes} min ${String(seconds % 60).padStart(2, '0')} s`
  return `${Math.floor(minutes / 60)} h ${String(minutes % 60).padStart(2, '0')} min`
}

export const dollars = (usd: number): string => `$${usd.toFixed(usd < 1 ? 4 : 2)}`

export const countText = (count: number): string => count.toLocaleString('en-US')

/** `1 trial`, `2 trials` */
export const plural = (count: number, word: string): string =>
  `${count} ${word}${count === 1 ? '' : 's'}`
