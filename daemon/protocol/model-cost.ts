/**
 * The cost of model calls, in one place for all who compute it: the gateway's budget, the trial's result and anyone
 * who recomputes a result from a recording. It is worked out in exact decimal arithmetic and rounded once, to the
 * nearest double, so the cost of summed tokens is the rounded sum of the calls' costs, in whatever order they came.
 */
import type { Price, Usage } from './lease.ts'

export interface Tokens extends Pick<
  Usage,
  'inputTokens' | 'cachedInputTokens' | 'outputTokens' | 'reasoningTokens'
> {
  readonly cacheWriteInputTokens: number
}

export const noTokens: Tokens = {
  inputTokens: 0,
  cachedInputTokens: 0,
  cacheWriteInputTokens: 0,
  outputTokens: 0,
  reasoningTokens: 0,
}

export const addTokens = (a: Tokens, b: Tokens): Tokens => ({
  inputTokens: a.inputTokens + b.inputTokens,
  cachedInputTokens: a.cachedInputTokens + b.cachedInputTokens,
  cacheWriteInputTokens: a.cacheWriteInputTokens + b.cacheWriteInputTokens,
  outputTokens: a.outputTokens + b.outputTokens,
  reasoningTokens: a.reasoningTokens + b.reasoningTokens,
})

/**
 * US dollars: (input - cached - written) * input rate + cached * cached rate + written * cache write rate + output *
 * output rate, rates per million tokens. Cached and written tokens are part of the input, reasoning tokens part of the
 * output, as `usageSchema` has them. Without a rate of their own written tokens cost the input rate.
 */
export function costOf(
  tokens: Pick<
    Usage,
    'inputTokens' | 'cachedInputTokens' | 'outputTokens' | 'cacheWriteInputTokens'
  >,
  price: Price,
): number {
  const { inputTokens, cachedInputTokens, cacheWriteInputTokens = 0, outputTokens } = tokens
  const terms: (readonly [number, number])[] = [
    [inputTokens - cachedInputTokens - cacheWriteInputTokens, price.inputPerMillionUsd],
    [cachedInputTokens, price.cachedInputPerMillionUsd],
    [cacheWriteInputTokens, price.cacheWriteInputPerMillionUsd ?? price.inputPerMillionUsd],
    [outputTokens, price.outputPerMillionUsd],
  ]
  const exact = terms.map(([count, rate]) => ({ count: BigInt(count), rate: decimal(rate) }))
  const places = Math.max(...exact.map(({ rate }) => rate.places))
  const total = exact.reduce(
    (sum, { count, rate }) => sum + count * rate.digits * 10n ** BigInt(places - rate.places),
    0n,
  )
  return Number(`${total}e-${places + 6}`)
}

/** `digits` x 10^-`places`: the decimal number that a person wrote, not the double nearest to it. */
interface Decimal {
  readonly digits: bigint
  readonly places: number
}

function decimal(value: number): Decimal {
  const [mantissa = '0', exponent = '0'] = String(value).split('e')
  const [whole = '0', fraction = ''] = mantissa.split('.')
  const places = fraction.length - Number(exponent)
  const digits = BigInt(whole + fraction)
  return places >= 0 ? { digits, places } : { digits: digits * 10n ** BigInt(-places), places: 0 }
}
