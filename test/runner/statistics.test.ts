import { readFileSync } from 'node:fs'
import t from 'tap'
import { z } from 'zod'
import { incompleteBeta, logGamma, studentT } from '../../runner/statistics-student.ts'
import {
  pairedDifference,
  signFlipP,
  signFlipTest,
  type TaskValue,
} from '../../runner/statistics-paired.ts'
import {
  clusterInterval,
  mean,
  meanInterval,
  median,
  passRate,
  total,
  type Interval,
  type Observation,
} from '../../runner/statistics.ts'
import { Random } from './support/random.ts'

/** Made by test/fixtures/statistics-scipy.py; it names the versions. */
const pair = z.tuple([z.number(), z.number()])
const scipy = z
  .object({
    scipy: z.string(),
    statsmodels: z.string(),
    quantiles: z.array(z.tuple([z.number(), z.number(), z.number()])),
    rates: z.array(
      z.object({
        outcomes: z.array(z.string()),
        mean: z.number(),
        overRuns: pair,
        byTask: pair,
      }),
    ),
    clustered: z.array(
      z.object({
        clusters: z.array(z.number()),
        values: z.array(z.number()),
        mean: z.number(),
        interval: pair,
      }),
    ),
    paired: z.array(
      z.object({
        a: z.array(z.string()),
        b: z.array(z.string()),
        difference: z.number(),
        interval: pair,
        p: z.number(),
      }),
    ),
  })
  .parse(
    JSON.parse(readFileSync(new URL('../fixtures/statistics-scipy.json', import.meta.url), 'utf8')),
  )

const near = (value: number, expected: number, within: number): boolean =>
  Math.abs(value - expected) <= within

void t.test("quantiles of Student's t are those of the tables", (t) => {
  const rows: readonly (readonly [number, number, number])[] = [
    // p, degrees of freedom, published value
    [0.975, 1, 12.7062047364],
    [0.975, 2, 4.3026527297],
    [0.975, 3, 3.1824463053],
    [0.975, 4, 2.7764451052],
    [0.975, 5, 2.5705818356],
    [0.975, 9, 2.2621571628],
    [0.975, 10, 2.228138852],
    [0.975, 20, 2.0859634473],
    [0.975, 29, 2.0452296421],
    [0.975, 30, 2.0422724563],
    [0.975, 60, 2.0002978221],
    [0.975, 120, 1.9799304051],
    [0.95, 1, 6.3137515147],
    [0.95, 7, 1.8945786051],
    [0.995, 2, 9.9248432009],
    [0.995, 30, 2.7499956536],
    [0.75, 1, 1],
  ]
  for (const [p, degrees, expected] of rows)
    t.ok(
      near(studentT(p, degrees), expected, 1e-9),
      `t(${p}, ${degrees}) = ${studentT(p, degrees)}`,
    )
  t.ok(near(studentT(0.975, 1e6), 1.959966, 1e-5), 'it goes to the normal')
  t.equal(studentT(0.025, 7), -studentT(0.975, 7))
  t.ok(near(studentT(0.5, 3), 0, 1e-12))
  for (const [p, degrees] of [
    [0, 3],
    [1, 3],
    [0.9, 0],
    [Number.NaN, 3],
  ] as const)
    t.throws(() => studentT(p, degrees), RangeError)
  t.end()
})

void t.test('closed forms of t and the beta function hold', (t) => {
  const random = new Random(1)
  for (let round = 0; round < 200; round++) {
    const p = random.int(1, 999) / 1000
    // Cauchy, and the closed form for two degrees of freedom.
    const cauchy = Math.tan(Math.PI * (p - 0.5))
    t.ok(near(studentT(p, 1), cauchy, 1e-8 * Math.max(1, Math.abs(cauchy))))
    const a = 4 * p * (1 - p)
    t.ok(near(studentT(p, 2), (2 * (p - 0.5) * Math.SQRT2) / Math.sqrt(a), 1e-8 * 40))
    const x = random.next()
    const [b, c] = [random.int(1, 60) / 2, random.int(1, 60) / 2]
    t.ok(near(incompleteBeta(x, b, c) + incompleteBeta(1 - x, c, b), 1, 1e-11))
    t.ok(near(incompleteBeta(x, 1, c), 1 - (1 - x) ** c, 1e-11))
  }
  t.ok(near(Math.exp(logGamma(0.5)), Math.sqrt(Math.PI), 1e-12))
  t.ok(near(logGamma(11), Math.log(3_628_800), 1e-12))
  t.end()
})

const grid = (rows: readonly (readonly (boolean | null)[])[]): Observation[] =>
  rows.flatMap((runs, task) =>
    runs.map((passed, run) => ({ task: `t${task}`, run: run + 1, passed })),
  )

