/**
 * The shapes of a chat completion: what it used, what it said, and its two forms, plain and streamed, made from each
 * other. A completion is good when it has at least one choice with a message; anything else is the provider's fault.
 */
import { isObject } from '../../policy/model-check.ts'
import type { Tokens } from '../protocol/model-cost.ts'
import { commandOf, count, objectOr, objects, sayings, type Json, type Sayings } from './json.ts'

/**
 * Tokens of one call from its `usage`; null where it is missing or makes no sense, which is never read as zero. Some
 * providers (xAI) leave reasoning out of `completion_tokens` though they bill it as output; their total tells.
 */
export function tokensOf(usage: unknown): Tokens | null {
  if (!isObject(usage)) return null
  const input = count(usage['prompt_tokens'])
  const output = count(usage['completion_tokens'])
  if (input === null || output === null) return null
  const inputDetails = objectOr(usage['prompt_tokens_details'])
  const outputDetails = objectOr(usage['completion_tokens_details'])
  const cached = count(inputDetails['cached_tokens'] ?? usage['prompt_cache_hit_tokens'] ?? 0)
  const written = count(inputDetails['cache_write_tokens'] ?? 0)
  const reasoning = count(outputDetails['reasoning_tokens'] ?? 0)
  if (cached === null || cached > input || written === null || reasoning === null) return null
  const apart = reasoning > 0 && usage['total_tokens'] === input + output + reasoning
  return {
    inputTokens: input,
    cachedInputTokens: cached,
    // "Unadjusted": what is said to be written may hold what was read.
    cacheWriteInputTokens: Math.min(written, input - cached),
    outputTokens: apart ? output + reasoning : output,
    reasoningTokens: reasoning,
  }
}

export function isCompletion(body: unknown): body is Json {
  if (!isObject(body) || !Array.isArray(body['choices']) || body['choices'].length === 0)
    return false
  return body['choices'].every((choice) => isObject(choice) && isObject(choice['message']))
}

export function sayingsOf(body: Json): Sayings {
  const text: string[] = []
  const commands: string[] = []
  for (const choice of objects(body['choices'])) {
    const message = objectOr(choice['message'])
    const content = message['content']
    if (typeof content === 'string') text.push(content)
    for (const part of objects(content))
      if (typeof part['text'] === 'string') text.push(part['text'])
    for (const call of objects(message['tool_calls'])) {
      const { name, arguments: given, input } = objectOr(call['function'] ?? call['custom'])
      commands.push(commandOf(name, given ?? input))
    }
  }
  return sayings(text, commands)
}

/** What only a search at the provider puts into an answer; null where there is nothing of the kind. */
export function strayIn(payload: Json): string | null {
  for (const key of ['citations', 'search_results'])
    if (Array.isArray(payload[key]) && payload[key].length > 0) return key
  const searches = objectOr(payload['usage'])['num_search_queries']
  if (typeof searches === 'number' && searches > 0) return 'usage.num_search_queries'
  for (const choice of objects(payload['choices']))
    for (const { annotations } of [objectOr(choice['message']), objectOr(choice['delta'])])
      if (objects(annotations).some(({ type }) => type === 'url_citation')) return 'url_citation'
  return null
}

/** The chunk that `stream_options.include_usage` adds at the end: usage and no choice. */
export const isUsageChunk = (payload: unknown): boolean =>
  isObject(payload) &&
  isObject(payload['usage']) &&
  Array.isArray(payload['choices']) &&
  payload['choices'].length === 0

export const finishes = (payload: unknown): boolean =>
  objects(isObject(payload) ? payload['choices'] : null).some(
    ({ finish_reason: reason }) => typeof reason === 'string',
  )

/** A plain completion as the chunks of a stream: everything said, the ends, the usage. */
export function toChunks(body: Json): Json[] {
  const { choices, usage, ...head } = body
  head['object'] = 'chat.completion.chunk'
  const said = objects(choices).map(({ message, ...choice }) => {
    const calls = isObject(message) ? message['tool_calls'] : undefined
    const delta = Array.isArray(calls)
      ? {
          ...(message as Json),
          tool_calls: objects(calls).map((call, index) => ({ index, ...call })),
        }
      : message
    return { ...choice, delta, finish_reason: null }
  })
  const ends = objects(choices).map(({ index, finish_reason }) => {
    return { index, delta: {}, finish_reason: finish_reason ?? 'stop' }
  })
  return [
    { ...head, choices: said },
    { ...head, choices: ends },
    { ...head, choices: [], usage },
  ]
}

/** The chunks of a stream as one plain completion; null where they hold none. */
export function fromChunks(chunks: readonly unknown[]): Json | null {
  const body: Json = {}
  const choices = new Map<unknown, Json>()
  for (const chunk of chunks) {
    if (!isObject(chunk)) continue
    for (const [key, value] of Object.entries(chunk))
      if (key !== 'choices' && value !== null) body[key] = value
    for (const { delta, index = 0, ...rest } of objects(chunk['choices'])) {
      const choice = choices.get(index) ?? { index, message: { role: 'assistant', content: null } }
      choices.set(index, choice)
      if (isObject(delta)) mergeDelta(choice['message'] as Json, delta)
      mergeDelta(choice, rest)
    }
  }
  if (choices.size === 0) return null
  for (const { message } of choices.values())
    for (const call of objects(isObject(message) ? message['tool_calls'] : null))
      delete call['index']
  const { usage, ...head } = body
  return { ...head, object: 'chat.completion', choices: [...choices.values()], usage }
}

/** Fields that name something and aren't continued, though some providers repeat them in every chunk. */
const names = new Set(['id', 'type', 'role', 'name', 'index', 'finish_reason'])

/** Text is continued, numbered lists are merged by their `index`, other lists grow, objects are merged. */
function mergeDelta(into: Json, delta: Json): void {
  for (const [key, value] of Object.entries(delta)) {
    if (value === null || value === undefined) continue
    const old = into[key]
    if (typeof value === 'string' && typeof old === 'string' && !names.has(key))
      into[key] = old + value
    else if (Array.isArray(value)) into[key] = mergeList(Array.isArray(old) ? old : [], value)
    else if (isObject(value)) {
      const merged: Json = isObject(old) ? old : {}
      mergeDelta(merged, value)
      into[key] = merged
    } else if (value !== '' || old === undefined || old === null) into[key] = value
  }
}

function mergeList(into: unknown[], delta: readonly unknown[]): unknown[] {
  for (const value of delta) {
    const index = isObject(value) ? value['index'] : undefined
    const old =
      index === undefined ? undefined : objects(into).find((one) => one['index'] === index)
    if (old !== undefined && isObject(value)) mergeDelta(old, value)
    else if (isObject(value)) {
      const copy: Json = {}
      mergeDelta(copy, value)
      into.push(copy)
    } else into.push(value)
  }
  return into
}
