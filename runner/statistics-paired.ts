/**
 * Two configurations over the same tasks; pure. The difference A - B has a 95 % interval clustered by task (Student's t,
 * m - 1 degrees of freedom; with equal runs it is the paired t interval of the tasks' differences). Beside it stands an
 * exact test that assumes no distribution: the paired sign-flip permutation test by task. If A and B were the same,
 * each task's difference would as well have had the other sign; p is the share of all 2^m choices of signs whose sum is
 * at least as far from zero as what was seen. McNemar's test would take the runs of one task for independent draws.
 */
import { fromInfluences, mean, total, type Interval } from './statistics.ts'

export interface TaskValue {
  readonly task: string
  readonly value: number
}

export interface PairedDifference {
  readonly a: number
  readonly b: number
  readonly difference: number
  /** null with fewer than two tasks. */
  readonly interval: Interval | null
}

/** null where either side has nothing. Both sides must be of the same tasks. */
export function pairedDifference(
  a: readonly TaskValue[],
  b: readonly TaskValue[],
): PairedDifference | null {
  const [meanA, meanB] = [mean(valuesOf(a)), mean(valuesOf(b))]
  if (meanA === null || meanB === null) return null
  const [groupsA, groupsB] = [byTask(a), byTask(b)]
  const influence = (task: string): number =>
    total((groupsA.get(task) ?? []).map((value) => value - meanA)) / a.length -
    total((groupsB.get(task) ?? []).map((value) => value - meanB)) / b.length
  const tasks = [...new Set([...groupsA.keys(), ...groupsB.keys()])]
  const difference = meanA - meanB
  return {
    a: meanA,
    b: meanB,
    difference,
    interval: fromInfluences(difference, tasks.map(influence)),
  }
}

export interface SignFlipTest {
  readonly name: 'exact paired sign-flip permutation test by task'
  /** Two-sided. */
  readonly p: number
  readonly tasks: number
  /** Tasks on which A, or B, passed more often; the others count for nothing here. */
  readonly better: number
  readonly worse: number
}

/** Sums beyond this many are not enumerated. */
const maxSums = 2_000_000

/** Of pass rates of tasks (1 passed, 0 failed, one value a run). null where runs differ so much that it can't be exact. */
export function signFlipTest(
  a: readonly TaskValue[],
  b: readonly TaskValue[],
): SignFlipTest | null {
  const [groupsA, groupsB] = [byTask(a), byTask(b)]
  const pairs = [...groupsA].flatMap(([task, own]) => {
    const other = groupsB.get(task)
    return other === undefined ? [] : [[own, other] as const]
  })
  const scale = pairs.flat().reduce((so, { length }) => leastCommonMultiple(so, length), 1)
  const differences = pairs.map(
    ([own, other]) => total(own) * (scale / own.length) - total(other) * (scale / other.length),
  )
  const p = signFlipP(differences)
  if (p === null) return null
  return {
    name: 'exact paired sign-flip permutation test by task',
    p,
    tasks: pairs.length,
    better: differences.filter((one) => one > 0).length,
    worse: differences.filter((one) => one < 0).length,
  }
}

/** `differences` are whole numbers. The distribution of the sum over all choices of signs, one difference at a time. */
export function signFlipP(differences: readonly number[]): number | null {
  const steps = differences.map(Math.abs).filter((one) => one > 0)
  const span = total(steps)
  if (span > maxSums || !steps.every(Number.isSafeInteger)) return null
  const seen = Math.abs(total(differences))
  let chances = new Float64Array(2 * span + 1)
  chances[span] = 1
  let reach = 0
  for (const step of steps) {
    const next = new Float64Array(2 * span + 1)
    for (let sum = -reach; sum <= reach; sum++) {
      const half = (chances[span + sum] ?? 0) / 2
      if (half === 0) continue
      next[span + sum + step] = (next[span + sum + step] ?? 0) + half
      next[span + sum - step] = (next[span + sum - step] ?? 0) + half
    }
    chances = next
    reach += step
  }
  let p = 0
  for (let sum = seen; sum <= span; sum++)
    p += (chances[span + sum] ?? 0) + (sum === 0 ? 0 : (chances[span - sum] ?? 0))
  return Math.min(1, p)
}

const valuesOf = (values: readonly TaskValue[]): number[] => values.map(({ value }) => value)

const byTask = (values: readonly TaskValue[]): Map<string, number[]> =>
  new Map([...Map.groupBy(values, ({ task }) => task)].map(([task, own]) => [task, valuesOf(own)]))

function leastCommonMultiple(a: number, b: number): number {
  let [x, y] = [a, b]
  while (y !== 0) [x, y] = [y, x % y]
  return (a / x) * b
}
