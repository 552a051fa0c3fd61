/**
 * What a sandbox may ask of a model. Everything that isn't known to stay between the sandbox and the model's weights
 * is refused: tools that run at the provider, inputs that the provider would fetch, state that it would keep, fields
 * nobody here knows. Nothing is stripped: a request goes on whole or not at all. The caller sends on what it parsed,
 * never the bytes that it read, so that two readers of one body can't differ.
 */
import { deny, allow, type Decision } from './decision.ts'
import {
  checkFunctions,
  checkMessages,
  checkResponseFormat,
  checkToolChoice,
  checkTools,
} from './model-content.ts'
import {
  boolean,
  fieldsOf,
  flat,
  flatOrScalar,
  isObject,
  kindOf,
  no,
  only,
  scalar,
  scalars,
  type Check,
  type Fields,
  type Refusal,
} from './model-check.ts'
import { canonicalJson } from './hash.ts'
import { serviceTier } from './model-inline.ts'

/** A decision with its reason in words; `rule` names the part of the request, e.g. `tools[0].type`. */
export type ModelRequestDecision = Decision & { readonly message: string }

/** The one model of a lease, and the parameters that a request may repeat but not change. */
export interface ModelSpec {
  readonly model: string
  readonly parameters?: Readonly<Record<string, unknown>>
}

export const refuse = ({ reason, rule, message }: Refusal): ModelRequestDecision => ({
  ...deny(reason, rule),
  message,
})

const streamOptions: Check = (value, at) => {
  if (!isObject(value)) return no('body_invalid', at, `must be an object, not ${kindOf(value)}`)
  for (const [key, one] of Object.entries(value)) {
    if (key !== 'include_usage' && key !== 'include_obfuscation')
      return no('body_field_denied', `${at}.${key.slice(0, 100)}`, 'is not a known option')
    if (typeof one !== 'boolean') return no('body_invalid', `${at}.${key}`, 'must be a boolean')
  }
  return null
}

const textOnly: Check = (value, at) =>
  Array.isArray(value) && value.every((one) => one === 'text')
    ? null
    : no('body_field_denied', at, 'may only be ["text"]')

/** Every top-level field of a chat completions request that is passed on. A null is as good as an absent field. */
const fields = fieldsOf({
  model: scalar,
  messages: checkMessages,
  stream: boolean,
  stream_options: streamOptions,
  tools: checkTools,
  tool_choice: checkToolChoice,
  parallel_tool_calls: boolean,
  functions: checkFunctions,
  function_call: flatOrScalar,
  response_format: checkResponseFormat,
  store: only([false], 'would keep the conversation at the provider'),
  modalities: textOnly,
  n: scalar,
  temperature: scalar,
  top_p: scalar,
  top_k: scalar,
  min_p: scalar,
  max_tokens: scalar,
  max_completion_tokens: scalar,
  min_tokens: scalar,
  stop: scalars,
  stop_token_ids: scalars,
  seed: scalar,
  presence_penalty: scalar,
  frequency_penalty: scalar,
  repetition_penalty: scalar,
  logit_bias: flat,
  logprobs: scalar,
  top_logprobs: scalar,
  user: scalar,
  safety_identifier: scalar,
  service_tier: serviceTier,
  prompt_cache_key: scalar,
  prompt_cache_retention: only(['in_memory'], 'may only be "in_memory"'),
  verbosity: scalar,
  reasoning_effort: scalar,
  reasoning: flat,
  include_reasoning: boolean,
  separate_reasoning: boolean,
  thinking: flat,
  enable_thinking: boolean,
  thinking_budget: scalar,
  chat_template_kwargs: flat,
})

/** Judges the parsed body of one chat completions request. */
export const decideModelRequest = (spec: ModelSpec, request: unknown): ModelRequestDecision =>
  decideFields(spec, request, fields, ['messages'])

/** Judges a parsed body by the fields it may have and must have, and by the one model that is passed on. */
export function decideFields(
  spec: ModelSpec,
  request: unknown,
  allowed: Fields,
  required: readonly string[],
): ModelRequestDecision {
  if (!isObject(request))
    return refuse({
      reason: 'body_invalid',
      rule: 'body',
      message: `the body must be a JSON object, not ${kindOf(request)}`,
    })
  for (const [key, value] of Object.entries(request)) {
    if (value === null) continue
    const check = allowed.get(key)
    if (check === undefined)
      return refuse(
        no('body_field_denied', key.slice(0, 100), 'is not among the fields that are passed on'),
      )
    const refusal = check(value, key)
    if (refusal !== null) return refuse(refusal)
  }
  if (request['model'] !== spec.model)
    return refuse({
      reason: 'model_denied',
      rule: 'model',
      message: `only the model ${JSON.stringify(spec.model)} may be asked`,
    })
  for (const [key, pinned] of Object.entries(spec.parameters ?? {}))
    if (request[key] != null && canonicalJson(request[key]) !== canonicalJson(pinned))
      return refuse(
        no(
          'body_field_denied',
          key.slice(0, 100),
          `is pinned to ${canonicalJson(pinned).slice(0, 100)}`,
        ),
      )
  for (const key of required)
    if (request[key] === undefined || request[key] === null)
      return refuse(no('body_invalid', key, 'is missing'))
  return { ...allow('allowed_gateway', 'model'), message: 'allowed' }
}

/**
 * True for model names under which a provider answers from a search of the web. Such a model can't be closed-book
 * however its requests look, so no gateway is opened for it.
 */
export function isSearchGrounded(model: string): boolean {
  const name = model.toLowerCase()
  return /(^|[-/:_.])(search|deep-?research|sonar|grounded|browsing|online|compound)([-/:_.]|$)/.test(
    name,
  )
}
