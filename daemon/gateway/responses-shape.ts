/**
 * The shapes of OpenAI's Responses API: what an answer used, what it said, and its two forms, plain and streamed, made
 * from each other. The stream's last event holds the whole plain form, so that form is taken and not put together.
 */
import { isObject } from '../../policy/model-check.ts'
import type { Tokens } from '../protocol/model-cost.ts'
import { commandOf, count, objectOr, objects, sayings, type Json, type Sayings } from './json.ts'

/** Tokens of one call from its `usage`; null where it is missing or makes no sense, which is never read as zero. */
export function tokensOf(usage: unknown): Tokens | null {
  if (!isObject(usage)) return null
  const input = count(usage['input_tokens'])
  const output = count(usage['output_tokens'])
  const inputDetails = objectOr(usage['input_tokens_details'])
  const cached = count(inputDetails['cached_tokens'] ?? 0)
  const written = count(inputDetails['cache_write_tokens'] ?? 0)
  const reasoning = count(objectOr(usage['output_tokens_details'])['reasoning_tokens'] ?? 0)
  if (input === null || output === null || reasoning === null) return null
  if (cached === null || cached > input || written === null) return null
  return {
    inputTokens: input,
    cachedInputTokens: cached,
    cacheWriteInputTokens: Math.min(written, input - cached),
    outputTokens: output,
    reasoningTokens: reasoning,
  }
}

/** An answer that was cut short is one; one that failed, or isn't there yet, is not. */
export const isResponse = (body: unknown): body is Json =>
  isObject(body) &&
  Array.isArray(body['output']) &&
  (body['status'] === 'completed' ||
    body['status'] === 'incomplete' ||
    body['status'] === undefined)

/** What the model itself puts out; everything else is of a tool that ran at the provider. */
const ownItems = new Set(['message', 'reasoning', 'function_call', 'custom_tool_call'])

/** What only a tool of the provider puts into an answer, or into an event; null where there is nothing of the kind. */
export function strayIn(payload: Json): string | null {
  const response = isObject(payload['response']) ? payload['response'] : payload
  for (const { type, content } of [...objects(response['output']), ...objects([payload['item']])]) {
    if (typeof type === 'string' && !ownItems.has(type)) return type
    for (const part of objects(content))
      if (objects(part['annotations']).length > 0) return 'an annotation'
  }
  const { type } = payload
  if (typeof type !== 'string') return null
  return /_call\.|annotation|code_interpreter|mcp/.test(type) &&
    !/\.(function|custom_tool)_call/.test(type)
    ? type
    : null
}

export function sayingsOf(body: Json): Sayings {
  const text: string[] = []
  const commands: string[] = []
  for (const { content, name, arguments: given, input, type } of objects(body['output']))
    if (type === 'message') {
      for (const part of objects(content))
        if (typeof part['text'] === 'string') text.push(part['text'])
    } else if (type !== 'reasoning') commands.push(commandOf(name, given ?? input))
  return sayings(text, commands)
}

const lastTypes = new Set(['response.completed', 'response.incomplete', 'response.failed'])

export const isLast = (payload: unknown): boolean =>
  isObject(payload) && typeof payload['type'] === 'string' && lastTypes.has(payload['type'])

/** The plain form of a stream; null where it has no end. */
export function fromEvents(events: readonly unknown[]): Json | null {
  const last = events.find(isLast)
  const response = isObject(last) ? last['response'] : null
  return isResponse(response) ? response : null
}

/** A plain answer as the events of a stream: begun, each item, the end. */
export function toEvents(body: Json): Json[] {
  const begun = { ...body, status: 'in_progress', output: [], usage: null }
  const events: Json[] = [
    { type: 'response.created', response: begun },
    { type: 'response.in_progress', response: begun },
    ...objects(body['output']).flatMap(itemEvents),
    {
      type: body['status'] === 'incomplete' ? 'response.incomplete' : 'response.completed',
      response: body,
    },
  ]
  return events.map((event, sequence_number) => ({ ...event, sequence_number }))
}

function itemEvents(item: Json, output_index: number): Json[] {
  const { type, content, arguments: given, input, id: item_id } = item
  const at = { item_id, output_index }
  const events = (name: string, key: string, value: unknown): Json[] => [
    { type: `response.${name}.delta`, ...at, delta: value },
    { type: `response.${name}.done`, ...at, [key]: value },
  ]
  const started = { ...item, status: 'in_progress' }
  const [empty, inner]: [Json, Json[]] =
    type === 'message'
      ? [
          { ...started, content: [] },
          objects(content).flatMap((part, index) => partEvents(part, index, at)),
        ]
      : type === 'function_call'
        ? [{ ...started, arguments: '' }, events('function_call_arguments', 'arguments', given)]
        : type === 'custom_tool_call'
          ? [{ ...started, input: '' }, events('custom_tool_call_input', 'input', input)]
          : [started, []]
  return [
    { type: 'response.output_item.added', output_index, item: empty },
    ...inner,
    { type: 'response.output_item.done', output_index, item },
  ]
}

function partEvents(part: Json, content_index: number, item: Json): Json[] {
  const at = { ...item, content_index }
  const key = part['type'] === 'refusal' ? 'refusal' : 'text'
  const name = key === 'refusal' ? 'refusal' : 'output_text'
  const more = key === 'text' ? { logprobs: [] } : {}
  return [
    { type: 'response.content_part.added', ...at, part: { ...part, [key]: '' } },
    { type: `response.${name}.delta`, ...at, delta: part[key], ...more },
    { type: `response.${name}.done`, ...at, [key]: part[key], ...more },
    { type: 'response.content_part.done', ...at, part },
  ]
}
