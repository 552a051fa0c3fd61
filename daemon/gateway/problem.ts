/**
 * What is told to the sandbox in place of an answer, and whose fault it is. A provider's error keeps its status and
 * words. What only this conversation can have caused (it outgrew the model, it was refused) is no fault once the
 * provider has answered before; until then it speaks of the settings.
 */
import { isObject } from '../../policy/model-check.ts'
import type { Reason } from '../../policy/decision.ts'
import { faultBlame, type FaultCode } from '../protocol/model-fault.ts'
import { objectOr, type Json } from './json.ts'
import { errorBody, errorOf } from './reply.ts'
import { UpstreamError } from './upstream.ts'

/** `code` is null where no upstream is at fault. */
export interface Problem {
  readonly code: FaultCode | null
  readonly status: number
  readonly body: object
  readonly reason?: Reason
}

export const problem = ({ code, status, message }: UpstreamError): Problem => ({
  code,
  status,
  body: errorBody('fault', code, message),
})

/** Throws what isn't the upstream's doing. */
export function problemOf(error: unknown, signal: AbortSignal): Problem {
  if (signal.aborted)
    return {
      code: null,
      status: 401,
      body: errorBody('refusal', 'gateway_shut', 'the agent phase is over'),
      reason: 'gateway_shut',
    }
  if (error instanceof UpstreamError) return problem(error)
  throw error
}

/** The error in a body or a stream's payload, as each API has it; null where there is none. */
function errorIn(payload: unknown): Json | null {
  if (!isObject(payload)) return null
  if (isObject(payload['error'])) return payload['error']
  if (payload['type'] === 'error') return payload
  if (payload['type'] !== 'response.failed') return null
  const failed = objectOr(payload['response'])['error']
  return isObject(failed) ? failed : { message: 'the response failed' }
}

/** A provider that says no by its status. A redirect is never followed, and not handed on. */
export function refusedBy(status: number, body: unknown, answeredBefore: boolean): Problem {
  const code = faultOf(errorIn(body) ?? {}, status, answeredBefore)
  return {
    code,
    status: status >= 400 ? status : 502,
    body: errorOf(body, status, code ?? 'request_rejected'),
  }
}

/** A provider that says no in what looked like an answer; null where there is no error in it. */
export function failedIn(payload: unknown, answeredBefore: boolean): Problem | null {
  const error = errorIn(payload)
  if (error === null || !isObject(payload)) return null
  const code = faultOf(error, null, answeredBefore)
  // Whatever form it came in, clients of each API look for `error`.
  const status = code === null ? 400 : code === 'upstream_timeout' ? 504 : 502
  return { code, status, body: { ...payload, error } }
}

/** `status` is null for an error in an answer with status 200. */
function faultOf(error: Json, status: number | null, answeredBefore: boolean): FaultCode | null {
  const recorded = recordedFault(error)
  if (recorded !== null) return recorded
  const words = [error['code'], error['type']].filter((word) => typeof word === 'string').join(' ')
  if (/insufficient_quota|billing_error/.test(words) || noCredit.test(String(error['message'])))
    return 'upstream_auth'
  const own = answeredBefore ? null : 'upstream_rejected'
  if (status === null) {
    if (/rate_limit|overloaded/.test(words)) return 'upstream_busy'
    if (/authentication|permission/.test(words)) return 'upstream_auth'
    return /invalid_prompt|context_length|invalid_request|image/.test(words)
      ? own
      : 'upstream_error'
  }
  if (status === 429 || status === 529) return 'upstream_busy'
  if (status === 401 || status === 402 || status === 403) return 'upstream_auth'
  if (status === 404) return 'upstream_rejected'
  if (status === 408) return 'upstream_timeout'
  if (status >= 500) return 'upstream_error'
  return status < 400 ? 'upstream_invalid' : own
}

const noCredit = /credit balance is too low/i

/** The code of a fault of ours that was recorded, so that its replay is the same fault. */
function recordedFault({ type, code }: Json): FaultCode | null {
  return type === 'closedbook_fault' && typeof code === 'string' && Object.hasOwn(faultBlame, code)
    ? (code as FaultCode)
    : null
}

export function messageIn(body: object): string {
  const message = errorIn(body)?.['message']
  return (typeof message === 'string' ? message : JSON.stringify(body)).slice(0, 500)
}

export function reasonOf(code: FaultCode): Reason {
  switch (code) {
    case 'upstream_timeout':
    case 'replay_exhausted':
    case 'replay_mismatch':
      return code
    case 'gateway_error':
      return 'internal_error'
    case 'upstream_grounded':
      return 'tool_denied'
    case 'upstream_unreachable':
    case 'upstream_broken':
    case 'upstream_invalid':
    case 'upstream_error':
    case 'upstream_busy':
    case 'upstream_auth':
    case 'upstream_rejected':
    case 'usage_missing':
      return 'upstream_bad'
  }
}
