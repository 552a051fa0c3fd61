/**
 * The figures of design section 8; pure. pass@1 is verifier passes over planned trials and exists only when every
 * planned trial is scored: nothing here ever divides by the trials that happened to be scored. Two 95 % intervals, both
 * by Student's t: over the pass rates of the runs (n - 1 degrees of freedom), and over the means of the tasks, which
 * takes a task's runs as one cluster (cluster-robust, m - 1 degrees of freedom). Bounds are cut to 0..1.
 */
export interface Observation {
  readonly task: string
  readonly run: number
  /** null: void, or no result yet. */
  readonly passed: boolean | null
}

export interface Interval {
  readonly low: number
  readonly high: number
  readonly halfWidth: number
  readonly degreesOfFreedom: number
}

export interface PassRate {
  readonly planned: number
  readonly scored: number
  readonly passed: number
  /** null unless every planned trial is scored. */
  readonly passAt1: number | null
  /** null unless passAt1 is there and there are two runs at least. */
  readonly overRuns: (Interval & { readonly rates: readonly number[] }) | null
  /** null unless passAt1 is there and there are two tasks at least. */
  readonly byTask: Interval | null
}

/** `observations`: one for each planned trial of one configuration. */
export function passRate(observations: readonly Observation[]): PassRate {
  const planned = observations.length
  const scored = observations.filter((one) => one.passed !== null).length
  const passed = observations.filter((one) => one.passed === true).length
  if (planned === 0 || scored < planned)
    return { planned, scored, passed, passAt1: null, overRuns: null, byTask: null }
  const rates = groupMeans(observations, (one) => one.run)
  const runs = meanInterval(rates)
  const byTask = meanInterval(groupMeans(observations, (one) => one.task))
  return {
    planned,
    scored,
    passed,
    passAt1: passed / planned,
    overRuns: runs === null ? null : { ...runs, rates },
    byTask,
  }
}

function groupMeans<K>(
  observations: readonly Observation[],
  key: (one: Observation) => K,
): readonly number[] {
  const groups = Map.groupBy(observations, key)
  return [...groups.values()].map((group) => mean(group.map((one) => (one.passed ? 1 : 0))) ?? 0)
}

/** Of the mean of independent values, 95 %; null for fewer than two. */
export function meanInterval(values: readonly number[]): Interval | null {
  const center = mean(values)
  if (center === null || values.length < 2) return null
  const degreesOfFreedom = values.length - 1
  const variance = values.reduce((sum, value) => sum + (value - center) ** 2, 0) / degreesOfFreedom
  const halfWidth = studentT(0.975, degreesOfFreedom) * Math.sqrt(variance / values.length)
  return {
    low: Math.max(0, center - halfWidth),
    high: Math.min(1, center + halfWidth),
    halfWidth,
    degreesOfFreedom,
  }
}

export const mean = (values: readonly number[]): number | null =>
  values.length === 0 ? null : total(values) / values.length

/** Neumaier's sum: many small costs beside a large one keep their cents. */
export function total(values: readonly number[]): number {
  let sum = 0
  let lost = 0
  for (const value of values) {
    const next = sum + value
    lost += Math.abs(sum) >= Math.abs(value) ? sum - next + value : value - next + sum
    sum = next
  }
  return sum + lost
}

/** Quantile of Student's t: p in (0, 1), degrees of freedom above 0. Bisection on the distribution function. */
export function studentT(p: number, degreesOfFreedom: number): number {
  if (!(p > 0 && p < 1) || !(degreesOfFreedom > 0))
    throw new RangeError(`no t quantile for p = ${p} and ${degreesOfFreedom} degrees of freedom`)
  if (p < 0.5) return -studentT(1 - p, degreesOfFreedom)
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
