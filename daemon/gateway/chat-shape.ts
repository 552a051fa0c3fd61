/**
 * The shapes of a chat completion: what it used, what it said, and its two forms, plain and streamed, made from each
 * other. A completion is good when it has at least one choice with a message; anything else is the provider's fault.
 */
import { isObject } from '../../policy/model-check.ts'
import type { Tokens } from '../protocol/model-cost.ts'

type Json = Record<string, unknown>

const objects = (value: unknown): Json[] => (Array.isArray(value) ? value.filter(isObject) : [])
const count = (value: unknown): number | null =>
  typeof value === 'number' && Number.isSafeInteger(value) && value >= 0 ? value : null

/**
 * Tokens of one call from its `usage`; null where it is missing or makes no sense, which is never read as zero. Some
 * providers (xAI) leave reasoning out of `completion_tokens` though they bill it as output; their total tells.
 */
export function tokensOf(usage: unknown): Tokens | null {
  if (!isObject(usage)) return null
  const input = count(usage['prompt_tokens'])
  const output = count(usage['completion_tokens'])
  if (input === null || output === null) return null
  const inputDetails = isObject(usage['prompt_tokens_details'])
    ? usage['prompt_tokens_details']
    : {}
  const outputDetails = isObject(usage['completion_tokens_details'])
    ? usage['completion_tokens_details']
    : {}
  const cached = count(inputDetails['cached_tokens'] ?? usage['prompt_cache_hit_tokens'] ?? 0)
  const reasoning = count(outputDetails['reasoning_tokens'] ?? 0)
  if (cached === null || cached > input || reasoning === null) return null
  const apart = reasoning > 0 && usage['total_tokens'] === input + output + reasoning
  return {
    inputTokens: input,
    cachedInputTokens: cached,
    outputTokens: apart ? output + reasoning : output,
    reasoningTokens: reasoning,
  }
}

export function isCompletion(body: unknown): body is Json {
  if (!isObject(body) || !Array.isArray(body['choices']) || body['choices'].length === 0)
    return false
  return body['choices'].every((choice) => isObject(choice) && isObject(choice['message']))
}

/** What the assistant said and which commands it asked for, cut for the event stream. */
export function sayingsOf(body: unknown): { text: string; commands: string[] } {
  const text: string[] = []
  const commands: string[] = []
  for (const choice of objects(isObject(body) ? body['choices'] : null)) {
    const message = isObject(choice['message']) ? choice['message'] : {}
    const content = message['content']
    if (typeof content === 'string') text.push(content)
    for (const part of objects(content))
      if (typeof part['text'] === 'string') text.push(part['text'])
    for (const call of objects(message['tool_calls'])) commands.push(commandOf(call))
  }
  return {
    text: text.join('\n').slice(0, 2000),
    commands: commands.slice(0, 64).map((command) => command.slice(0, 2000)),
  }
}

function commandOf(call: Json): string {
  const inner = isObject(call['function']) ? call['function'] : call['custom']
  if (!isObject(inner)) return 'unknown'
  const given = inner['arguments'] ?? inner['input'] ?? ''
  const input = typeof given === 'string' ? given : JSON.stringify(given)
  try {
    const parsed: unknown = JSON.parse(input)
    if (isObject(parsed) && typeof parsed['command'] === 'string') return parsed['command']
  } catch {
    // Not JSON: models do that; shown as it is.
  }
  return `${typeof inner['name'] === 'string' ? inner['name'] : 'unknown'} ${input}`
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
