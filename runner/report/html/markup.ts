/**
 * HTML by a tagged template that escapes whatever is put into it, so that forgetting is safe: only what another such
 * template made goes in as it is. Control characters and those that reorder text are shown by their codes.
 */
import path from 'node:path'
import { plainText } from '../terminal.ts'

export class Markup {
  readonly text: string

  constructor(text: string) {
    this.text = text
  }
}

export type Part = Markup | string | number | null | undefined | false | readonly Part[]

export function html(strings: TemplateStringsArray, ...parts: readonly Part[]): Markup {
  const fixed = withoutIndent(strings)
  let text = fixed[0] ?? ''
  for (const [index, part] of parts.entries()) text += render(part) + (fixed[index + 1] ?? '')
  return new Markup(text)
}

const known = new WeakMap<TemplateStringsArray, readonly string[]>()

/** The source is laid out for its readers; the page need not be. */
function withoutIndent(strings: TemplateStringsArray): readonly string[] {
  const before = known.get(strings)
  if (before !== undefined) return before
  const fixed = strings.map((text) => text.replace(/\s*\n\s*/g, '\n'))
  known.set(strings, fixed)
  return fixed
}

function render(part: Part): string {
  if (part === null || part === undefined || part === false) return ''
  if (part instanceof Markup) return part.text
  if (typeof part === 'object') return part.map(render).join('')
  return escapeText(String(part))
}

const entities: Readonly<Record<string, string>> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&quot;',
  "'": '&#39;',
}

export const escapeText = (text: string): string =>
  plainText(text).replace(/[&<>"']/g, (char) => entities[char] ?? char)

/** A link to a file from where the page is kept; never a scheme, whatever a name looks like. */
export function hrefTo(file: string, base: string): string {
  const inside = file.startsWith(`${base}/`) ? file.slice(base.length + 1) : null
  const relative = (inside ?? path.relative(base, file)).split(path.sep)
  return `./${relative.map((part) => encodeURIComponent(part)).join('/')}`
}
