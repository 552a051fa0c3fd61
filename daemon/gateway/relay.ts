/**
 * Carries one answer from the upstream to the sandbox and says how it ended. An answer counts only when it is whole
 * and says what it used: one without `usage` is withheld (as a stream, it ends with an error event) and is the
 * provider's fault, since its cost can't be known and must not pass for zero.
 *
 * What is recorded is what the upstream said before it was fitted to this sandbox's request (plain or streamed, with
 * or without the usage chunk), or our own error where it said nothing; so serving the record gives the same bytes.
 */
import { isObject } from '../../policy/model-check.ts'
import type { Tokens } from '../protocol/model-cost.ts'
import type { FaultCode } from '../protocol/model-fault.ts'
import type { RecordedCall } from '../protocol/recording.ts'
import type { Json } from './json.ts'
import {
  failedIn,
  messageIn,
  problem,
  problemOf,
  reasonOf,
  refusedBy,
  type Problem,
} from './problem.ts'
import type { Reply } from './reply.ts'
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
  readonly answer: Json | null
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
  const { status, headers, body } = answer
  if (status < 200 || status > 299)
    return fail(reply, refusedBy(status, body, options.answeredBefore), headers)
  return relayBody(answer, ask, reply, options)
}

type Plain = Extract<Answer, { body: unknown }>
type Streamed = Extract<Answer, { events: unknown }>

function relayBody(answer: Plain, ask: Ask, reply: Reply, options: RelayOptions): Outcome {
  const { status, headers, body } = answer
  const judged = judge(body, ask, options)
  if ('problem' in judged)
    return { ...fail(reply, judged.problem), response: { status, headers, body } }
  if (ask.stream) {
    for (const payload of ask.api.toEvents(judged.answer))
      if (!ask.api.hides(payload, ask.body)) reply.event(payload, headers)
    reply.endStream({ whole: true })
  } else reply.json(200, judged.answer, headers)
  return { status: 200, ...judged, fault: null, response: { status, headers, body } }
}

async function relayStream(
  { status, headers, events: items }: Streamed,
  ask: Ask,
  reply: Reply,
  options: RelayOptions,
): Promise<Outcome> {
  const { api } = ask
  const events: unknown[] = []
  const response = { status, headers, events }
  let ended = false
  let last: unknown = null
  let why: Problem | null = null
  try {
    for await (const item of items) {
      if (item.kind === 'comment') reply.comment()
      else if (item.kind === 'done') ended = true
      else {
        const { payload } = item
        why = failedIn(payload, options.answeredBefore) ?? strayed(payload, ask)
        if (why !== null) break
        events.push(payload)
        ended ||= api.ends(payload)
        // The last event says that all is well, so it waits until that is known.
        if (api.isLast(payload)) last = payload
        else if (ask.stream && !api.hides(payload, ask.body)) reply.event(payload, headers)
      }
    }
  } catch (error) {
    why = problemOf(error, options.signal)
  }
  if (why === null && !ended) why = problem(brokenOff())
  const judged = why === null ? judge(api.fromEvents(events), ask, options) : { problem: why }
  if ('problem' in judged) {
    events.push(judged.problem.body)
    return { ...fail(reply, judged.problem), response }
  }
  if (ask.stream) {
    if (last !== null) reply.event(last, headers)
    reply.endStream({ whole: true })
  } else reply.json(200, judged.answer, headers)
  return { status: 200, ...judged, fault: null, response }
}

/** An answer that says what it used and was made by the model alone, or what is wrong with it. */
function judge(
  body: unknown,
  ask: Ask,
  { answeredBefore }: RelayOptions,
): { answer: Json; tokens: Tokens } | { problem: Problem } {
  const failed = failedIn(body, answeredBefore) ?? strayed(body, ask)
  if (failed !== null) return { problem: failed }
  if (!ask.api.isAnswer(body)) return { problem: problem(noAnswer()) }
  const tokens = ask.api.tokensOf(body)
  return tokens === null ? { problem: problem(usageMissing()) } : { answer: body, tokens }
}

function strayed(payload: unknown, { api }: Ask): Problem | null {
  const found = isObject(payload) ? api.strayIn(payload) : null
  if (found === null) return null
  const words = `the provider ran a tool of its own (${found.slice(0, 60)}), so its answer was withheld; choose a model that does not`
  return problem(new UpstreamError('upstream_grounded', 502, words))
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
    answer: null,
    response: { status, headers, body },
  }
}

const brokenOff = (): UpstreamError =>
  new UpstreamError('upstream_broken', 502, 'the stream stopped before its end')

const usageMissing = (): UpstreamError =>
  new UpstreamError(
    'usage_missing',
    502,
    'the provider did not say what the answer used, so it was withheld; choose one that reports usage',
  )

const noAnswer = (): UpstreamError =>
  new UpstreamError(
    'upstream_invalid',
    502,
    'the provider answered 200 without an answer of the model',
  )
