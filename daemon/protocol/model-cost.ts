/**
 * The cost of model calls, in one place for all who compute it: the gateway's budget, the trial's result and anyone
 * who recomputes a result from a recording. It is worked out in exact decimal arithmetic and rounded once, to the
 * nearest double, so the cost of summed tokens is the rounded sum of the calls' costs, in whatever order they came.
 */
import type { Price, Usage } from './lease.ts'

export type Tokens = Pick<
  Usage,
  'inputTokens' | 'cachedInputTokens' | 'outputTokens' | 'reasoningTokens'
>

export const noTokens: Tokens = {
  inputTokens: 0,
  cachedInputTokens: 0,
  outputTokens: 0,
  reasoningTokens: 0,
}

export const addTokens = (a: Tokens, b: Tokens): Tokens => ({
  inputTokens: a.inputTokens + b.inputTokens,
  cachedInputTokens: a.cachedInputTokens + b.cachedInputTokens,
  outputTokens: a.outputTokens + b.outputTokens,
  reasoningTokens: a.reasoningTokens + b.reasoningTokens,
})

/**
 * US dollars: (input - cached) * input rate + cached * cached rate + output * output rate, rates per million tokens.
 * Cached tokens are part of the input, reasoning tokens part of the output, as providers report and bill them.
 */
export function costOf(
  tokens: Pick<Tokens, 'inputTokens' | 'cachedInputTokens' | 'outputTokens'>,
  price: Price,
): number {
  const input = decimal(price.inputPerMillionUsd)
  const cached = decimal(price.cachedInputPerMillionUsd)
  const output = decimal(price.outputPerMillionUsd)
  const places = Math.max(input.places, cached.places, output.places)
  const units = ({ digits, places: own }: Decimal): bigint => digits * 10n ** BigInt(places - own)
  const total =
    BigInt(tokens.inputTokens - tokens.cachedInputTokens) * units(input) +
    BigInt(tokens.cachedInputTokens) * units(cached) +
    BigInt(tokens.outputTokens) * units(output)
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
