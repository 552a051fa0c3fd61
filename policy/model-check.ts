/** Words for the checks of a model request: a check returns null, or why its part of the request is refused. */
import type { Reason } from './decision.ts'

export interface Refusal {
  readonly reason: Reason
  /** The part of the request, e.g. `messages[3].content[0].image_url`. */
  readonly rule: string
  readonly message: string
}

export type Check = (value: unknown, at: string) => Refusal | null

export const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

export const kindOf = (value: unknown): string =>
  value === null ? 'null' : Array.isArray(value) ? 'an array' : `a ${typeof value}`

/** A check of each element of an array, which must be one. */
export const each =
  (check: Check): Check =>
  (value, at) => {
    if (!Array.isArray(value))
      return { reason: 'body_invalid', rule: at, message: `${at} must be an array` }
    for (const [index, one] of value.entries()) {
      const refusal = check(one, `${at}[${index}]`)
      if (refusal !== null) return refusal
    }
    return null
  }

/** The first key that isn't among the allowed ones; a key whose value is null doesn't count. */
export const strangeKey = (
  object: Record<string, unknown>,
  allowed: ReadonlySet<string>,
): string | undefined =>
  Object.keys(object).find((key) => !allowed.has(key) && object[key] !== null)
