/**
 * The shapes of Anthropic's Messages API: what an answer used, what it said, and its two forms, plain and streamed,
 * made from each other. Its `input_tokens` leave out what was read from the cache and what was written to it; here, as
 * everywhere in Closedbook, the input is the whole prompt.
 */
import { isObject } from '../../policy/model-check.ts'
import type { Tokens } from '../protocol/model-cost.ts'
import { commandOf, count, objectOr, objects, sayings, type Json, type Sayings } from './json.ts'

/** Tokens of one call from its `usage`; null where it is missing or makes no sense, which is never read as zero. */
export function tokensOf(usage: unknown): Tokens | null {
  if (!isObject(usage)) return null
  const fresh = count(usage['input_tokens'])
  const read = count(usage['cache_read_input_tokens'] ?? 0)
  const written = count(usage['cache_creation_input_tokens'] ?? 0)
  const output = count(usage['output_tokens'])
  const thinking = count(objectOr(usage['output_tokens_details'])['thinking_tokens'] ?? 0)
  if (fresh === null || read === null || written === null) return null
  if (output === null || thinking === null) return null
  return {
    inputTokens: fresh + read + written,
    cachedInputTokens: read,
    cacheWriteInputTokens: written,
    outputTokens: output,
    reasoningTokens: thinking,
  }
}

export const isMessage = (body: unknown): body is Json =>
  isObject(body) && body['type'] === 'message' && Array.isArray(body['content'])

const ownBlocks = new Set(['text', 'thinking', 'redacted_thinking', 'tool_use'])

/** What only a tool of the provider puts into an answer, or into an event; null where there is nothing of the kind. */
export function strayIn(payload: Json): string | null {
  const message = isObject(payload['message']) ? payload['message'] : payload
  const blocks = [...objects(message['content']), ...objects([payload['content_block']])]
  for (const { type } of blocks)
    if (typeof type !== 'string' || !ownBlocks.has(type)) return String(type)
  for (const usage of [objectOr(message['usage']), objectOr(payload['usage'])])
    for (const [tool, requests] of Object.entries(objectOr(usage['server_tool_use'])))
      if (typeof requests === 'number' && requests > 0) return tool
  return null
}

export function sayingsOf(body: Json): Sayings {
  const text: string[] = []
  const commands: string[] = []
  for (const { type, text: said, name, input } of objects(body['content']))
    if (type === 'text' && typeof said === 'string') text.push(said)
    else if (type === 'tool_use') commands.push(commandOf(name, input))
  return sayings(text, commands)
}

export const isLast = (payload: unknown): boolean =>
  isObject(payload) && payload['type'] === 'message_stop'

/** Sent now and then while the model thinks; nothing of the answer. */
export const isPing = (payload: unknown): boolean => isObject(payload) && payload['type'] === 'ping'

/** The plain form of a stream; null where it has no end. What it used counts only if the stream said so at its end. */
export function fromEvents(events: readonly unknown[]): Json | null {
  let message: Json = {}
  let told = false
  const blocks = new Map<unknown, Block>()
  for (const event of objects(events))
    switch (event['type']) {
      case 'message_start':
        message = { ...objectOr(event['message']) }
        break
      case 'content_block_start':
        blocks.set(event['index'], new Block(objectOr(event['content_block'])))
        break
      case 'content_block_delta':
        blocks.get(event['index'])?.add(objectOr(event['delta']))
        break
      case 'message_delta': {
        const usage = withoutNulls(objectOr(event['usage']))
        told ||= usage['output_tokens'] !== undefined
        const before = objectOr(message['usage'])
        message = { ...message, ...objectOr(event['delta']), usage: { ...before, ...usage } }
        break
      }
    }
  if (!events.some(isLast)) return null
  const content = [...blocks.values()].map((block) => block.whole())
  const { usage, ...rest } = message
  const whole = { ...rest, content, ...(told ? { usage } : {}) }
  return isMessage(whole) ? whole : null
}

const withoutNulls = (object: Json): Json =>
  Object.fromEntries(Object.entries(object).filter(([, value]) => value !== null))

const textOr = (value: unknown): string => (typeof value === 'string' ? value : '')

class Block {
  readonly #block: Json
  #input = ''

  constructor(begun: Json) {
    this.#block = { ...begun }
  }

  add(delta: Json): void {
    switch (delta['type']) {
      case 'text_delta':
        return this.#append('text', delta['text'])
      case 'thinking_delta':
        return this.#append('thinking', delta['thinking'])
      case 'signature_delta':
        return this.#append('signature', delta['signature'])
      case 'input_json_delta':
        this.#input += textOr(delta['partial_json'])
        return
      case 'citations_delta':
        this.#block['citations'] = [...objects(this.#block['citations']), delta['citation']]
    }
  }

  #append(key: string, more: unknown): void {
    this.#block[key] = textOr(this.#block[key]) + textOr(more)
  }

  whole(): Json {
    if (this.#input === '') return this.#block
    try {
      return { ...this.#block, input: JSON.parse(this.#input) }
    } catch {
      // Cut short by the model's limit, or by the model: shown as it is.
      return { ...this.#block, input: this.#input }
    }
  }
}

/** A plain answer as the events of a stream: begun, each block, why it ended, the end. */
export function toEvents(body: Json): Json[] {
  const { content, stop_reason, stop_sequence = null, usage, ...rest } = body
  const begun = { ...objectOr(usage), output_tokens: 0 }
  return [
    {
      type: 'message_start',
      message: { ...rest, content: [], stop_reason: null, stop_sequence: null, usage: begun },
    },
    ...objects(content).flatMap(blockEvents),
    { type: 'message_delta', delta: { stop_reason, stop_sequence }, usage },
    { type: 'message_stop' },
  ]
}

function blockEvents(block: Json, index: number): Json[] {
  const [empty, deltas] = blockParts(block)
  return [
    { type: 'content_block_start', index, content_block: { ...block, ...empty } },
    ...deltas.map((delta) => ({ type: 'content_block_delta', index, delta })),
    { type: 'content_block_stop', index },
  ]
}

function blockParts(block: Json): readonly [Json, Json[]] {
  switch (block['type']) {
    case 'text':
      return [{ text: '' }, [{ type: 'text_delta', text: block['text'] }]]
    case 'thinking':
      return [
        { thinking: '', signature: '' },
        [
          { type: 'thinking_delta', thinking: block['thinking'] },
          { type: 'signature_delta', signature: block['signature'] },
        ],
      ]
    case 'tool_use':
      return [
        { input: {} },
        [{ type: 'input_json_delta', partial_json: JSON.stringify(block['input'] ?? {}) }],
      ]
    default:
      return [{}, []]
  }
}
