/**
 * Searches the logs of leases. What is noted beside a closed log says whether it can hold a match at all; in the logs
 * that are left, only lines with the rarest wanted word in them are parsed. Both only save work: whether an event
 * matches is decided by its fields. A log that isn't there any more is passed over.
 */
import type { AuditEvent } from '../../policy/audit-event.ts'
import type { AuditQuery } from '../protocol/audit.ts'
import { readClosing, type AuditClosing } from './audit-closing.ts'
import { parseLine, readAuditChunks, linesOf } from './read-audit.ts'

type EventQuery = Omit<AuditQuery, 'trial' | 'lease' | 'limit'>

const newline = 0x0a
/** Lines are handed on in pieces of about this. */
const pieceCharacters = 64 * 1024

/** Matching lines of the logs, in the order of the files, as they stand there: whole lines, several in a piece. */
export async function* searchAudit(
  files: Iterable<string> | AsyncIterable<string>,
  query: AuditQuery,
  options: { readonly signal?: AbortSignal } = {},
): AsyncGenerator<string> {
  let left = query.limit ?? Infinity
  let piece = ''
  for await (const file of files) {
    options.signal?.throwIfAborted()
    const closing = await readClosing(file)
    if (closing !== null && !mayHold(closing, query)) continue
    for await (const lines of matchingLines(file, query, options.signal)) {
      for (const line of lines) {
        piece += `${line}\n`
        left -= 1
        if (left === 0) return yield piece
      }
      if (piece.length < pieceCharacters) continue
      yield piece
      piece = ''
    }
  }
  if (piece !== '') yield piece
}

/** The matches of each chunk that was read. */
async function* matchingLines(
  file: string,
  query: EventQuery,
  signal: AbortSignal | undefined,
): AsyncGenerator<string[]> {
  const needle = needleOf(query)
  const chunks = readAuditChunks(file, { signal })
  try {
    for await (const { data, start } of chunks) {
      const lines: string[] = []
      for (const { text, end } of needle === null ? linesOf(data) : linesWith(data, needle))
        if (matchesQuery(query, parseLine(file, start + end, text))) lines.push(text)
      if (lines.length > 0) yield lines
    }
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error
  }
}

/** Lines of whole ones that hold the needle. */
function* linesWith(data: Buffer, needle: string): Generator<{ text: string; end: number }> {
  for (let at = data.indexOf(needle); at !== -1;) {
    const start = data.lastIndexOf(newline, at) + 1
    const stop = data.indexOf(newline, at)
    yield { text: data.toString('utf8', start, stop), end: stop + 1 }
    at = data.indexOf(needle, stop)
  }
}

/** Bytes that every matching line holds, the rarest that the query gives; in a string of a line every quote is escaped. */
function needleOf({ host, reason, protocol, action, kind }: EventQuery): string | null {
  const wildcard = host === undefined ? null : belowOf(host)
  if (wildcard !== null) return JSON.stringify(wildcard).slice(1)
  if (host !== undefined) return `:${JSON.stringify(host)}`
  if (reason !== undefined) return `"reason":"${reason}"`
  if (protocol !== undefined) return `"protocol":"${protocol}"`
  if (kind !== undefined) return `"kind":"${kind}"`
  if (action !== undefined) return `"action":"${action}"`
  return null
}

/** `.name` of `*.name`. */
const belowOf = (host: string): string | null => (host.startsWith('*.') ? host.slice(1) : null)

function hostMatches(wanted: string, known: string | null): boolean {
  if (known === null) return false
  const below = belowOf(wanted)
  return below === null ? known === wanted : known.endsWith(below) && known !== below
}

export function matchesQuery(query: EventQuery, event: AuditEvent): boolean {
  const { host, kind, protocol, action, reason, since, until } = query
  if (event.canary === true && query.canaries !== true) return false
  if (kind !== undefined && event.kind !== kind) return false
  if (protocol !== undefined && event.protocol !== protocol) return false
  if (action !== undefined && event.action !== action) return false
  if (reason !== undefined && event.reason !== reason) return false
  if (since !== undefined && Date.parse(event.time) < Date.parse(since)) return false
  if (until !== undefined && Date.parse(event.time) >= Date.parse(until)) return false
  return host === undefined || hostMatches(host, event.host) || hostMatches(host, event.address)
}

/** False where no event of a closed log can match. */
export function mayHold({ tags, hosts, totals }: AuditClosing, query: EventQuery): boolean {
  const { host, kind, protocol, action, reason, since, until } = query
  const { from, until: last } = totals
  if (from === null || last === null) return false
  if (host !== undefined && hosts?.some((known) => hostMatches(host, known)) === false) return false
  const wanted = [kind, protocol, action, reason]
  if (!tags.some((tag) => tag.split(' ').every((word, at) => (wanted[at] ?? word) === word)))
    return false
  if (until !== undefined && Date.parse(from) >= Date.parse(until)) return false
  return since === undefined || Date.parse(last) >= Date.parse(since)
}
