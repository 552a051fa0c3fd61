/**
 * The nested parts of a model request: messages and their content, tools and how they are called. Tools may only be
 * ones that the sandbox runs itself (`function`, `custom`); images and files must be inside the request (`data:`),
 * since whatever a provider fetches for an agent is a way out of the sandbox.
 */
import {
  each,
  isObject,
  kindOf,
  no,
  quote,
  strangeKey,
  unknownField,
  type Check,
} from './model-check.ts'
import { base64, cacheControl, fileData, imageUrl, toolName } from './model-inline.ts'

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
  if (strange !== undefined) return unknownField(at, strange, 'body_field_denied')
  if (type === 'image_url') return checkImage(part['image_url'], `${at}.image_url`)
  if (type === 'input_audio') return checkAudio(part['input_audio'], `${at}.input_audio`)
  if (type === 'file') return checkFile(part['file'], `${at}.file`)
  return checkMark(part, at)
}

/** Its mark for the provider's cache, if it has one. */
const checkMark = (object: Record<string, unknown>, at: string) => {
  const mark = object['cache_control']
  return mark === undefined || mark === null ? null : cacheControl(mark, `${at}.cache_control`)
}

const checkImage: Check = (value, at) => {
  if (isObject(value)) {
    const strange = strangeKey(value, imageKeys)
    if (strange !== undefined) return unknownField(at, strange, 'body_field_denied')
  }
  return imageUrl(isObject(value) ? value['url'] : value, at)
}

const checkAudio: Check = (value, at) => {
  if (!isObject(value)) return no('body_invalid', at, `must be an object, not ${kindOf(value)}`)
  const strange = strangeKey(value, audioKeys)
  if (strange !== undefined) return unknownField(at, strange, 'body_field_denied')
  return base64(value['data'], `${at}.data`)
}

const checkFile: Check = (value, at) => {
  if (!isObject(value)) return no('body_invalid', at, `must be an object, not ${kindOf(value)}`)
  const strange = strangeKey(value, fileKeys)
  if (strange !== undefined) return unknownField(at, strange, 'body_field_denied')
  return fileData(value['file_data'], `${at}.file_data`)
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
  if (strange !== undefined) return unknownField(at, strange, 'body_field_denied')
  const unmarked = checkMark(message, at)
  if (unmarked !== null) return unmarked
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
  if (strange !== undefined) return unknownField(at, strange, 'tool_denied')
  const define = checkDefinition(type === 'function' ? functionKeys : customKeys)
  return checkMark(tool, at) ?? define(tool[type], `${at}.${type}`)
}

function checkDefinition(keys: ReadonlySet<string>): Check {
  return (value, at) => {
    if (!isObject(value)) return no('tool_denied', at, `must be an object, not ${kindOf(value)}`)
    const strange = strangeKey(value, keys)
    if (strange !== undefined) return unknownField(at, strange, 'tool_denied')
    return checkMark(value, at) ?? toolName(value['name'], `${at}.name`)
  }
}

export const checkTools: Check = each(checkTool)

/** The older form of `tools`. */
export const checkFunctions: Check = each(checkDefinition(functionKeys))

const choiceTypes = new Set(['function', 'custom', 'allowed_tools'])

/** `any` is Mistral's word for `required`. */
const choiceWords = new Set(['auto', 'none', 'required', 'any'])

export const checkToolChoice: Check = (choice, at) => {
  if (typeof choice === 'string')
    return choiceWords.has(choice)
      ? null
      : no('tool_denied', at, `${quote(choice)} is not auto, none or required`)
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
