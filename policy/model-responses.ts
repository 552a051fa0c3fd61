/**
 * What a sandbox may ask of OpenAI's Responses API: as of chat completions, and with the conversation sent whole each
 * time. This API would rather keep it at the provider, so stored responses, conversations, prompts, files, containers
 * and background work are refused; where `store` is absent the gateway sends false, since true is the default.
 */
import type { ModelRequestDecision, ModelSpec } from './model-request.ts'
import { decideFields } from './model-request.ts'
import { checkResponseFormat, checkToolChoice } from './model-content.ts'
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
  shaped,
  text,
  textOr,
  type Check,
} from './model-check.ts'
import { base64, fileData, imageUrl, serviceTier, toolName } from './model-inline.ts'

/** Citations name what a tool of the provider found, and there is none. */
const noCitations: Check = (value, at) =>
  Array.isArray(value) && value.length === 0
    ? null
    : no('body_field_denied', at, 'must be an empty array')

const checkPart = oneOf(
  new Map<string, Check>([
    ['input_text', shaped(fieldsOf({ type: text, text }))],
    ['input_image', shaped(fieldsOf({ type: text, image_url: imageUrl, detail: scalar }))],
    [
      'input_file',
      shaped(fieldsOf({ type: text, file_data: fileData, filename: scalar, detail: scalar })),
    ],
    [
      'input_audio',
      shaped(
        fieldsOf({
          type: text,
          input_audio: shaped(fieldsOf({ data: base64, format: scalar })),
        }),
      ),
    ],
    [
      'output_text',
      shaped(fieldsOf({ type: text, text, annotations: noCitations, logprobs: anything })),
    ],
    ['refusal', shaped(fieldsOf({ type: text, refusal: text }))],
  ]),
  (type, at) => no('body_field_denied', at, `${quote(type)} is not a known kind of content`),
)

/** A call that the model made itself; one made by a program ran at the provider. */
const caller = shaped(fieldsOf({ type: only(['direct'], 'may only be "direct"') }), 'tool_denied')
const call = { type: text, id: scalar, call_id: scalar, status: scalar, caller }

const checkMessage: Check = (item, at) => {
  const role = isObject(item) ? item['role'] : undefined
  return role === 'user' || role === 'assistant' || role === 'system' || role === 'developer'
    ? message(item, at)
    : no('body_invalid', `${at}.role`, `${quote(role)} is not a role`)
}
const message = shaped(
  fieldsOf({
    type: text,
    role: text,
    content: textOr(checkPart),
    id: scalar,
    status: scalar,
    phase: scalar,
  }),
)

const said = each(shaped(fieldsOf({ type: text, text })))

/** What a conversation is made of where only the sandbox runs tools. */
const checkKnownItem = oneOf(
  new Map<string, Check>([
    ['message', checkMessage],
    [
      'reasoning',
      shaped(
        fieldsOf({
          type: text,
          id: scalar,
          summary: said,
          content: said,
          encrypted_content: scalar,
          status: scalar,
        }),
      ),
    ],
    ['function_call', shaped(fieldsOf({ ...call, name: text, arguments: text }))],
    [
      'function_call_output',
      shaped(fieldsOf({ ...call, name: scalar, output: textOr(checkPart) })),
    ],
    ['custom_tool_call', shaped(fieldsOf({ ...call, name: text, input: text }))],
    ['custom_tool_call_output', shaped(fieldsOf({ ...call, output: textOr(checkPart) }))],
  ]),
  (type, at) =>
    typeof type === 'string' && /tool|call|mcp|program/.test(type)
      ? no('tool_denied', at, `${quote(type)} belongs to a tool of the provider`)
      : no('body_field_denied', at, `${quote(type)} is not a known kind of item`),
)

const checkItem: Check = (item, at) => {
  if (!isObject(item)) return no('body_invalid', at, `must be an object, not ${kindOf(item)}`)
  const type = item['type'] ?? null
  if (type === null && item['role'] !== undefined) return checkMessage(item, at)
  if (type === null || type === 'item_reference')
    return no('body_field_denied', at, 'refers to an item that the provider would have kept')
  return checkKnownItem(item, at)
}

const tool = { type: text, name: toolName, description: scalar }
/** `programmatic` lets a program at the provider call the tool. */
const callers = each(only(['direct'], 'may only be "direct"'))

const checkNamedTool = oneOf(
  new Map<string, Check>([
    [
      'function',
      shaped(
        fieldsOf({
          ...tool,
          parameters: anything,
          output_schema: anything,
          strict: boolean,
          allowed_callers: callers,
        }),
        'tool_denied',
      ),
    ],
    [
      'custom',
      shaped(fieldsOf({ ...tool, format: anything, allowed_callers: callers }), 'tool_denied'),
    ],
  ]),
  (type, at) =>
    no(
      'tool_denied',
      at,
      `${quote(type)} would run at the provider; only function and custom tools may be offered`,
    ),
)

const checkTool: Check = (one, at) => {
  if (!isObject(one)) return no('tool_denied', at, `must be an object, not ${kindOf(one)}`)
  return checkNamedTool(one, at) ?? toolName(one['name'], `${at}.name`)
}

const included = new Set([
  'reasoning.encrypted_content',
  'message.output_text.logprobs',
  'message.input_image.image_url',
])

const checkInclude: Check = each((value, at) =>
  typeof value === 'string' && included.has(value)
    ? null
    : no('tool_denied', at, `${quote(value)} is what a tool of the provider found`),
)

/** Every top-level field that is passed on. */
const fields = fieldsOf({
  model: scalar,
  input: textOr(checkItem),
  instructions: text,
  stream: boolean,
  stream_options: shaped(fieldsOf({ include_obfuscation: boolean })),
  tools: each(checkTool),
  tool_choice: checkToolChoice,
  parallel_tool_calls: boolean,
  max_tool_calls: scalar,
  include: checkInclude,
  text: shaped(fieldsOf({ format: checkResponseFormat, verbosity: scalar })),
  reasoning: shaped(
    fieldsOf({
      effort: scalar,
      summary: scalar,
      generate_summary: scalar,
      context: scalar,
      mode: only(['standard'], 'may only be "standard": others have another price'),
    }),
  ),
  store: only([false], 'would keep the conversation at the provider'),
  background: only([false], 'would go on at the provider, and its answer be fetched later'),
  truncation: only(['auto', 'disabled'], 'may only be auto or disabled'),
  service_tier: serviceTier,
  max_output_tokens: scalar,
  temperature: scalar,
  top_p: scalar,
  top_k: scalar,
  min_p: scalar,
  seed: scalar,
  stop: scalar,
  presence_penalty: scalar,
  frequency_penalty: scalar,
  repetition_penalty: scalar,
  top_logprobs: scalar,
  user: scalar,
  safety_identifier: scalar,
  prompt_cache_key: scalar,
  prompt_cache_retention: only(['in_memory'], 'may only be "in_memory"'),
  chat_template_kwargs: flat,
})

/** Judges the parsed body of one request to `/v1/responses`. */
export const decideResponsesRequest = (spec: ModelSpec, request: unknown): ModelRequestDecision =>
  decideFields(spec, request, fields, ['input'])
