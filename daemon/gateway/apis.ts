/** The APIs that the gateway speaks; a path that none of them has is refused. */
import type { IncomingHttpHeaders } from 'node:http'
import { isObject } from '../../policy/model-check.ts'
import {
  decideCountRequest,
  decideMessagesRequest,
  messagesVersions,
  type MessagesHeaders,
} from '../../policy/model-messages.ts'
import { decideModelRequest } from '../../policy/model-request.ts'
import { decideResponsesRequest } from '../../policy/model-responses.ts'
import { noTokens } from '../protocol/model-cost.ts'
import type { ModelApi } from './api.ts'
import * as chat from './chat-shape.ts'
import { count, objectOr, objects, type Json } from './json.ts'
import * as messages from './messages-shape.ts'
import * as responses from './responses-shape.ts'

const never = (): boolean => false

const assistantMessages = (list: unknown): number =>
  objects(list).filter(({ role }) => role === 'assistant').length

const wantsUsage = (body: Json): boolean =>
  objectOr(body['stream_options'])['include_usage'] === true

export const chatApi: ModelApi = {
  name: 'openai.chat',
  kind: 'openai',
  paths: new Set(['/v1/chat/completions', '/chat/completions']),
  path: '/chat/completions',
  free: false,
  named: false,
  decide: decideModelRequest,
  outgoing: (body) =>
    body['stream'] === true
      ? { ...body, stream_options: { ...objectOr(body['stream_options']), include_usage: true } }
      : body,
  headers: () => ({}),
  assistantTurns: ({ messages: list }) => assistantMessages(list),
  outputLimit: ({ max_completion_tokens: most, max_tokens: older, n }) => {
    const limit = count(most ?? older)
    return limit === null ? null : limit * (count(n) ?? 1)
  },
  hides: (payload, body) => !wantsUsage(body) && chat.isUsageChunk(payload),
  isLast: never,
  ends: chat.finishes,
  isPing: never,
  isAnswer: chat.isCompletion,
  tokensOf: ({ usage }) => chat.tokensOf(usage),
  sayingsOf: chat.sayingsOf,
  strayIn: chat.strayIn,
  toEvents: chat.toChunks,
  fromEvents: chat.fromChunks,
}

const madeByModel = new Set<unknown>(['reasoning', 'function_call', 'custom_tool_call'])

/** In a conversation of items, what the model made without an input between is one turn. */
function turnsOfItems(input: unknown): number {
  let turns = 0
  let before = false
  for (const { role, type } of objects(input)) {
    const own = role === 'assistant' || madeByModel.has(type)
    if (own && !before) turns += 1
    before = own
  }
  return turns
}

export const responsesApi: ModelApi = {
  name: 'openai.responses',
  kind: 'openai',
  paths: new Set(['/v1/responses', '/responses']),
  path: '/responses',
  free: false,
  named: true,
  decide: decideResponsesRequest,
  // Absent means true at the provider; true is refused, so this takes nothing from anyone.
  outgoing: (body) => ({ ...body, store: false }),
  headers: () => ({}),
  assistantTurns: ({ input }) => turnsOfItems(input),
  outputLimit: ({ max_output_tokens: most }) => count(most),
  hides: never,
  isLast: responses.isLast,
  ends: responses.isLast,
  isPing: never,
  isAnswer: responses.isResponse,
  tokensOf: ({ usage }) => responses.tokensOf(usage),
  sayingsOf: responses.sayingsOf,
  strayIn: responses.strayIn,
  toEvents: responses.toEvents,
  fromEvents: responses.fromEvents,
}

function headersOf(headers: IncomingHttpHeaders): MessagesHeaders {
  const { 'anthropic-version': version, 'anthropic-beta': betas = '' } = headers
  return {
    version: version === undefined ? undefined : String(version),
    betas: String(betas)
      .split(',')
      .map((beta) => beta.trim())
      .filter((beta) => beta !== ''),
  }
}

function passedHeaders(headers: IncomingHttpHeaders): Readonly<Record<string, string>> {
  const { version = messagesVersions[0], betas } = headersOf(headers)
  return {
    'anthropic-version': version,
    ...(betas.length > 0 && { 'anthropic-beta': betas.join(',') }),
  }
}

export const messagesApi: ModelApi = {
  name: 'anthropic.messages',
  kind: 'anthropic',
  paths: new Set(['/v1/messages', '/v1/messages?beta=true']),
  path: '/messages',
  free: false,
  named: true,
  decide: (spec, body, headers) => decideMessagesRequest(spec, body, headersOf(headers)),
  outgoing: (body) => body,
  headers: passedHeaders,
  assistantTurns: ({ messages: list }) => assistantMessages(list),
  outputLimit: ({ max_tokens: most }) => count(most),
  hides: never,
  isLast: messages.isLast,
  ends: messages.isLast,
  isPing: messages.isPing,
  isAnswer: messages.isMessage,
  tokensOf: ({ usage }) => messages.tokensOf(usage),
  sayingsOf: messages.sayingsOf,
  strayIn: messages.strayIn,
  toEvents: messages.toEvents,
  fromEvents: messages.fromEvents,
}

export const countApi: ModelApi = {
  ...messagesApi,
  name: 'anthropic.count',
  paths: new Set(['/v1/messages/count_tokens', '/v1/messages/count_tokens?beta=true']),
  path: '/messages/count_tokens',
  free: true,
  decide: (spec, body, headers) => decideCountRequest(spec, body, headersOf(headers)),
  outputLimit: () => 0,
  isAnswer: (body): body is Json => isObject(body) && count(body['input_tokens']) !== null,
  tokensOf: () => noTokens,
  sayingsOf: () => ({ text: '', commands: [] }),
  strayIn: () => null,
  toEvents: () => [],
  fromEvents: () => null,
}

export const modelApis: readonly ModelApi[] = [chatApi, responsesApi, messagesApi, countApi]
