/**
 * The report of one job or several as data (`closedbook.report/1`): every figure follows from the plan and the
 * `result.json` files. The denominator is the plan's; a trial without a score is named, pass@1 is null until there is
 * none, and bounds stand in its place.
 */
import type { Plan, PlannedTrial } from '../job/plan.ts'
import { isScored, type SuiteCounts, type TrialResult, type Verdict } from '../result.ts'
import {
  clusterInterval,
  mean,
  median,
  passRate,
  total,
  type Interval,
  type PassRate,
} from '../statistics.ts'
import type { BlockedRow } from './blocked.ts'
import { configurationGroups, type ConfigurationGroup } from './configuration-groups.ts'
import {
  entriesOfPlan,
  type Entry,
  type JobFacts,
  type ReportInput,
  type TaskFacts,
} from './entries.ts'
import { blockedReasons, failureRows, type BlockedReason, type FailureRow } from './failures.ts'
import { openingsOf, type Notice, type Openings } from './notices.ts'
import { noticesOf } from './say.ts'

export interface TrialRow extends PlannedTrial {
  readonly job: string
  readonly area: string
  readonly hardware: string
  /** null: no result, or none that can be believed. */
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
  /** A person typed into it. */
  readonly assisted: boolean
  /** Every number that its hidden tests wrote as a reward; null where they report tests. */
  readonly rewards: Readonly<Record<string, number>> | null
  readonly executions: number
  /** What went otherwise than its task says and isn't a fault. */
  readonly notes: readonly string[]
  /** Why a file that is there doesn't count. */
  readonly unusable: string | null
  /** Absolute path of its result, and the directory of its last execution. */
  readonly result: string | null
  readonly evidence: string | null
}

/** Totals are over every recorded trial, void ones included (they were paid for); the rest is over the scored ones. */
export interface Amount {
  readonly total: number
  readonly perScoredTrial: number | null
  /** 95 %, of that mean, clustered by task. */
  readonly interval: Interval | null
  readonly median: number | null
}

export interface Amounts {
  readonly costUsd: Amount
  readonly outputTokens: Amount
  readonly steps: Amount
  readonly wallTimeMs: Amount
}

export interface Group extends PassRate, Amounts {
  readonly name: string
}

export interface ConfigurationReport extends Amounts, Openings {
  readonly name: string
  readonly model: string | null
  readonly harness: string
  readonly jobs: readonly string[]
  readonly rate: PassRate
  readonly byArea: readonly Group[]
  readonly byHardware: readonly Group[]
  readonly byTask: readonly Group[]
  readonly blocked: readonly BlockedReason[]
}

export interface UnscoredTrial extends PlannedTrial {
  readonly why: string
}

export interface Report {
  readonly schema: 'closedbook.report/1'
  readonly from: 'plan' | 'files'
  readonly job: string
  readonly name: string
  readonly createdAt: string
  readonly jobs: readonly JobFacts[]
  readonly planned: number
  readonly scored: number
  /** Every planned trial is scored. */
  readonly complete: boolean
  readonly notices: readonly Notice[]
  readonly unscored: readonly UnscoredTrial[]
  readonly configurations: readonly ConfigurationReport[]
  readonly tasks: readonly TaskFacts[]
  readonly failures: readonly FailureRow[]
  readonly trials: readonly TrialRow[]
  /** By target, from the egress logs; empty where only results are read. */
  readonly blocked: readonly BlockedRow[]
}

/** Of one job whose results are at hand. */
export const buildReport = (input: {
  readonly plan: Plan
  readonly results: readonly TrialResult[]
  readonly blocked?: readonly BlockedRow[]
}): Report => {
  const { plan, results, blocked = [] } = input
  const byTrial = new Map(results.map((result) => [result.trial, result]))
  const entries = entriesOfPlan(plan, (trial) => {
    const result = byTrial.get(trial)
    return {
      outcome: result === undefined ? { kind: 'none' } : { kind: 'result', result },
      file: null,
    }
  })
  return reportOf({ from: 'plan', jobs: [jobFacts(plan, null)], entries, blocked, notices: [] })
}

export const jobFacts = (plan: Plan, directory: string | null): JobFacts => ({
  job: plan.job,
  name: plan.name,
  createdAt: plan.createdAt,
  closedbookVersion: plan.closedbookVersion,
  directory,
})

