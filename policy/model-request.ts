/**
 * What a sandbox may ask of a model. Everything that isn't known to stay between the sandbox and the model's weights
 * is refused: tools that run at the provider, inputs that the provider would fetch, state that it would keep, fields
 * nobody here knows. Nothing is stripped: a request goes on whole or not at all. The caller sends on what it parsed,
 * never the bytes that it read, so that two readers of one body can't differ.
 */
import { allow, deny, type Decision, type Reason } from './decision.ts'
import {
  checkMessages,
  checkResponseFormat,
  checkTools,
  checkFunctions,
  checkToolChoice,
} from './model-content.ts'
import { isObject, kindOf, type Check, type Refusal } from './model-check.ts'

/** A decision with its reason in words; `rule` names the part of the request, e.g. `tools[0].type`. */
export type ModelRequestDecision = Decision & { readonly message: string }

const refuse = ({ reason, rule, message }: Refusal): ModelRequestDecision => ({
  ...deny(reason, rule),
  message,
})

const refusal =
  (reason: Reason) =>
  (at: string, words: string): Refusal => ({ reason, rule: at, message: `${at} ${words}` })

const body = refusal('body_invalid')
const field = refusal('body_field_denied')

const scalar: Check = (value, at) =>
  typeof value === 'object' ? body(at, `must be a plain value, not ${kindOf(value)}`) : null

const boolean: Check = (value, at) =>
  typeof value === 'boolean' ? null : body(at, `must be a boolean, not ${kindOf(value)}`)

const scalars: Check = (value, at) => {
  if (Array.isArray(value))
    return value.some((one) => typeof one === 'object') ? body(at, 'must hold plain values') : null
  return scalar(value, at)
}

const flat: Check = (value, at) => {
  if (!isObject(value)) return body(at, `must be an object, not ${kindOf(value)}`)
  for (const [key, one] of Object.entries(value))
    if (typeof one === 'object' && one !== null)
      return body(`${at}.${key}`, 'must be a plain value')
  return null
}

const flatOrScalar: Check = (value, at) => (isObject(value) ? flat(value, at) : scalar(value, at))

const only =
  (allowed: readonly unknown[], why: string): Check =>
  (value, at) =>
    allowed.includes(value) ? null : field(at, why)

const streamOptions: Check = (value, at) => {
  if (!isObject(value)) return body(at, `must be an object, not ${kindOf(value)}`)
  for (const [key, one] of Object.entries(value)) {
    if (key !== 'include_usage' && key !== 'include_obfuscation')
      return field(`${at}.${key}`, 'is not a known option')
    if (typeof one !== 'boolean') return body(`${at}.${key}`, 'must be a boolean')
  }
  return null
}

const textOnly: Check = (value, at) =>
  Array.isArray(value) && value.every((one) => one === 'text')
    ? null
    : field(at, 'may only be ["text"]')

/** Every top-level field that is passed on. A null is as good as an absent field. */
const fields: ReadonlyMap<string, Check> = new Map<string, Check>([
  ['model', scalar],
  ['messages', checkMessages],
  ['stream', boolean],
  ['stream_options', streamOptions],
  ['tools', checkTools],
  ['tool_choice', checkToolChoice],
  ['parallel_tool_calls', boolean],
  ['functions', checkFunctions],
  ['function_call', flatOrScalar],
  ['response_format', checkResponseFormat],
  ['store', only([false], 'would keep the conversation at the provider')],
  ['modalities', textOnly],
  ['n', scalar],
  ['temperature', scalar],
  ['top_p', scalar],
  ['top_k', scalar],
  ['min_p', scalar],
  ['max_tokens', scalar],
  ['max_completion_tokens', scalar],
  ['min_tokens', scalar],
  ['stop', scalars],
  ['stop_token_ids', scalars],
  ['seed', scalar],
  ['presence_penalty', scalar],
  ['frequency_penalty', scalar],
  ['repetition_penalty', scalar],
  ['logit_bias', flat],
  ['logprobs', scalar],
  ['top_logprobs', scalar],
  ['user', scalar],
  ['prompt_cache_key', scalar],
  ['verbosity', scalar],
  ['reasoning_effort', scalar],
  ['reasoning', flat],
  ['include_reasoning', boolean],
  ['separate_reasoning', boolean],
  ['thinking', flat],
  ['enable_thinking', boolean],
  ['thinking_budget', scalar],
  ['chat_template_kwargs', flat],
])

/** Judges the parsed body of one chat completions request against the one model that is passed on. */
export function decideModelRequest(
  spec: { readonly model: string },
  request: unknown,
): ModelRequestDecision {
  if (!isObject(request))
    return refuse({
      reason: 'body_invalid',
      rule: 'body',
      message: `the body must be a JSON object, not ${kindOf(request)}`,
    })
  for (const [key, value] of Object.entries(request)) {
    const check = fields.get(key)
    if (check === undefined)
      return refuse(field(key.slice(0, 100), 'is not among the fields that are passed on'))
    const refusal = value === null ? null : check(value, key)
    if (refusal !== null) return refuse(refusal)
  }
  if (request['model'] !== spec.model)
    return refuse({
      reason: 'model_denied',
      rule: 'model',
      message: `only the model ${JSON.stringify(spec.model)} may be asked`,
    })
  if (request['messages'] === undefined || request['messages'] === null)
    return refuse(body('messages', 'is missing'))
  return { ...allow('allowed_gateway', 'model'), message: 'allowed' }
}

/**
 * True for model names under which a provider answers from a search of the web. Such a model can't be closed-book
 * however its requests look, so no gateway is opened for it.
 */
export function isSearchGrounded(model: string): boolean {
  const name = model.toLowerCase()
  return (
    name.endsWith(':online') ||
    /(^|[-/:_.])(search|deep-?research|sonar|grounded|browsing)([-/:_.]|$)/.test(name)
  )
}
