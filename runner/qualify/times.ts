/** How long suites and phases took over the repeats, and the limits that follow. Pure; the formulas are said in words. */
import type { TrialResult } from '../result.ts'
import type { SuiteName, Task } from '../task/task.ts'
import type { Finding, ProposedLimit, Spread, Times } from './document.ts'

export interface Timed {
  readonly result: Pick<TrialResult, 'phasesMs' | 'wallTimeMs'>
  /** Of each suite's command. */
  readonly suitesMs: Partial<Record<SuiteName, number>>
}

export function spread(values: readonly number[]): Spread {
  const sorted = values.toSorted((a, b) => a - b)
  const at = (index: number): number => sorted[index] ?? 0
  const middle = (sorted.length - 1) / 2
  const median = (at(Math.floor(middle)) + at(Math.ceil(middle))) / 2
  return { min: at(0), median: Math.round(median), max: at(sorted.length - 1) }
}

export function timesOf(runs: readonly Timed[]): Times | null {
  if (runs.length === 0) return null
  const phases = ['lease', 'agent', 'freeze', 'collect', 'verify', 'close'] as const
  const suites = (['functional', 'regression'] as const).flatMap((suite) => {
    const values = runs.flatMap(({ suitesMs }) => suitesMs[suite] ?? [])
    return values.length === 0 ? [] : [[suite, spread(values)] as const]
  })
  return {
    total: spread(runs.map(({ result }) => result.wallTimeMs)),
    phases: Object.fromEntries(
      phases.map((phase) => [phase, spread(runs.map(({ result }) => result.phasesMs[phase]))]),
    ),
    suites: Object.fromEntries(suites),
  }
}

/** A suite may take this many times its slowest repeat: another host, neighbours, a slower solution. */
const suiteFactor = 5
const leastSuiteSeconds = 30
/** An agent reads, thinks and runs the tests again and again; its commands alone say little of its time. */
const agentFactor = 20
const leastAgentSeconds = 1800

export function proposeLimits(
  task: Pick<Task, 'suites' | 'agent'>,
  { noop, oracle }: { noop: Times | null; oracle: Times | null },
): { limits: ProposedLimit[]; findings: Finding[] } {
  const findings: Finding[] = []
  const slowest = (suite: string): number | null => {
    const found = [noop, oracle].flatMap((times) => times?.suites[suite]?.max ?? [])
    return found.length === 0 ? null : Math.max(...found)
  }
  const limits: ProposedLimit[] = []
  for (const suite of ['functional', 'regression'] as const) {
    const ms = slowest(suite)
    const own = task.suites[suite]
    if (ms === null || own === null) continue
    if (own.timeoutSeconds * 1000 < ms * 2) findings.push(tight(suite, own.timeoutSeconds, ms))
    limits.push({
      key: `closedbook.${suite}.timeout_sec`,
      currentSeconds: own.timeoutSeconds,
      proposedSeconds: roundUp(Math.max(leastSuiteSeconds, (ms * suiteFactor) / 1000)),
      because: `${suiteFactor} times its slowest run of ${seconds(ms)}, at least ${leastSuiteSeconds} s`,
    })
  }
  if (oracle !== null) {
    const solving = oracle.phases['agent']?.max ?? 0
    const testing = (slowest('functional') ?? 0) + (slowest('regression') ?? 0)
    limits.push({
      key: 'agent.timeout_sec',
      currentSeconds: task.agent.timeoutSeconds,
      proposedSeconds: roundUp(
        Math.max(leastAgentSeconds, (agentFactor * (solving + testing)) / 1000),
      ),
      because: `${agentFactor} times what the solution (${seconds(solving)}) and the suites (${seconds(testing)}) take, at least ${leastAgentSeconds} s`,
    })
  }
  return { limits, findings }
}

/** A limit that a run came close to will fail honest work on a slower day. */
const tight = (suite: SuiteName, current: number, slowestMs: number): Finding => ({
  code: 'tight_limit',
  severity: 'warning',
  message: `closedbook.${suite}.timeout_sec is ${current} s, and a run took ${seconds(slowestMs)}`,
  advice: 'a limit below twice the slowest run fails honest work on a slower day: raise it',
  tests: [],
})

/** To 10 s below ten minutes, to a minute above. */
function roundUp(value: number): number {
  const step = value <= 600 ? 10 : 60
  return Math.ceil(value / step) * step
}

const seconds = (ms: number): string => `${(ms / 1000).toFixed(1)} s`
