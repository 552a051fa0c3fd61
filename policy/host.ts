/**
 * Names of hosts, as they stand in a CONNECT line, a Host header, an SNI, a DNS question or a policy file. One
 * grammar, applied to the raw bytes (one character a byte) before anything that knows about URLs sees them:
 * ASCII letters, digits and hyphens, two labels at least, at most one trailing dot. The canonical form is lower
 * case without that dot. An IP address in any spelling that some resolver understands is refused as `ip_literal`.
 */
export interface Authority {
  readonly host: string
  readonly port: number
}

export type AuthorityFault = 'bad_authority' | 'ip_literal' | 'port_not_allowed'

export type ParsedHost =
  | { readonly ok: true; readonly host: string }
  | { readonly ok: false; readonly reason: 'bad_authority' | 'ip_literal' }

export type ParsedAuthority =
  | ({ readonly ok: true } & Authority)
  | { readonly ok: false; readonly reason: AuthorityFault }

const label = '[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?'
const namePattern = new RegExp(`^${label}(?:\\.${label})+\\.?$`)
/** A label that `inet_aton` or a URL parser reads as a number: decimal, octal or hexadecimal. */
const numericLabel = /^(?:[0-9]+|0[xX][0-9A-Fa-f]*)$/
const maxNameLength = 253

/** Also true for what only looks like an address, such as 300.1.2.3 or 1.2.3.4.5. */
function isNumericHost(text: string): boolean {
  const labels = (text.endsWith('.') ? text.slice(0, -1) : text).split('.')
  return labels.every((part) => numericLabel.test(part))
}

const isIpv6Like = (text: string): boolean =>
  /^[0-9A-Fa-f:]*:[0-9A-Fa-f:]*:[0-9A-Fa-f:.]*$/.test(text)

/** The name alone, without a port. */
export function parseHost(text: string): ParsedHost {
  if (isNumericHost(text)) return { ok: false, reason: 'ip_literal' }
  const bare = text.startsWith('[') && text.endsWith(']') ? text.slice(1, -1) : text
  if (isIpv6Like(bare)) return { ok: false, reason: 'ip_literal' }
  if (!namePattern.test(text)) return { ok: false, reason: 'bad_authority' }
  const host = (text.endsWith('.') ? text.slice(0, -1) : text).toLowerCase()
  if (host.length > maxNameLength) return { ok: false, reason: 'bad_authority' }
  // "name.123" and "name.0x7f" are taken for addresses by URL parsers, and no top-level domain is a number.
  const last = host.slice(host.lastIndexOf('.') + 1)
  if (numericLabel.test(last)) return { ok: false, reason: 'bad_authority' }
  return { ok: true, host }
}

/**
 * `host:port`; without a port only if `defaultPort` is given. A port that is no number is a bad authority; a number
 * that no TCP port has (0, 65536, none after the colon) is a port that is not allowed.
 */
export function parseAuthority(text: string, defaultPort?: number): ParsedAuthority {
  const colon = text.startsWith('[') ? text.indexOf(':', text.indexOf(']')) : text.indexOf(':')
  const hostText = colon === -1 ? text : text.slice(0, colon)
  const portText = colon === -1 ? null : text.slice(colon + 1)
  // An IPv6 address without brackets has its first colon in the middle of it.
  if (isIpv6Like(text)) return { ok: false, reason: 'ip_literal' }
  const parsed = parseHost(hostText)
  if (!parsed.ok) return parsed
  if (portText === null) {
    if (defaultPort === undefined) return { ok: false, reason: 'bad_authority' }
    return { ok: true, host: parsed.host, port: defaultPort }
  }
  if (portText === '') return { ok: false, reason: 'port_not_allowed' }
  if (!/^[0-9]{1,5}$/.test(portText)) return { ok: false, reason: 'bad_authority' }
  const port = Number(portText)
  if (port < 1 || port > 65535) return { ok: false, reason: 'port_not_allowed' }
  if (portText.startsWith('0')) return { ok: false, reason: 'bad_authority' }
  return { ok: true, host: parsed.host, port }
}

export type PatternResult = { readonly ok: true } | { readonly ok: false; readonly message: string }

/**
 * Whether `text` may stand in a policy: `name` or `*.name`, canonical. Where a right spelling can be guessed,
 * the message gives it.
 */
export function canonicalHostPattern(text: string): PatternResult {
  const refuse = (message: string): PatternResult => ({ ok: false, message })
  if (text === '') return refuse('empty: write a host name, e.g. "example.com", or "*.example.com"')
  const wildcard = text.startsWith('*.')
  const parsed = parseHost(wildcard ? text.slice(2) : text)
  if (parsed.ok) {
    const canonical = (wildcard ? '*.' : '') + parsed.host
    return text === canonical ? { ok: true } : refuse(`not canonical: write "${canonical}"`)
  }
  if (parsed.reason === 'ip_literal') {
    return refuse('an IP address can not be allowed or denied: write the name of the host')
  }
  const guess = guessPattern(text)
  if (guess !== null) return refuse(`not a host name alone: write "${guess}"`)
  // eslint-disable-next-line no-control-regex
  if (/[^\x00-\x7f]/.test(text)) {
    return refuse('not ASCII: write the name in its "xn--" form')
  }
  if (text === '*' || text === '**') {
    return refuse('a wildcard for everything is not possible: name each host, or "*.example.com"')
  }
  if (/^(?:\*\.)?[A-Za-z0-9-]+\.?$/.test(text)) {
    return refuse('a name needs at least two labels, e.g. "example.com"')
  }
  return refuse('not a host name: letters, digits, hyphens and dots, e.g. "example.com"')
}

/** What a person most likely meant by a URL, a port, a leading dot or a star in the wrong place. */
function guessPattern(text: string): string | null {
  let rest = text.trim().replace(/^[A-Za-z][A-Za-z0-9+.-]*:\/\//, '')
  rest = rest.replace(/[/?#].*$/s, '').replace(/:[0-9]*$/, '')
  const wildcard = /^(?:\*\.?|\.)/.test(rest)
  const parsed = parseHost(rest.replace(/^(?:\*\.?|\.)/, ''))
  return parsed.ok ? (wildcard ? '*.' : '') + parsed.host : null
}
