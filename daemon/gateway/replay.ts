/**
 * A recording as an upstream: call n is answered by line n. The conversation must be where it was when the line was
 * recorded, told by its API and its number of assistant turns: an agent that went another way would get answers to
 * other questions. Such a call takes no line. Counting tokens is no call: it has lines of its own.
 */
import type { RecordedCall } from '../protocol/recording.ts'
import type { PastCalls } from './past-calls.ts'
import { type Answer, type Ask, type StreamItem, type Upstream, UpstreamError } from './upstream.ts'

/** Of a recording, and the first that was not served yet. */
interface Lines {
  readonly list: readonly RecordedCall[]
  next: number
}

export class ReplayUpstream implements Upstream {
  readonly host = 'replay'
  readonly port = null
  readonly #calls: Lines
  readonly #counts: Lines

  /** `past`: what was served before. */
  constructor(
    calls: readonly RecordedCall[],
    past: Pick<PastCalls, 'servedCalls' | 'servedCounts'> | null = null,
  ) {
    this.#calls = {
      list: calls.filter(({ api }) => api !== 'anthropic.count'),
      next: past?.servedCalls ?? 0,
    }
    this.#counts = {
      list: calls.filter(({ api }) => api === 'anthropic.count'),
      next: past?.servedCounts ?? 0,
    }
  }

  prepare(ask: Ask): () => Promise<Answer> {
    const lines = ask.api.free ? this.#counts : this.#calls
    const call = lines.list[lines.next]
    if (call === undefined)
      throw new UpstreamError(
        'replay_exhausted',
        404,
        `the recording has ${lines.list.length} ${ask.api.free ? 'counts' : 'calls'} and all were served`,
      )
    if (call.api !== ask.api.name)
      throw new UpstreamError(
        'replay_mismatch',
        404,
        `call ${lines.next} was recorded over ${call.api}, but this request is for ${ask.api.name}`,
      )
    const turns = call.request?.assistantTurns ?? ask.assistantTurns
    if (turns !== ask.assistantTurns)
      throw new UpstreamError(
        'replay_mismatch',
        404,
        `call ${lines.next} was recorded after ${turns} assistant turns, but this request has ${ask.assistantTurns}`,
      )
    lines.next += 1
    const { status, headers, body, events } = call.response
    return async () =>
      events === undefined ? { status, headers, body } : { status, headers, events: items(events) }
  }

  async [Symbol.asyncDispose](): Promise<void> {}
}

async function* items(events: readonly unknown[]): AsyncGenerator<StreamItem, void, undefined> {
  for (const payload of events) yield { kind: 'payload', payload }
  yield { kind: 'done' }
}
