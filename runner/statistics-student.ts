/**
 * Student's t by numerical means, without a library: quantile, distribution function, and what they stand on. Pure.
 * Checked against SciPy and against published tables in test/runner/statistics.test.ts.
 */
const known = new Map<string, number>()

/** Quantile of Student's t: p in (0, 1), degrees of freedom above 0. A report asks for few of them, and very often. */
export function studentT(p: number, degreesOfFreedom: number): number {
  const key = `${p} ${degreesOfFreedom}`
  const before = known.get(key)
  if (before !== undefined) return before
  const value = quantile(p, degreesOfFreedom)
  if (known.size < 10_000) known.set(key, value)
  return value
}

/** Bisection on the distribution function. */
function quantile(p: number, degreesOfFreedom: number): number {
  if (!(p > 0 && p < 1) || !(degreesOfFreedom > 0))
    throw new RangeError(`no t quantile for p = ${p} and ${degreesOfFreedom} degrees of freedom`)
  if (p < 0.5) return -quantile(1 - p, degreesOfFreedom)
  let low = 0
  let high = 1
  while (studentCdf(high, degreesOfFreedom) < p) high *= 2
  for (let step = 0; step < 200 && high - low > 1e-14 * high; step++) {
    const middle = (low + high) / 2
    if (studentCdf(middle, degreesOfFreedom) < p) low = middle
    else high = middle
  }
  return (low + high) / 2
}

/** P(T <= t) for t >= 0. */
export const studentCdf = (t: number, degreesOfFreedom: number): number =>
  1 - incompleteBeta(degreesOfFreedom / (degreesOfFreedom + t * t), degreesOfFreedom / 2, 0.5) / 2

/** Regularised incomplete beta function, by Lentz's continued fraction (Numerical Recipes, 6.4). */
export function incompleteBeta(x: number, a: number, b: number): number {
  if (x <= 0) return 0
  if (x >= 1) return 1
  const front = Math.exp(
    logGamma(a + b) - logGamma(a) - logGamma(b) + a * Math.log(x) + b * Math.log1p(-x),
  )
  return x < (a + 1) / (a + b + 2)
    ? (front * continuedFraction(x, a, b)) / a
    : 1 - (front * continuedFraction(1 - x, b, a)) / b
}

function continuedFraction(x: number, a: number, b: number): number {
  const tiny = 1e-300
  const guard = (value: number) => (Math.abs(value) < tiny ? tiny : value)
  let c = 1
  let d = 1 / guard(1 - ((a + b) * x) / (a + 1))
  let value = d
  for (let m = 1; m <= 10_000; m++) {
    const even = (m * (b - m) * x) / ((a + 2 * m - 1) * (a + 2 * m))
    d = 1 / guard(1 + even * d)
    c = guard(1 + even / c)
    value *= d * c
    const odd = (-(a + m) * (a + b + m) * x) / ((a + 2 * m) * (a + 2 * m + 1))
    d = 1 / guard(1 + odd * d)
    c = guard(1 + odd / c)
    const change = d * c
    value *= change
    if (Math.abs(change - 1) < 1e-16) break
  }
  return value
}

/** Lanczos, g = 7, 9 terms: about 15 digits. */
export function logGamma(x: number): number {
  const terms = [
    0.99999999999980993, 676.5203681218851, -1259.1392167224028, 771.32342877765313,
    -176.61502916214059, 12.507343278686905, -0.13857109526572012, 9.9843695780195716e-6,
    1.5056327351493116e-7,
  ]
  if (x < 0.5) return Math.log(Math.PI / Math.sin(Math.PI * x)) - logGamma(1 - x)
  const y = x - 1
  const sum = terms.reduce((so, term, index) => (index === 0 ? term : so + term / (y + index)), 0)
  const t = y + 7.5
  return 0.5 * Math.log(2 * Math.PI) + (y + 0.5) * Math.log(t) - t + Math.log(sum)
}