void t.test('pass@1 is passes over planned trials, with two intervals', (t) => {
  // Four tasks, three runs; worked by hand. Run rates 3/4, 2/4, 2/4; task means 1, 2/3, 2/3, 0.
  const rate = passRate(
    grid([
      [true, true, true],
      [true, true, false],
      [true, false, true],
      [false, false, false],
    ]),
  )
  t.match(rate, { planned: 12, scored: 12, passed: 7 })
  t.ok(near(rate.passAt1 ?? 0, 7 / 12, 1e-15))
  t.strictSame(rate.overRuns?.rates, [0.75, 0.5, 0.5])
  t.equal(rate.overRuns?.degreesOfFreedom, 2)
  t.ok(near(rate.overRuns?.halfWidth ?? 0, (4.3026527297 * 0.1443375673) / Math.sqrt(3), 1e-9))
  const taskSpread = Math.sqrt(((1 - 7 / 12) ** 2 + 2 * (2 / 3 - 7 / 12) ** 2 + (7 / 12) ** 2) / 3)
  t.equal(rate.byTask?.degreesOfFreedom, 3)
  t.ok(near(rate.byTask?.halfWidth ?? 0, (3.1824463053 * taskSpread) / 2, 1e-9))
  t.equal(rate.byTask?.low, Math.max(0, 7 / 12 - (rate.byTask?.halfWidth ?? 0)))
  t.end()
})

void t.test('one unscored trial is enough for no pass@1', (t) => {
  const rate = passRate(
    grid([
      [true, true],
      [true, null],
    ]),
  )
  t.strictSame(rate, {
    planned: 4,
    scored: 3,
    passed: 3,
    passAt1: null,
    overRuns: null,
    byTask: null,
    bounds: { lower: 0.75, upper: 1 },
  })
  t.match(passRate([]), { passAt1: null, bounds: null })
  t.end()
})

void t.test('one run or one task has no interval over it', (t) => {
  t.match(passRate(grid([[true], [false]])), {
    passAt1: 0.5,
    overRuns: null,
    byTask: { degreesOfFreedom: 1 },
  })
  t.match(passRate(grid([[true, false]])), {
    passAt1: 0.5,
    overRuns: { degreesOfFreedom: 1 },
    byTask: null,
  })
  t.end()
})

void t.test('whatever the outcomes, the rate is theirs and lies in its intervals', (t) => {
  const random = new Random(77)
  for (let round = 0; round < 200; round++) {
    const [tasks, runs, chance] = [random.int(2, 12), random.int(2, 6), random.next()]
    const rows = Array.from({ length: tasks }, () =>
      Array.from({ length: runs }, () => random.next() < chance),
    )
    const observations = grid(rows)
    const rate = passRate(observations)
    const passed = rows.flat().filter(Boolean).length
    t.ok(near(rate.passAt1 ?? -1, passed / (tasks * runs), 1e-15))
    for (const interval of [rate.overRuns, rate.byTask]) {
      const { low = 2, high = -1 } = interval ?? {}
      t.ok(
        low >= 0 &&
          high <= 1 &&
          low <= passed / (tasks * runs) + 1e-12 &&
          high >= passed / (tasks * runs) - 1e-12,
      )
    }
    const shuffled = observations.toSorted(() => random.next() - 0.5)
    t.ok(
      near(passRate(shuffled).byTask?.halfWidth ?? -1, rate.byTask?.halfWidth ?? -2, 1e-12),
      'order does not matter',
    )
  }
  t.end()
})

void t.test('the interval covers the truth about as often as it says', (t) => {
  const random = new Random(123)
  let covered = 0
  const rounds = 2000
  for (let round = 0; round < rounds; round++) {
    // Sums of twelve uniforms: nearly normal around 0.5.
    const values = Array.from(
      { length: 5 },
      () => 0.5 + Array.from({ length: 12 }, () => random.next()).reduce((a, b) => a + b, -6) / 20,
    )
    const interval = meanInterval(values)
    if (interval !== null && interval.low <= 0.5 && interval.high >= 0.5) covered++
  }
  t.ok(near(covered / rounds, 0.95, 0.015), `${covered / rounds}`)
  t.end()
})

void t.test('sums keep small amounts beside large ones', (t) => {
  t.equal(total([1e16, 1, -1e16]), 1)
  t.equal(total(Array.from({ length: 10 }, () => 0.1)), 1)
  t.equal(total([]), 0)
  t.equal(mean([]), null)
  t.equal(mean([1, 2, 6]), 3)
  t.end()
})

const same = (
  found: Interval | null | undefined,
  [low, high]: readonly [number, number],
): boolean => found != null && near(found.low, low, 1e-9) && near(found.high, high, 1e-9)
const cut = ([low, high]: readonly [number, number]) =>
  [Math.max(0, low), Math.min(1, high)] as const