export function reportOf(input: ReportInput): Report {
  const { jobs, entries, blocked, from } = input
  const groups = configurationGroups(entries)
  const labels = new Map(
    groups.flatMap(({ label, entries: own }) => own.map((one) => [one, label])),
  )
  const trials = entries.map((entry) => toRow(entry, labels.get(entry) ?? 'unknown'))
  const rows = new Map(entries.map((entry, index) => [entry, trials[index]]))
  const rowsOf = (own: readonly Entry[]): TrialRow[] =>
    own.flatMap((entry) => rows.get(entry) ?? [])
  const lost = rowsOf(entries.filter(({ configuration }) => configuration === null))
  const unscored = trials.filter((row) => !rowScored(row)).map(toUnscored)
  const configurations = groups.map((group) =>
    toConfiguration(group, [...rowsOf(group.entries), ...lost]),
  )
  const draft = {
    schema: 'closedbook.report/1',
    from,
    job: jobs.map(({ job }) => job).join(' '),
    name: nameOf(jobs),
    createdAt: jobs.map(({ createdAt }) => createdAt).toSorted()[0] ?? '',
    jobs,
    planned: trials.length,
    scored: trials.length - unscored.length,
    complete: unscored.length === 0 && trials.length > 0,
    unscored,
    configurations,
    tasks: [...new Map(entries.map(({ task }) => [`${task.name} ${task.digest}`, task])).values()],
    failures: failureRows(trials),
    trials,
    blocked,
  } as const
  return { ...draft, notices: [...noticesOf(draft), ...input.notices] }
}

function nameOf(jobs: readonly JobFacts[]): string {
  const names = [...new Set(jobs.map(({ name }) => name))]
  return names.length > 3 ? `${jobs.length} jobs` : names.join(', ')
}

function toRow(entry: Entry, label: string): TrialRow {
  const { task, outcome } = entry
  const result = outcome.kind === 'result' ? outcome.result : undefined
  const last = result?.executions.at(-1)
  return {
    trial: entry.trial,
    job: entry.job,
    task: task.name,
    configuration: label,
    run: entry.run,
    area: task.area,
    hardware: task.hardware,
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
    assisted: result?.assisted ?? false,
    rewards: result?.rewards ?? null,
    executions: result?.executions.length ?? 0,
    notes: result?.notes ?? [],
    unusable: outcome.kind === 'unusable' ? outcome.why : null,
    result: entry.file,
    evidence:
      entry.file === null || last === undefined
        ? null
        : entry.file.replace(/[^/]*$/, `executions/${last.id}`),
  }
}

const toUnscored = (row: TrialRow): UnscoredTrial => ({
  trial: row.trial,
  task: row.task,
  configuration: row.configuration,
  run: row.run,
  why:
    row.unusable ??
    (row.reason === null
      ? 'no result yet'
      : `void (${row.blame ?? 'unknown'}): ${row.reason.message}`),
})

function toConfiguration(
  { label, facts, entries, jobs }: ConfigurationGroup,
  own: TrialRow[],
): ConfigurationReport {
  return {
    name: label,
    model: facts.model,
    harness: facts.harness,
    jobs,
    ...openingsOf(facts),
    rate: rateOf(own),
    ...amountsOf(own),
    byArea: groupsOf(own, (row) => row.area),
    byHardware: groupsOf(own, (row) => row.hardware),
    byTask: groupsOf(own, (row) => row.task),
    blocked: blockedReasons(entries),
  }
}

export const rowScored = (row: Pick<TrialRow, 'verdict'>): boolean =>
  row.verdict !== null && isScored({ verdict: row.verdict })

const rateOf = (rows: readonly TrialRow[]): PassRate =>
  passRate(
    rows.map((row) => ({
      task: row.task,
      run: row.run,
      passed: rowScored(row) ? row.verdict === 'passed' : null,
    })),
  )

const groupsOf = (rows: readonly TrialRow[], key: (row: TrialRow) => string): readonly Group[] =>
  [...Map.groupBy(rows, key)].map(([name, own]) => ({ name, ...rateOf(own), ...amountsOf(own) }))

const amountsOf = (rows: readonly TrialRow[]): Amounts => ({
  costUsd: amount(rows, (row) => row.costUsd),
  outputTokens: amount(rows, (row) => row.outputTokens),
  steps: amount(rows, (row) => row.steps),
  wallTimeMs: amount(rows, (row) => row.wallTimeMs),
})

function amount(rows: readonly TrialRow[], value: (row: TrialRow) => number | null): Amount {
  const known = (row: TrialRow) => value(row) ?? 0
  const scored = rows.filter(rowScored)
  const values = scored.map(known)
  return {
    total: total(rows.map(known)),
    perScoredTrial: mean(values),
    interval: clusterInterval(scored.map((row) => ({ cluster: row.task, value: known(row) }))),
    median: median(values),
  }
}
