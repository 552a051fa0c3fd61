/**
 * The nested parts of a model request: messages and their content, tools and how they are called. Tools may only be
 * ones that the sandbox runs itself (`function`, `custom`); images and files must be inside the request (`data:`),
 * since whatever a provider fetches for an agent is a way out of the sandbox.
 */
import type { Reason } from './decision.ts'
import { each, isObject, kindOf, strangeKey, type Check, type Refusal } from './model-check.ts'

const no = (reason: Reason, rule: string, words: string): Refusal => ({
  reason,
  rule,
  message: `${rule} ${words}`,
})

const inlineImage = /^data:image\/(?:png|jpe?g|gif|webp);base64,/i
const inlineFile = /^data:[a-z0-9.+-]+\/[a-z0-9.+-]+;base64,/i
/** Searches for a character that isn't base64: linear, where a match of the whole would go back and forth. */
const notBase64 = /[^A-Za-z0-9+/=]/

const partKeys: ReadonlyMap<string, ReadonlySet<string>> = new Map([
  ['text', new Set(['type', 'text', 'cache_control'])],
  ['refusal', new Set(['type', 'refusal'])],
  ['image_url', new Set(['type', 'image_url', 'cache_control'])],
  ['input_audio', new Set(['type', 'input_audio'])],
  ['file', new Set(['type', 'file', 'cache_control'])],
])

const imageKeys = new Set(['url', 'detail', 'format'])
const audioKeys = new Set(['data', 'format'])
const fileKeys = new Set(['file_data', 'filename', 'format'])

const checkPart: Check = (part, at) => {
  if (!isObject(part)) return no('body_invalid', at, `must be an object, not ${kindOf(part)}`)
  const type = part['type']
  const keys = typeof type === 'string' ? partKeys.get(type) : undefined
  if (keys === undefined)
    return no('body_field_denied', `${at}.type`, `${quote(type)} is not a known kind of content`)
  const strange = strangeKey(part, keys)
  if (strange !== undefined)
    return no('body_field_denied', `${at}.${strange}`, 'is not among the fields that are passed on')
  if (type === 'image_url') return checkImage(part['image_url'], `${at}.image_url`)
  if (type === 'input_audio') return checkAudio(part['input_audio'], `${at}.input_audio`)
  if (type === 'file') return checkFile(part['file'], `${at}.file`)
  return null
}

const checkImage: Check = (value, at) => {
  if (isObject(value)) {
    const strange = strangeKey(value, imageKeys)
    if (strange !== undefined)
      return no(
        'body_field_denied',
        `${at}.${strange}`,
        'is not among the fields that are passed on',
      )
  }
  const url = isObject(value) ? value['url'] : value
  return typeof url === 'string' && inlineImage.test(url)
    ? null
    : no(
        'remote_url_denied',
        at,
        'must be a data: URL that holds a png, jpeg, gif or webp in base64',
      )
}

const checkAudio: Check = (value, at) => {
  if (!isObject(value)) return no('body_invalid', at, `must be an object, not ${kindOf(value)}`)
  const strange = strangeKey(value, audioKeys)
  if (strange !== undefined)
    return no('body_field_denied', `${at}.${strange}`, 'is not among the fields that are passed on')
  const data = value['data']
  return typeof data === 'string' && !notBase64.test(data)
    ? null
    : no('remote_url_denied', `${at}.data`, 'must be base64')
}

const checkFile: Check = (value, at) => {
  if (!isObject(value)) return no('body_invalid', at, `must be an object, not ${kindOf(value)}`)
  const strange = strangeKey(value, fileKeys)
  if (strange !== undefined)
    return no(
      'body_field_denied',
      `${at}.${strange}`,
      'refers to what the provider keeps; only file_data may be sent',
    )
  const data = value['file_data']
  return typeof data === 'string' && (inlineFile.test(data) || !notBase64.test(data))
    ? null
    : no('remote_url_denied', `${at}.file_data`, 'must be a data: URL or base64')
}

const roles = new Set(['system', 'developer', 'user', 'assistant', 'tool', 'function'])

/** Besides the protocol's own fields, what clients send back of a reasoning model's earlier answers. */
const messageKeys = new Set([
  'role',
  'content',
  'name',
  'refusal',
  'tool_calls',
  'tool_call_id',
  'function_call',
  'cache_control',
  'reasoning',
  'reasoning_content',
  'reasoning_details',
  'thinking_blocks',
  'provider_specific_fields',
])

