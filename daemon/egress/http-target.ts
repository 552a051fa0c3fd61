/** The absolute form of a request target, split on its raw bytes: `http://host[:port]/path?query`. */
import { parseAuthority, type ParsedAuthority } from '../../policy/host.ts'
import { printable } from '../../policy/printable.ts'

export interface HttpTarget {
  readonly authority: ParsedAuthority
  /** As it stood there, for the audit. */
  readonly authorityText: string
  /** Path and query, not normalised. */
  readonly path: string
}

/** null if it isn't an absolute http URL. */
export function parseAbsoluteForm(url: string): HttpTarget | null {
  const match = /^http:\/\/([^/?#]*)([^#]*)$/i.exec(url)
  if (match === null) return null
  const [, authorityText = '', rest = ''] = match
  const path = rest.startsWith('/') ? rest : `/${rest}`
  return { authority: parseAuthority(authorityText, 80), authorityText, path }
}

/** The path as the audit may keep it: the values of a query can be secrets, or what is being carried out. */
export function auditPath(path: string): string {
  const [name = '', query] = path.split('?', 2)
  const keys = query?.split('&').map((pair) => pair.split('=', 1)[0] ?? '')
  return printable(keys === undefined ? name : `${name}?${keys.join('&')}`, 900)
}
