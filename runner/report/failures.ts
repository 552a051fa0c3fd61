/** What went wrong, counted: failed and void trials by blame and reason, and refused attempts by reason. */
import type { Verdict } from '../result.ts'
import type { Entry } from './entries.ts'
import type { TrialRow } from './report.ts'

export interface FailureRow {
  readonly configuration: string
  /** null: without a usable result. */
  readonly verdict: Exclude<Verdict, 'passed'> | null
  readonly blame: TrialRow['blame']
  readonly code: string
  readonly count: number
  readonly tasks: readonly string[]
  /** Of the first of them. */
  readonly message: string
}

/** Most frequent first. */
export function failureRows(trials: readonly TrialRow[]): FailureRow[] {
  const rows = new Map<string, { first: TrialRow; count: number; tasks: Set<string> }>()
  for (const row of trials) {
    if (row.verdict === 'passed') continue
    const key = JSON.stringify([row.configuration, row.verdict, row.blame, codeOf(row)])
    const known = rows.get(key)
    if (known === undefined) rows.set(key, { first: row, count: 1, tasks: new Set([row.task]) })
    else {
      known.count += 1
      known.tasks.add(row.task)
    }
  }
  return [...rows.values()]
    .map(({ first, count, tasks }) => ({
      configuration: first.configuration,
      verdict: first.verdict === 'passed' ? null : first.verdict,
      blame: first.blame,
      code: codeOf(first),
      count,
      tasks: [...tasks],
      message: first.unusable ?? first.reason?.message ?? 'no result yet',
    }))
    .toSorted((a, b) => b.count - a.count)
}

const codeOf = (row: TrialRow): string =>
  row.reason?.code ?? (row.unusable === null ? 'no_result' : 'result_unusable')

export interface BlockedReason {
  readonly reason: string
  readonly count: number
  readonly trials: number
}

/** From the results alone; most frequent first. */
export function blockedReasons(entries: readonly Entry[]): BlockedReason[] {
  const rows = new Map<string, { count: number; trials: number }>()
  for (const { outcome } of entries) {
    if (outcome.kind !== 'result') continue
    for (const [reason, count] of Object.entries(outcome.result.egress.byReason)) {
      if (reason === 'none' || reason === 'noise' || reason.startsWith('allowed_')) continue
      const row = rows.get(reason) ?? { count: 0, trials: 0 }
      rows.set(reason, { count: row.count + count, trials: row.trials + 1 })
    }
  }
  return [...rows]
    .map(([reason, row]) => ({ reason, ...row }))
    .toSorted((a, b) => b.count - a.count || (a.reason < b.reason ? -1 : 1))
}