const checkMessage: Check = (message, at) => {
  if (!isObject(message)) return no('body_invalid', at, `must be an object, not ${kindOf(message)}`)
  const role = message['role']
  if (typeof role !== 'string' || !roles.has(role))
    return no('body_invalid', `${at}.role`, `${quote(role)} is not a role`)
  const strange = strangeKey(message, messageKeys)
  if (strange !== undefined)
    return no('body_field_denied', `${at}.${strange}`, 'is not among the fields that are passed on')
  const content = message['content']
  if (Array.isArray(content)) {
    const refusal = each(checkPart)(content, `${at}.content`)
    if (refusal !== null) return refusal
  } else if (typeof content !== 'string' && content !== null && content !== undefined)
    return no('body_invalid', `${at}.content`, 'must be text or an array of parts')
  const calls = message['tool_calls']
  return calls === undefined || calls === null ? null : each(checkCall)(calls, `${at}.tool_calls`)
}

const checkCall: Check = (call, at) => {
  if (!isObject(call)) return no('body_invalid', at, `must be an object, not ${kindOf(call)}`)
  const type = call['type']
  return type === 'function' || type === 'custom' || type === undefined || type === null
    ? null
    : no('tool_denied', `${at}.type`, `${quote(type)} is not function or custom`)
}

export const checkMessages: Check = (messages, at) =>
  Array.isArray(messages) && messages.length > 0
    ? each(checkMessage)(messages, at)
    : no('body_invalid', at, 'must be an array with at least one message')

/** Providers give names outside this grammar (`$web_search`, `openrouter:web_search`) to tools of their own. */
const toolName = /^[A-Za-z0-9_.-]{1,128}$/

const toolKeys = new Set(['type', 'function', 'custom', 'cache_control'])
const functionKeys = new Set(['name', 'description', 'parameters', 'strict', 'cache_control'])
const customKeys = new Set(['name', 'description', 'format'])

const checkTool: Check = (tool, at) => {
  if (!isObject(tool)) return no('tool_denied', at, `must be an object, not ${kindOf(tool)}`)
  const type = tool['type']
  if (type !== 'function' && type !== 'custom')
    return no(
      'tool_denied',
      `${at}.type`,
      `${quote(type)} would run at the provider; only function and custom tools may be offered`,
    )
  const strange = strangeKey(tool, toolKeys)
  if (strange !== undefined) return no('tool_denied', `${at}.${strange}`, 'is not part of a tool')
  return checkDefinition(type === 'function' ? functionKeys : customKeys)(
    tool[type],
    `${at}.${type}`,
  )
}

function checkDefinition(keys: ReadonlySet<string>): Check {
  return (value, at) => {
    if (!isObject(value)) return no('tool_denied', at, `must be an object, not ${kindOf(value)}`)
    const strange = strangeKey(value, keys)
    if (strange !== undefined) return no('tool_denied', `${at}.${strange}`, 'is not part of a tool')
    const name = value['name']
    return typeof name === 'string' && toolName.test(name)
      ? null
      : no('tool_denied', `${at}.name`, `${quote(name)} is not a name for a tool of the sandbox`)
  }
}

export const checkTools: Check = each(checkTool)

/** The older form of `tools`. */
export const checkFunctions: Check = each(checkDefinition(functionKeys))

const choiceTypes = new Set(['function', 'custom', 'allowed_tools'])

export const checkToolChoice: Check = (choice, at) => {
  if (typeof choice === 'string') return null
  if (!isObject(choice)) return no('body_invalid', at, `must be text or an object`)
  const type = choice['type']
  if (typeof type !== 'string' || !choiceTypes.has(type))
    return no(
      'tool_denied',
      `${at}.type`,
      `${quote(type)} is not function, custom or allowed_tools`,
    )
  const allowed = choice['allowed_tools']
  const tools = isObject(allowed) ? allowed['tools'] : choice['tools']
  return tools === undefined ? null : each(checkCall)(tools, `${at}.tools`)
}

const formats = new Set(['text', 'json_object', 'json_schema'])

export const checkResponseFormat: Check = (value, at) =>
  isObject(value) && typeof value['type'] === 'string' && formats.has(value['type'])
    ? null
    : no('body_field_denied', at, 'must be of type text, json_object or json_schema')

const quote = (value: unknown): string =>
  typeof value === 'string' ? JSON.stringify(value.slice(0, 60)) : kindOf(value)
