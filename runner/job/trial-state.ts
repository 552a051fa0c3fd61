/** What a ledger says of one trial. Pure. */
import type { TrialBlame, TrialReason, Verdict } from '../result.ts'
import type { LedgerRecord } from './ledger.ts'

/** Executions that infra may spoil before the trial is recorded as void. */
export const maxExecutions = 3

export interface ExecutionState {
  readonly execution: string
  readonly leases: readonly string[]
  readonly startedAt: string
  readonly endedAt: string | null
  readonly blame: TrialBlame | null
  readonly reason: TrialReason | null
}

interface Common {
  readonly trial: string
  readonly executions: readonly ExecutionState[]
}

export type TrialState =
  | (Common & { readonly status: 'pending' })
  | (Common & { readonly status: 'running'; readonly current: ExecutionState })
  | (Common & {
      readonly status: 'recorded'
      readonly verdict: Verdict
      readonly result: string
      readonly digest: string
    })

/** A void trial that is being tried again runs, though its old result stands until the next. */
export function foldTrial(trial: string, records: readonly LedgerRecord[]): TrialState {
  const executions = new Map<string, ExecutionState>()
  let recorded: Extract<LedgerRecord, { type: 'recorded' }> | null = null
  let startedSince: string | null = null
  for (const record of records) {
    if (record.trial !== trial) continue
    const begun = executions.get(record.execution)
    if (record.type === 'recorded') {
      recorded = record
      startedSince = null
    } else if (record.type === 'started') {
      startedSince = record.execution
      executions.set(record.execution, {
        execution: record.execution,
        leases: record.leases,
        startedAt: record.time,
        endedAt: null,
        blame: null,
        reason: null,
      })
    } else if (begun !== undefined && begun.endedAt === null)
      executions.set(record.execution, {
        ...begun,
        endedAt: record.time,
        blame: record.blame,
        reason: record.reason,
      })
  }
  const all = [...executions.values()]
  const common = { trial, executions: all }
  const live = all.findLast((one) => one.endedAt === null)
  if (recorded !== null && (live === undefined || live.execution !== startedSince)) {
    const { verdict, result, digest } = recorded
    return { ...common, status: 'recorded', verdict, result, digest }
  }
  return live === undefined
    ? { ...common, status: 'pending' }
    : { ...common, status: 'running', current: live }
}
