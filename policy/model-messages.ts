/**
 * What a sandbox may ask of Anthropic's Messages API and its token counter. Tools are custom ones and the two typed
 * ones that clients run themselves (bash, text editor). Whatever names a file, a container, a skill, an MCP server or
 * a URL is refused, and so is each beta that nobody here knows to stay between the sandbox and the model.
 */
import { decideFields, refuse, type ModelRequestDecision, type ModelSpec } from './model-request.ts'
import {
  anything,
  boolean,
  each,
  fieldsOf,
  flat,
  isObject,
  kindOf,
  no,
  oneOf,
  only,
  quote,
  scalar,
  scalars,
  shaped,
  text,
  textOr,
  type Check,
  type Refusal,
} from './model-check.ts'
import { base64, cacheControl, serviceTier, toolName } from './model-inline.ts'

/** What of a request is not in its body. */
export interface MessagesHeaders {
  /** `anthropic-version`; undefined where the sandbox sent none. */
  readonly version: string | undefined
  /** `anthropic-beta`, its names apart. */
  readonly betas: readonly string[]
}

/** Both speak in the same shapes; the later one takes fewer requests. The first is sent where the sandbox names none. */
export const messagesVersions = ['2023-06-01', '2026-10-21'] as const

const base64Source = (media: RegExp): Check =>
  shaped(
    fieldsOf({
      type: text,
      media_type: (value, at) =>
        typeof value === 'string' && media.test(value)
          ? null
          : no('body_field_denied', at, `${quote(value)} is not a type that is passed on`),
      data: base64,
    }),
  )

const elsewhere = (type: unknown, at: string): Refusal =>
  no('remote_url_denied', at, `${quote(type)} lies elsewhere; send the data itself, as "base64"`)

const imageSource = oneOf(
  new Map([['base64', base64Source(/^image\/(?:png|jpe?g|gif|webp)$/)]]),
  elsewhere,
)

const citations: Check = each(
  oneOf(
    new Map(
      ['char_location', 'page_location', 'content_block_location'].map((type) => [type, flat]),
    ),
    (type, at) => no('tool_denied', at, `${quote(type)} is what a tool of the provider found`),
  ),
)

const mark = { type: text, cache_control: cacheControl }
const textBlock = shaped(fieldsOf({ ...mark, text, citations }))
const imageBlock = shaped(fieldsOf({ ...mark, source: imageSource }))

const documentSource = oneOf(
  new Map<string, Check>([
    ['base64', base64Source(/^application\/pdf$/)],
    ['text', shaped(fieldsOf({ type: text, media_type: text, data: text }))],
    [
      'content',
      shaped(
        fieldsOf({
          type: text,
          content: textOr(
            oneOf(
              new Map([
                ['text', textBlock],
                ['image', imageBlock],
              ]),
              (type, at) => unknownBlock(type, at),
            ),
          ),
        }),
      ),
    ],
  ]),
  elsewhere,
)

const documentBlock = shaped(
  fieldsOf({
    ...mark,
    source: documentSource,
    title: scalar,
    context: scalar,
    citations: shaped(fieldsOf({ enabled: boolean })),
  }),
)

const unknownBlock = (type: unknown, at: string): Refusal =>
  typeof type === 'string' && /tool|mcp|execution/.test(type)
    ? no('tool_denied', at, `${quote(type)} belongs to a tool of the provider`)
    : no('body_field_denied', at, `${quote(type)} is not a known kind of content`)

const given = [
  ['text', textBlock],
  ['image', imageBlock],
  ['document', documentBlock],
] as const

/** A call that the model made itself; others were made by a program at the provider. */
const caller = shaped(fieldsOf({ type: only(['direct'], 'may only be "direct"') }), 'tool_denied')

const checkBlock = oneOf(
  new Map<string, Check>([
    ...given,
    ['thinking', shaped(fieldsOf({ type: text, thinking: text, signature: text }))],
    ['redacted_thinking', shaped(fieldsOf({ type: text, data: text }))],
    ['tool_use', shaped(fieldsOf({ ...mark, id: text, name: text, input: anything, caller }))],
    [
      'tool_result',
      shaped(
        fieldsOf({
          ...mark,
          tool_use_id: text,
          is_error: boolean,
          content: textOr(oneOf(new Map<string, Check>(given), unknownBlock)),
        }),
      ),
    ],
  ]),
  unknownBlock,
)

const checkMessage: Check = (one, at) => {
  const role = isObject(one) ? one['role'] : undefined
  return role === 'user' || role === 'assistant' || role === 'system'
    ? message(one, at)
    : no('body_invalid', `${at}.role`, `${quote(role)} is not a role`)
}
const message = shaped(fieldsOf({ role: text, content: textOr(checkBlock) }))