void t.test(`SciPy ${scipy.scipy} gives the same quantiles and intervals`, (t) => {
  t.ok(scipy.quantiles.length > 50)
  for (const [p, degrees, expected] of scipy.quantiles)
    t.ok(
      near(studentT(p, degrees) / expected, 1, 1e-9),
      `t(${p}, ${degrees}) = ${studentT(p, degrees)}, not ${expected}`,
    )
  for (const { outcomes, mean: center, overRuns, byTask } of scipy.rates) {
    const rate = passRate(grid(outcomes.map((runs) => runs.split('').map((one) => one === '1'))))
    t.ok(near(rate.passAt1 ?? -1, center, 1e-12))
    t.ok(same(rate.overRuns, cut(overRuns)), `over runs ${JSON.stringify(rate.overRuns)}`)
    t.ok(same(rate.byTask, cut(byTask)), `by task ${JSON.stringify(rate.byTask)}`)
  }
  t.end()
})

void t.test(
  `clusters of unequal size have the cluster-robust interval of statsmodels ${scipy.statsmodels}`,
  (t) => {
    for (const { clusters, values, interval } of scipy.clustered) {
      const found = clusterInterval(
        values.map((value, index) => ({ cluster: String(clusters[index]), value })),
      )
      t.ok(same(found, interval), `${JSON.stringify(found)}, not ${interval.join(' to ')}`)
    }
    t.end()
  },
)

void t.test('a published example of a clustered standard error comes out as printed', (t) => {
  // Lohr, Sampling: Design and Analysis, example 5.2: GPAs of all four students of 5 suites out of 100. Printed: mean
  // 2.826, standard error 0.164, with the correction for a finite population, which ours doesn't have.
  const suites = [
    [3.08, 2.6, 3.44, 3.04],
    [2.36, 3.04, 3.28, 2.68],
    [2.0, 2.56, 2.52, 1.88],
    [3.0, 2.88, 3.44, 3.64],
    [2.68, 1.92, 3.28, 3.2],
  ]
  const values = suites.flatMap((suite, at) =>
    suite.map((value) => ({ cluster: String(at), value })),
  )
  const interval = clusterInterval(values)
  t.equal(
    ((interval?.low ?? 0) + (interval?.high ?? 0)) / 2,
    mean(values.map(({ value }) => value)),
  )
  t.equal((mean(values.map(({ value }) => value)) ?? 0).toFixed(3), '2.826')
  const standardError = (interval?.halfWidth ?? 0) / studentT(0.975, 4)
  t.equal((standardError * Math.sqrt(1 - 5 / 100)).toFixed(3), '0.164')
  t.end()
})

const valuesOf = (rows: readonly string[]): TaskValue[] =>
  rows.flatMap((runs, at) => runs.split('').map((one) => ({ task: `t${at}`, value: Number(one) })))

void t.test(`paired differences and their exact test are those of SciPy ${scipy.scipy}`, (t) => {
  for (const { a, b, difference, interval, p } of scipy.paired) {
    const found = pairedDifference(valuesOf(a), valuesOf(b))
    t.ok(near(found?.difference ?? 9, difference, 1e-12))
    t.ok(same(found?.interval, interval), JSON.stringify(found))
    t.ok(near(signFlipTest(valuesOf(a), valuesOf(b))?.p ?? -1, p, 1e-12), `p ${p}`)
  }
  t.end()
})

void t.test('the sign-flip test counts every choice of signs', (t) => {
  const random = new Random(5)
  for (let round = 0; round < 60; round++) {
    const differences = Array.from({ length: random.int(1, 9) }, () => random.int(-3, 3))
    const seen = Math.abs(differences.reduce((a, b) => a + b, 0))
    const all = 2 ** differences.length
    let as = 0
    for (let signs = 0; signs < all; signs++) {
      const sum = differences.reduce((so, one, at) => so + ((signs >> at) & 1 ? one : -one), 0)
      if (Math.abs(sum) >= seen) as++
    }
    t.ok(near(signFlipP(differences) ?? -1, as / all, 1e-12), differences.join())
  }
  t.equal(signFlipP([]), 1, 'nothing speaks against equality')
  t.equal(signFlipP(Array.from({ length: 53 }, () => 3)), 2 ** -52, 'as far as it can go')
  t.equal(signFlipP([1e9]), null, 'too many sums to enumerate')
  t.equal(signFlipP([0.5]), null, 'and only whole numbers are exact')
  const uneven = signFlipTest(
    [...valuesOf(['11']), { task: 'x', value: 1 }],
    [...valuesOf(['010']), { task: 'y', value: 0 }],
  )
  t.match(uneven, { tasks: 1, better: 1, worse: 0, p: 1 })
  t.end()
})

void t.test('two medians: the middle one, and between the middle two', (t) => {
  t.strictSame([median([]), median([3, 1, 2]), median([4, 1, 2, 3])], [null, 2, 2.5])
  t.end()
})
