/**
 * The report of a job as data (`closedbook.report/1`): every figure follows from its plan and its `result.json` files.
 * The denominator is the plan's; a trial without a score is named, and pass@1 is null until there is none.
 */
import type { Plan, PlannedTrial } from '../job/plan.ts'
import { isScored, type SuiteCounts, type TrialResult, type Verdict } from '../result.ts'
import { mean, passRate, total, type PassRate } from '../statistics.ts'
import type { BlockedRow } from './blocked.ts'

export interface TrialRow extends PlannedTrial {
  readonly area: string
  readonly hardware: string
  /** null: no result yet. */
  readonly verdict: Verdict | null
  readonly blame: TrialResult['blame']
  readonly reason: TrialResult['reason'] | null
  readonly functional: SuiteCounts | null
  readonly regression: SuiteCounts | null
  readonly costUsd: number | null
  readonly outputTokens: number | null
  readonly steps: number | null
  readonly wallTimeMs: number | null
  readonly blockedAttempts: number | null
  readonly executions: number
}

/** Totals are over every recorded trial, void ones included (they were paid for); means over the scored ones. */
export interface Amount {
  readonly total: number
  readonly perScoredTrial: number | null
}

export interface Group extends PassRate {
  readonly name: string
}

export interface ConfigurationReport {
  readonly name: string
  readonly model: string | null
  readonly harness: string
  readonly rate: PassRate
  readonly costUsd: Amount
  readonly outputTokens: Amount
  readonly steps: Amount
  readonly wallTimeMs: Amount
  readonly byArea: readonly Group[]
  readonly byHardware: readonly Group[]
  readonly byTask: readonly Group[]
}

export interface Report {
  readonly schema: 'closedbook.report/1'
  readonly job: string
  readonly name: string
  readonly createdAt: string
  readonly planned: number
  readonly scored: number
  /** Every planned trial is scored. */
  readonly complete: boolean
  readonly unscored: readonly (PlannedTrial & { readonly why: string })[]
  readonly configurations: readonly ConfigurationReport[]
  readonly trials: readonly TrialRow[]
  readonly blocked: readonly BlockedRow[]
}

export function buildReport(input: {
  readonly plan: Plan
  readonly results: readonly TrialResult[]
  readonly blocked?: readonly BlockedRow[]
}): Report {
  const { plan, results, blocked = [] } = input
  const byTrial = new Map(results.map((result) => [result.trial, result]))
  const trials = plan.trials.map((planned) => toRow(planned, plan, byTrial.get(planned.trial)))
  const unscored = trials
    .filter((row) => !rowScored(row))
    .map((row) => ({
      trial: row.trial,
      task: row.task,
      configuration: row.configuration,
      run: row.run,
      why:
        row.reason === null
          ? 'no result yet'
          : `void (${row.blame ?? 'unknown'}): ${row.reason.message}`,
    }))
  return {
    schema: 'closedbook.report/1',
    job: plan.job,
    name: plan.name,
    createdAt: plan.createdAt,
    planned: trials.length,
    scored: trials.length - unscored.length,
    complete: unscored.length === 0,
    unscored,
    configurations: plan.configurations.map(({ name, model, harness }) => {
      const own = trials.filter((row) => row.configuration === name)
      return {
        name,
        model,
        harness,
        rate: rateOf(own),
        costUsd: amount(own, (row) => row.costUsd),
        outputTokens: amount(own, (row) => row.outputTokens),
        steps: amount(own, (row) => row.steps),
        wallTimeMs: amount(own, (row) => row.wallTimeMs),
        byArea: groups(own, (row) => row.area),
        byHardware: groups(own, (row) => row.hardware),
        byTask: groups(own, (row) => row.task),
      }
    }),
    trials,
    blocked,
  }
}

function toRow(planned: PlannedTrial, plan: Plan, result: TrialResult | undefined): TrialRow {
  const task = plan.tasks.find((one) => one.name === planned.task)
  return {
    trial: planned.trial,
    task: planned.task,
    configuration: planned.configuration,
    run: planned.run,
    area: task?.area ?? 'unspecified',
    hardware: task?.hardware ?? 'cpu',
    verdict: result?.verdict ?? null,
    blame: result?.blame ?? null,
    reason: result?.reason ?? null,
    functional: result?.suites.functional ?? null,
    regression: result?.suites.regression ?? null,
    costUsd: result?.costUsd ?? null,
    outputTokens: result?.usage.outputTokens ?? null,
    steps: result?.steps ?? null,
    wallTimeMs: result?.wallTimeMs ?? null,
    blockedAttempts: result?.egress.denied ?? null,
    executions: result?.executions.length ?? 0,
  }
}

const rowScored = (row: TrialRow): boolean =>
  row.verdict !== null && isScored({ verdict: row.verdict })

const rateOf = (rows: readonly TrialRow[]): PassRate =>
  passRate(
    rows.map((row) => ({
      task: row.task,
      run: row.run,
      passed: rowScored(row) ? row.verdict === 'passed' : null,
    })),
  )

function groups(rows: readonly TrialRow[], key: (row: TrialRow) => string): readonly Group[] {
  return [...Map.groupBy(rows, key)].map(([name, own]) => ({ name, ...rateOf(own) }))
}

function amount(rows: readonly TrialRow[], value: (row: TrialRow) => number | null): Amount {
  const known = (row: TrialRow) => value(row) ?? 0
  return {
    total: total(rows.map(known)),
    perScoredTrial: mean(rows.filter(rowScored).map(known)),
  }
}
