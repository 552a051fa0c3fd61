/**
 * Carries one answer from the upstream to the sandbox and says how it ended. An answer counts only when it is whole
 * and says what it used: one without `usage` is withheld (as a stream, it ends with an error event) and is the
 * provider's fault, since its cost can't be known and must not pass for zero.
 *
 * What is recorded is what the upstream said before it was fitted to this sandbox's request (plain or streamed, with
 * or without the usage chunk), or our own error where it said nothing; so serving the record gives the same bytes.
 */
import type { Reason } from '../../policy/decision.ts'
import { isObject } from '../../policy/model-check.ts'
import type { Tokens } from '../protocol/model-cost.ts'
import { faultBlame, type FaultCode } from '../protocol/model-fault.ts'
import type { RecordedCall } from '../protocol/recording.ts'
import {
  finishes,
  fromChunks,
  isCompletion,
  isUsageChunk,
  toChunks,
  tokensOf,
} from './chat-shape.ts'
import { errorBody, errorOf, type Reply } from './reply.ts'
import { type Answer, type Ask, UpstreamError } from './upstream.ts'

export interface Fault {
  readonly code: FaultCode
  readonly message: string
  readonly status: number | null
}

export interface Outcome {
  /** As the sandbox was told, or would have been had its stream not begun. */
  readonly status: number
  /** null: not a good answer. */
  readonly tokens: Tokens | null
  /** null for a good answer, for one the sandbox itself spoiled, and for one that `shut` cut off. */
  readonly fault: Fault | null
  /** The good answer in its plain form. */
  readonly completion: Record<string, unknown> | null
  readonly response: RecordedCall['response']
}

export interface RelayOptions {
  /** Aborted when the gateway shuts. */
  readonly signal: AbortSignal
  /** Whether this upstream has given a good answer before: then a 4xx is about this conversation, not our settings. */
  readonly answeredBefore: boolean
}

export async function relay(
  start: (options: { signal: AbortSignal }) => Promise<Answer>,
  ask: Ask,
  reply: Reply,
  options: RelayOptions,
): Promise<Outcome> {
  let answer: Answer
  try {
    options.signal.throwIfAborted()
    answer = await start({ signal: options.signal })
  } catch (error) {
    return fail(reply, problemOf(error, options.signal))
  }
  if ('events' in answer) return relayStream(answer, ask, reply, options)
  if (answer.status < 200 || answer.status > 299) return relayError(answer, reply, options)
  return relayBody(answer, ask, reply)
}

type Plain = Extract<Answer, { body: unknown }>
type Streamed = Extract<Answer, { events: unknown }>

function relayBody(answer: Plain, ask: Ask, reply: Reply): Outcome {
  const { status, headers, body } = answer
  const response = { status, headers, body }
  if (!isCompletion(body)) return { ...fail(reply, problem(notACompletion(body))), response }
  const tokens = tokensOf(body['usage'])
  if (tokens === null) return { ...fail(reply, problem(usageMissing())), response }
  if (ask.stream) {
    for (const chunk of toChunks(body))
      if (ask.includeUsage || !isUsageChunk(chunk)) reply.event(chunk, headers)
    reply.endStream({ whole: true })
  } else reply.json(200, body, headers)
  return { status: 200, tokens, fault: null, completion: body, response }
}

