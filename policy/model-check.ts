/**
 * Words for the checks of a model request: a check returns null, or why its part of the request is refused. Objects
 * are checked by the fields they may have, never by those they may not: what nobody here knows is refused.
 */
import type { Reason } from './decision.ts'

export interface Refusal {
  readonly reason: Reason
  /** The part of the request, e.g. `messages[3].content[0].image_url`. */
  readonly rule: string
  readonly message: string
}

export type Check = (value: unknown, at: string) => Refusal | null
export type Fields = ReadonlyMap<string, Check>

export const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

export const kindOf = (value: unknown): string =>
  value === null ? 'null' : Array.isArray(value) ? 'an array' : `a ${typeof value}`

export const quote = (value: unknown): string =>
  typeof value === 'string' ? JSON.stringify(value.slice(0, 60)) : kindOf(value)

export const no = (reason: Reason, rule: string, words: string): Refusal => ({
  reason,
  rule,
  message: `${rule} ${words}`,
})

/** Names under which APIs take what a provider would fetch, or what it keeps. */
const remote = new Set(['url', 'file_url', 'file_uri', 'fileUri', 'file_id', 'file_ids'])

export function unknownField(at: string, key: string, reason: Reason): Refusal {
  const rule = `${at}.${key.slice(0, 100)}`
  if (reason === 'tool_denied') return no(reason, rule, 'is not part of a tool')
  return remote.has(key)
    ? no('remote_url_denied', rule, 'names what lies elsewhere; send the data itself')
    : no(reason, rule, 'is not among the fields that are passed on')
}

/** The first key that isn't among the allowed ones; a key whose value is null doesn't count. */
export const strangeKey = (
  object: Record<string, unknown>,
  allowed: ReadonlySet<string> | Fields,
): string | undefined =>
  Object.keys(object).find((key) => !allowed.has(key) && object[key] !== null)

/** A check of each element of an array, which must be one. */
export const each =
  (check: Check): Check =>
  (value, at) => {
    if (!Array.isArray(value)) return no('body_invalid', at, 'must be an array')
    for (const [index, one] of value.entries()) {
      const refusal = check(one, `${at}[${index}]`)
      if (refusal !== null) return refusal
    }
    return null
  }

export const fieldsOf = (fields: Readonly<Record<string, Check>>): Fields =>
  new Map(Object.entries(fields))

/** An object of known fields, each of which passes its check; a field whose value is null is as good as absent. */
export const shaped =
  (fields: Fields, reason: Reason = 'body_field_denied'): Check =>
  (value, at) => {
    if (!isObject(value))
      return no(
        reason === 'tool_denied' ? reason : 'body_invalid',
        at,
        `must be an object, not ${kindOf(value)}`,
      )
    const strange = strangeKey(value, fields)
    if (strange !== undefined) return unknownField(at, strange, reason)
    for (const [key, check] of fields) {
      const one = value[key]
      if (one === undefined || one === null) continue
      const refusal = check(one, `${at}.${key}`)
      if (refusal !== null) return refusal
    }
    return null
  }

/** An object checked as its `type` asks for. */
export const oneOf =
  (kinds: ReadonlyMap<string, Check>, otherwise: (type: unknown, at: string) => Refusal): Check =>
  (value, at) => {
    if (!isObject(value)) return no('body_invalid', at, `must be an object, not ${kindOf(value)}`)
    const type = value['type']
    const check = typeof type === 'string' ? kinds.get(type) : undefined
    return check === undefined ? otherwise(type, `${at}.type`) : check(value, at)
  }

/** Text, or an array of parts that pass the check. */
export const textOr =
  (check: Check): Check =>
  (value, at) =>
    typeof value === 'string'
      ? null
      : Array.isArray(value)
        ? each(check)(value, at)
        : no('body_invalid', at, 'must be text or an array of parts')

export const anything: Check = () => null

export const text: Check = (value, at) =>
  typeof value === 'string' ? null : no('body_invalid', at, `must be text, not ${kindOf(value)}`)

export const scalar: Check = (value, at) =>
  typeof value === 'object'
    ? no('body_invalid', at, `must be a plain value, not ${kindOf(value)}`)
    : null

export const boolean: Check = (value, at) =>
  typeof value === 'boolean'
    ? null
    : no('body_invalid', at, `must be a boolean, not ${kindOf(value)}`)

export const scalars: Check = (value, at) => {
  if (!Array.isArray(value)) return scalar(value, at)
  return value.some((one) => typeof one === 'object')
    ? no('body_invalid', at, 'must hold plain values')
    : null
}

export const flat: Check = (value, at) => {
  if (!isObject(value)) return no('body_invalid', at, `must be an object, not ${kindOf(value)}`)
  for (const [key, one] of Object.entries(value))
    if (typeof one === 'object' && one !== null)
      return no('body_invalid', `${at}.${key.slice(0, 100)}`, 'must be a plain value')
  return null
}

export const flatOrScalar: Check = (value, at) =>
  isObject(value) ? flat(value, at) : scalar(value, at)

/** One of a few values; `why` says what is wrong with the others. */
export const only =
  (allowed: readonly unknown[], why: string): Check =>
  (value, at) =>
    allowed.includes(value) ? null : no('body_field_denied', at, why)