const checkMessages: Check = (value, at) =>
  Array.isArray(value) && value.length > 0
    ? each(checkMessage)(value, at)
    : no('body_invalid', at, 'must be an array with at least one message')

/** Tools with a schema of the provider's that a client runs itself, in the sandbox. */
const clientTool = /^(?:bash|text_editor)_20\d{6}$/

const toolFields = {
  type: text,
  name: toolName,
  cache_control: cacheControl,
  strict: boolean,
  input_examples: anything,
  /** The others let a program at the provider call the tool. */
  allowed_callers: each(only(['direct'], 'may only be "direct"')),
}
const customTool = shaped(
  fieldsOf({
    ...toolFields,
    description: scalar,
    input_schema: anything,
    eager_input_streaming: boolean,
  }),
  'tool_denied',
)
const typedTool = shaped(fieldsOf({ ...toolFields, max_characters: scalar }), 'tool_denied')

const checkTool: Check = (tool, at) => {
  if (!isObject(tool)) return no('tool_denied', at, `must be an object, not ${kindOf(tool)}`)
  const type = tool['type'] ?? 'custom'
  const named = toolName(tool['name'], `${at}.name`)
  if (type === 'custom') return customTool(tool, at) ?? named
  if (typeof type === 'string' && clientTool.test(type)) return typedTool(tool, at) ?? named
  return no(
    'tool_denied',
    `${at}.type`,
    `${quote(type)} would run at the provider; only custom, bash and text editor tools may be offered`,
  )
}

const choices = new Set(['auto', 'any', 'tool', 'none'])

const checkToolChoice: Check = (value, at) => {
  const type = isObject(value) ? value['type'] : value
  if (typeof type !== 'string' || !choices.has(type))
    return no('tool_denied', `${at}.type`, `${quote(type)} is not auto, any, tool or none`)
  return choice(value, at)
}
const choice = shaped(
  fieldsOf({ type: text, name: toolName, disable_parallel_tool_use: boolean }),
  'tool_denied',
)

const standardSpeed = only(['standard'], 'may only be "standard": others have another price')

/** Fields that say what is read; the token counter takes these alone. */
const asked = {
  model: scalar,
  messages: checkMessages,
  system: textOr(oneOf(new Map([['text', textBlock]]), unknownBlock)),
  tools: each(checkTool),
  tool_choice: checkToolChoice,
  thinking: flat,
  output_config: shaped(
    fieldsOf({ effort: scalar, format: shaped(fieldsOf({ type: text, schema: anything })) }),
  ),
  cache_control: cacheControl,
  speed: standardSpeed,
}

const countFields = fieldsOf(asked)
const fields = fieldsOf({
  ...asked,
  max_tokens: scalar,
  stream: boolean,
  stop_sequences: scalars,
  temperature: scalar,
  top_p: scalar,
  top_k: scalar,
  service_tier: serviceTier,
  /** An opaque name of the user, for the provider's protection against abuse. */
  metadata: shaped(fieldsOf({ user_id: scalar })),
})

/** Betas that change how a model speaks and nothing of what is reached, kept or paid. */
const knownBetas = new Set([
  'claude-code-20250219',
  'dev-full-thinking-2025-05-14',
  'effort-2025-11-24',
  'extended-cache-ttl-2025-04-11',
  'fine-grained-tool-streaming-2025-05-14',
  'interleaved-thinking-2025-05-14',
  'model-context-window-exceeded-2025-08-26',
  'output-128k-2025-02-19',
  'pdfs-2024-09-25',
  'prompt-caching-2024-07-31',
  'structured-outputs-2025-11-13',
  'token-counting-2024-11-01',
  'token-efficient-tools-2025-02-19',
])

function decideHeaders({ version, betas }: MessagesHeaders): Refusal | null {
  if (version !== undefined && !messagesVersions.some((known) => known === version))
    return no('body_invalid', 'anthropic-version', `may only be ${messagesVersions.join(' or ')}`)
  const strange = betas.find((beta) => !knownBetas.has(beta))
  return strange === undefined
    ? null
    : no(
        'body_field_denied',
        'anthropic-beta',
        `${quote(strange)} is not among the betas that are passed on`,
      )
}

/** Judges the parsed body and the headers of one request to `/v1/messages`. */
export function decideMessagesRequest(
  spec: ModelSpec,
  request: unknown,
  headers: MessagesHeaders,
): ModelRequestDecision {
  const refusal = decideHeaders(headers)
  return refusal === null
    ? decideFields(spec, request, fields, ['messages', 'max_tokens'])
    : refuse(refusal)
}

/** Judges one request to `/v1/messages/count_tokens`. */
export function decideCountRequest(
  spec: ModelSpec,
  request: unknown,
  headers: MessagesHeaders,
): ModelRequestDecision {
  const refusal = decideHeaders(headers)
  return refusal === null ? decideFields(spec, request, countFields, ['messages']) : refuse(refusal)
}
