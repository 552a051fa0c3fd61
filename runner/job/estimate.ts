/**
 * What is left of a job, in time and money, judged by what its trials took so far: each that is left counts with the
 * mean of its configuration, or of all where that has none yet. Pure; an estimate for people, never part of a result.
 */
import type { PlannedTrial } from './plan.ts'

export interface Taken {
  readonly configuration: string
  readonly wallTimeMs: number
  readonly costUsd: number
}

export interface Estimate {
  readonly timeMs: number
  readonly costUsd: number
}

/** null before the first trial has ended. `running`: how long each that is under way has run. */
export function estimateLeft(input: {
  readonly left: readonly Pick<PlannedTrial, 'configuration'>[]
  readonly taken: readonly Taken[]
  readonly runningMs: readonly number[]
}): Estimate | null {
  const { left, taken, runningMs } = input
  if (taken.length === 0) return null
  const byConfiguration = Map.groupBy(taken, ({ configuration }) => configuration)
  let timeMs = 0
  let costUsd = 0
  for (const { configuration } of left) {
    const alike = byConfiguration.get(configuration) ?? taken
    timeMs += mean(alike.map((one) => one.wallTimeMs))
    costUsd += mean(alike.map((one) => one.costUsd))
  }
  const done = runningMs.reduce((sum, ms) => sum + ms, 0)
  return { timeMs: Math.max(0, timeMs - done) / Math.max(1, runningMs.length), costUsd }
}

const mean = (values: readonly number[]): number =>
  values.reduce((sum, value) => sum + value, 0) / values.length
