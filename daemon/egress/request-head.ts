/**
 * What must hold for the head of a request before it is weighed, read from the raw headers: the runtime's
 * convenience view keeps the first of two Host lines and says nothing.
 */
import type { IncomingMessage } from 'node:http'
import type { Reason } from '../../policy/decision.ts'

type Head = Pick<IncomingMessage, 'rawHeaders' | 'httpVersion' | 'method'>

export function rawValues(message: Pick<Head, 'rawHeaders'>, name: string): string[] {
  const values: string[] = []
  for (let index = 0; index + 1 < message.rawHeaders.length; index += 2) {
    if (message.rawHeaders[index]?.toLowerCase() === name) {
      values.push(message.rawHeaders[index + 1] ?? '')
    }
  }
  return values
}

export const hostHeaders = (message: Pick<Head, 'rawHeaders'>): string[] =>
  rawValues(message, 'host')

/** null if nothing is wrong. */
export function headFault(
  message: Head,
  { hostRequired }: { hostRequired: boolean },
): Reason | null {
  if (message.httpVersion !== '1.1' && message.httpVersion !== '1.0') return 'bad_protocol'
  const hosts = hostHeaders(message)
  if (hosts.length > 1) return 'bad_request'
  if (hosts.length === 0 && hostRequired && message.httpVersion === '1.1') return 'bad_request'
  const lengths = rawValues(message, 'content-length')
  const codings = rawValues(message, 'transfer-encoding')
  if (lengths.length > 1 || codings.length > 1) return 'bad_request'
  if (lengths.length === 1 && codings.length === 1) return 'bad_request'
  if (codings.some((value) => value.toLowerCase() !== 'chunked')) return 'bad_request'
  if (rawValues(message, 'expect').some((value) => value.toLowerCase() !== '100-continue')) {
    return 'bad_request'
  }
  return null
}

const hopByHop = new Set([
  'connection',
  'keep-alive',
  'proxy-authenticate',
  'proxy-authorization',
  'proxy-connection',
  'te',
  'trailer',
  'upgrade',
  'expect',
])

/** The headers that are meant for the other end, as they came, in their order. */
export function endToEnd(message: Pick<Head, 'rawHeaders'>, drop: readonly string[]): string[] {
  const named = rawValues(message, 'connection').flatMap((value) =>
    value.split(',').map((token) => token.trim().toLowerCase()),
  )
  // A Connection header may not take away what frames the message or names its host.
  const kept = new Set(['host', 'content-length', 'transfer-encoding'])
  const dropped = new Set([...hopByHop, ...named.filter((name) => !kept.has(name)), ...drop])
  const headers: string[] = []
  for (let index = 0; index + 1 < message.rawHeaders.length; index += 2) {
    const name = message.rawHeaders[index] ?? ''
    if (!dropped.has(name.toLowerCase())) headers.push(name, message.rawHeaders[index + 1] ?? '')
  }
  return headers
}
