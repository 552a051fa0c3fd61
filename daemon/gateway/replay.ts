/**
 * A recording as an upstream: call n is answered by line n. The conversation must be where it was when the line was
 * recorded, told by its number of assistant turns: an agent that went another way would get answers to other
 * questions. Such a call takes no line.
 */
import type { RecordedCall } from '../protocol/recording.ts'
import { type Answer, type Ask, type StreamItem, type Upstream, UpstreamError } from './upstream.ts'

export class ReplayUpstream implements Upstream {
  readonly host = 'replay'
  readonly port = null
  readonly #calls: readonly RecordedCall[]
  #next = 0

  constructor(calls: readonly RecordedCall[]) {
    this.#calls = calls
  }

  prepare(ask: Ask): () => Promise<Answer> {
    const call = this.#calls[this.#next]
    if (call === undefined)
      throw new UpstreamError(
        'replay_exhausted',
        404,
        `the recording has ${this.#calls.length} calls and all were served`,
      )
    const turns = call.request?.assistantTurns ?? ask.assistantTurns
    if (turns !== ask.assistantTurns)
      throw new UpstreamError(
        'replay_mismatch',
        404,
        `call ${this.#next} was recorded after ${turns} assistant turns, but this request has ${ask.assistantTurns}`,
      )
    this.#next += 1
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
