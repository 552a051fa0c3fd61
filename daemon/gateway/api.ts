/**
 * One API that the gateway speaks: which requests are its own, how policy judges them, what goes to the provider, and
 * how answers are read. Everything that differs between APIs is here; the way of a call is the same for all.
 */
import type { IncomingHttpHeaders } from 'node:http'
import type { ModelRequestDecision, ModelSpec } from '../../policy/model-request.ts'
import type { Tokens } from '../protocol/model-cost.ts'
import type { RecordedCall } from '../protocol/recording.ts'
import type { Json, Sayings } from './json.ts'

export interface ModelApi {
  readonly name: RecordedCall['api']
  /** The kind of upstream that serves it. */
  readonly kind: 'openai' | 'anthropic'
  /** Paths, with their query, under which the sandbox reaches it. */
  readonly paths: ReadonlySet<string>
  /** Below the upstream's base URL. */
  readonly path: string
  /** Asks for no answer of the model: takes nothing from the budget and is no call. */
  readonly free: boolean
  /** Events of its streams carry their type as a name too, and no [DONE] ends them. */
  readonly named: boolean
  decide(spec: ModelSpec, body: unknown, headers: IncomingHttpHeaders): ModelRequestDecision
  /** What is sent to the provider: the body as it was parsed, with what we must ask for. */
  outgoing(body: Json): Json
  /** Headers of the sandbox that policy let through. */
  headers(headers: IncomingHttpHeaders): Readonly<Record<string, string>>
  /** Turns of the model in the conversation that is sent. */
  assistantTurns(body: Json): number
  /** The most tokens that the answer may have; null where the request doesn't say. */
  outputLimit(body: Json): number | null
  /** A payload of the stream that is not for this sandbox: it did not ask for usage, we did. */
  hides(payload: unknown, body: Json): boolean
  /** The stream is over with this payload. */
  isLast(payload: unknown): boolean
  /** The answer was said to its end with this payload. */
  ends(payload: unknown): boolean
  /** Keeps a stream alive and says nothing. */
  isPing(payload: unknown): boolean
  isAnswer(body: unknown): body is Json
  tokensOf(answer: Json): Tokens | null
  sayingsOf(answer: Json): Sayings
  /** Names what only a tool of the provider puts into an answer or an event; null: nothing of the kind. */
  strayIn(payload: Json): string | null
  /** A plain answer as the payloads of a stream. */
  toEvents(answer: Json): Json[]
  /** The payloads of a stream as a plain answer; null where they hold none. */
  fromEvents(events: readonly unknown[]): Json | null
}
