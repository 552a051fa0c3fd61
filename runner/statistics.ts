/**
 * The figures of design section 8; pure. pass@1 is verifier passes over planned trials and exists only when every
 * planned trial is scored: nothing here ever divides by the trials that happened to be scored. Until then there are
 * bounds: what it would be if every trial that lacks a score failed, and if every one passed. Two 95 % intervals, both
 * by Student's t: over the pass rates of the runs (n - 1 degrees of freedom), and clustered by task (cluster-robust,
 * m - 1 degrees of freedom), which takes a task's runs as one draw. Both are cut to 0..1.
 */
import { studentT } from './statistics-student.ts'

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

export interface Bounds {
  readonly lower: number
  readonly upper: number
}

export interface PassRate {
  readonly planned: number
  readonly scored: number
  readonly passed: number
  /** null unless every planned trial is scored. */
  readonly passAt1: number | null
  /** Where passAt1 is null: from all unscored trials failed to all passed. null when nothing is planned. */
  readonly bounds: Bounds | null
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
  const bounds: Bounds | null =
    planned === 0 ? null : { lower: passed / planned, upper: (passed + planned - scored) / planned }
  const facts = { planned, scored, passed, bounds }
  if (planned === 0 || scored < planned)
    return { ...facts, passAt1: null, overRuns: null, byTask: null }
  const values = observations.map(({ task, run, passed: yes }) => ({
    task,
    run,
    value: yes ? 1 : 0,
  }))
  const rates = [...Map.groupBy(values, ({ run }) => run)]
    .toSorted(([a], [b]) => a - b)
    .map(([, group]) => mean(group.map(({ value }) => value)) ?? 0)
  const runs = meanInterval(rates)
  const byTask = clusterInterval(values.map(({ task, value }) => ({ cluster: task, value })))
  return {
    ...facts,
    passAt1: passed / planned,
    bounds: null,
    overRuns: runs === null ? null : { ...cutTo(runs, 0, 1), rates },
    byTask: byTask === null ? null : cutTo(byTask, 0, 1),
  }
}

export const cutTo = (interval: Interval, least: number, most: number): Interval => ({
  ...interval,
  low: Math.max(least, interval.low),
  high: Math.min(most, interval.high),
})

/** Of the mean of independent values, 95 %; null for fewer than two. */
export function meanInterval(values: readonly number[]): Interval | null {
  const center = mean(values)
  if (center === null || values.length < 2) return null
  const degreesOfFreedom = values.length - 1
  const variance = total(values.map((value) => (value - center) ** 2)) / degreesOfFreedom
  return around(center, Math.sqrt(variance / values.length), degreesOfFreedom)
}

export interface Clustered {
  readonly cluster: string
  readonly value: number
}

/**
 * Of the mean of all values, 95 %, where those of one cluster belong together; null for fewer than two clusters. The
 * standard error is the cluster-robust one of an intercept (Liang and Zeger 1986) with the factor m / (m - 1). With
 * clusters of one size it is that of the mean of the clusters' means.
 */
export function clusterInterval(values: readonly Clustered[]): Interval | null {
  const center = mean(values.map(({ value }) => value))
  const one = values[0]?.cluster
  if (center === null || values.every(({ cluster }) => cluster === one)) return null
  const influences = [...Map.groupBy(values, ({ cluster }) => cluster).values()].map(
    (group) => total(group.map(({ value }) => value - center)) / values.length,
  )
  return fromInfluences(center, influences)
}

/** `influences`: how much each cluster moves the estimate; they sum to zero. */
export function fromInfluences(center: number, influences: readonly number[]): Interval | null {
  const m = influences.length
  if (m < 2) return null
  const standardError = Math.sqrt((m / (m - 1)) * total(influences.map((one) => one ** 2)))
  return around(center, standardError, m - 1)
}

function around(center: number, standardError: number, degreesOfFreedom: number): Interval {
  const halfWidth = studentT(0.975, degreesOfFreedom) * standardError
  return { low: center - halfWidth, high: center + halfWidth, halfWidth, degreesOfFreedom }
}

export const mean = (values: readonly number[]): number | null =>
  values.length === 0 ? null : total(values) / values.length

export function median(values: readonly number[]): number | null {
  const sorted = values.toSorted((a, b) => a - b)
  const middle = sorted.length >> 1
  const upper = sorted[middle]
  if (upper === undefined) return null
  return sorted.length % 2 === 1 ? upper : ((sorted[middle - 1] ?? upper) + upper) / 2
}

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
