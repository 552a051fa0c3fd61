/** How a fault of the way out looks to a client of the Hub, and which reason the audit has for it. */
import type { Reason } from '../../../policy/decision.ts'
import { CacheFullError, DigestError, SourceError } from '../artifact-cache/source.ts'
import { HubError } from './hub-error.ts'

export interface Fault {
  readonly status: number
  readonly reason: Reason | null
  readonly code: string | null
  readonly message: string
  readonly retryAfterSeconds: number | null
}

const shortWaitSeconds = 5
/** Clients obey Retry-After without a limit of their own. */
const longestWaitSeconds = 30

export function faultOf(error: unknown): Fault {
  const fault = { reason: null, code: null, retryAfterSeconds: null }
  if (error instanceof CacheFullError)
    return error.forever
      ? { ...fault, status: 403, reason: 'limit_bytes', message: error.message }
      : {
          ...fault,
          status: 429,
          reason: 'limit_bytes',
          message: error.message,
          retryAfterSeconds: shortWaitSeconds,
        }
  if (error instanceof HubError) return { ...fault, ...hubFault(error) }
  if (error instanceof DigestError)
    return {
      ...fault,
      status: 502,
      reason: 'upstream_bad',
      message: `the Hub sent other bytes than its own list of files names: ${error.message}`,
    }
  if (error instanceof SourceError || isNetworkError(error))
    return { ...fault, status: 502, reason: 'upstream_bad', message: 'the Hub broke off the file' }
  return { ...fault, status: 500, reason: 'internal_error', message: 'the gateway failed' }
}

function hubFault(error: HubError): Omit<Fault, 'code' | 'retryAfterSeconds'> & Partial<Fault> {
  const { message, status } = error
  switch (error.fault) {
    case 'redirect':
      return { status: 403, reason: 'redirect_denied', message }
    case 'timeout':
      return { status: 504, reason: 'upstream_timeout', message }
    case 'unreachable':
    case 'garbled':
      return { status: 502, reason: 'upstream_bad', message }
    case 'answered':
      if (status === 429) {
        const seconds = Math.ceil((error.retryAfterMs ?? 0) / 1000)
        const retryAfterSeconds = Math.min(Math.max(seconds, 1), longestWaitSeconds)
        return { status, reason: 'upstream_bad', message, retryAfterSeconds }
      }
      // A client on a plain endpoint knows what is missing by the code alone.
      if (status === 401 || status === 403 || status === 404)
        return {
          status,
          reason: null,
          message,
          code: error.code ?? (status === 403 ? null : 'RepoNotFound'),
        }
      return { status: 502, reason: 'upstream_bad', message }
    default:
      return error.fault satisfies never
  }
}

const isNetworkError = (error: unknown): boolean =>
  error instanceof Error &&
  'code' in error &&
  /^(?:UND_ERR_|ECONN|EPIPE|ETIMEDOUT|HPE_)/.test(String(error.code))