async function relayStream(
  answer: Streamed,
  ask: Ask,
  reply: Reply,
  { signal }: RelayOptions,
): Promise<Outcome> {
  const { status, headers } = answer
  const events: unknown[] = []
  const response = { status, headers, events }
  let tokens: Tokens | null = null
  let ended = false
  try {
    for await (const item of answer.events) {
      if (item.kind === 'comment') reply.comment()
      else if (item.kind === 'done') ended = true
      else {
        const { payload } = item
        if (isObject(payload) && isObject(payload['error'])) throw notACompletion(payload)
        events.push(payload)
        if (isObject(payload) && isObject(payload['usage'])) tokens = tokensOf(payload['usage'])
        ended ||= finishes(payload)
        if (ask.stream && (ask.includeUsage || !isUsageChunk(payload)))
          reply.event(payload, headers)
      }
    }
    if (!ended) throw new UpstreamError('upstream_broken', 502, 'the stream stopped before its end')
    if (tokens === null) throw usageMissing()
    const completion = fromChunks(events)
    if (completion === null) throw notACompletion(null)
    if (ask.stream) reply.endStream({ whole: true })
    else reply.json(200, completion, headers)
    return { status: 200, tokens, fault: null, completion, response }
  } catch (error) {
    const why = problemOf(error, signal)
    events.push(why.body)
    return { ...fail(reply, why), response }
  }
}

/** The provider said no. Its status and words go on; a redirect, which we never follow, does not. */
function relayError(answer: Plain, reply: Reply, { answeredBefore }: RelayOptions): Outcome {
  const code = codeIn(answer.body) ?? faultOfStatus(answer.status, answer.body, answeredBefore)
  const status = answer.status >= 400 ? answer.status : 502
  const body = errorOf(answer.body, answer.status, code ?? 'request_rejected')
  return fail(reply, { code, status, body }, answer.headers)
}

/** What is told to the sandbox in place of an answer; `code` is null where no upstream is at fault. */
interface Problem {
  readonly code: FaultCode | null
  readonly status: number
  readonly body: object
  readonly reason?: Reason
}

function fail(
  reply: Reply,
  { code, status, body, reason }: Problem,
  headers: Readonly<Record<string, string>> = {},
): Outcome {
  if (reply.started) {
    reply.event(body, {})
    reply.endStream({ whole: false })
  } else reply.json(status, body, headers, reason ?? (code === null ? undefined : reasonOf(code)))
  return {
    status,
    tokens: null,
    fault: code === null ? null : { code, message: messageIn(body), status },
    completion: null,
    response: { status, headers, body },
  }
}

const problem = ({ code, status, message, body }: UpstreamError): Problem => {
  return { code, status, body: body ?? errorBody('fault', code, message) }
}

function problemOf(error: unknown, signal: AbortSignal): Problem {
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

const usageMissing = (): UpstreamError =>
  new UpstreamError(
    'usage_missing',
    502,
    'the provider did not say what the answer used, so it was withheld; choose one that reports usage',
  )

/** A 200 that holds an error object, or nothing that we know. */
function notACompletion(body: unknown): UpstreamError {
  if (isObject(body) && isObject(body['error'])) {
    const message = messageIn(body)
    return new UpstreamError(codeIn(body) ?? 'upstream_error', 502, message, { body })
  }
  return new UpstreamError(
    'upstream_invalid',
    502,
    'the provider answered 200 without a completion',
  )
}

function faultOfStatus(status: number, body: unknown, answeredBefore: boolean): FaultCode | null {
  if (status === 429) return quotaIsSpent(body) ? 'upstream_auth' : 'upstream_busy'
  if (status === 401 || status === 402 || status === 403) return 'upstream_auth'
  if (status === 404) return 'upstream_rejected'
  if (status === 408) return 'upstream_timeout'
  if (status >= 500) return 'upstream_error'
  if (status < 400) return 'upstream_invalid'
  return answeredBefore ? null : 'upstream_rejected'
}

const errorIn = (body: unknown): Record<string, unknown> =>
  isObject(body) && isObject(body['error']) ? body['error'] : {}

const quotaIsSpent = (body: unknown): boolean => errorIn(body)['code'] === 'insufficient_quota'

/** The code of a fault of ours that was recorded, so that its replay is the same fault. */
function codeIn(body: unknown): FaultCode | null {
  const { type, code } = errorIn(body)
  return type === 'closedbook_fault' && typeof code === 'string' && Object.hasOwn(faultBlame, code)
    ? (code as FaultCode)
    : null
}

function messageIn(body: object): string {
  const { message } = errorIn(body)
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
