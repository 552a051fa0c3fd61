/** What a ledger says of one trial. Pure. */
import type { Verdict } from '../result.ts'
import type { LedgerRecord } from './ledger.ts'

/** Executions that infra may spoil before the trial is recorded as void. */
export const maxExecutions = 3

export interface ExecutionState {
  readonly execution: string
  readonly leases: readonly string[]
  readonly startedAt: string
  readonly endedAt: string | null
  readonly blame: 'agent' | 'infra' | 'task' | 'operator' | null
  readonly reason: { readonly code: string; readonly message: string } | null
}

interface Common {
  readonly trial: string
  readonly executions: readonly ExecutionState[]
  /** Ended by infra, dead ones included. */
  readonly infraFaults: number
  /** Another execution is allowed. */
  readonly mayExecute: boolean
}

export type TrialState =
  | (Common & { readonly status: 'pending' })
  /** `dead`: started by a process that no longer lives; its leases must be closed and its end recorded as infra. */
  | (Common & {
      readonly status: 'running'
      readonly current: ExecutionState
      readonly dead: boolean
    })
  | (Common & {
      readonly status: 'recorded'
      readonly verdict: Verdict
      readonly result: string
      readonly digest: string
    })

/** `own`: executions started by the process that asks; readers without the lock give `null`, and none is dead. */
export function foldTrial(
  trial: string,
  records: readonly LedgerRecord[],
  own: ReadonlySet<string> | null,
): TrialState {
  const executions = new Map<string, ExecutionState>()
  let recorded: Extract<LedgerRecord, { type: 'recorded' }> | null = null
  for (const record of records) {
    if (record.trial !== trial) continue
    if (record.type === 'recorded') recorded = record
    if (record.type === 'started')
      executions.set(record.execution, {
        execution: record.execution,
        leases: record.leases,
        startedAt: record.time,
        endedAt: null,
        blame: null,
        reason: null,
      })
    const begun = executions.get(record.execution)
    if (record.type === 'ended' && begun !== undefined && begun.endedAt === null)
      executions.set(record.execution, {
        ...begun,
        endedAt: record.time,
        blame: record.blame,
        reason: record.reason,
      })
  }
  const all = [...executions.values()]
  const isDead = (one: ExecutionState) =>
    one.endedAt === null && own !== null && !own.has(one.execution)
  const infraFaults = all.filter((one) => one.blame === 'infra' || isDead(one)).length
  const common = { trial, executions: all, infraFaults, mayExecute: infraFaults < maxExecutions }
  if (recorded !== null) {
    const { verdict, result, digest } = recorded
    return { ...common, mayExecute: false, status: 'recorded', verdict, result, digest }
  }
  const current = all.findLast((one) => one.endedAt === null)
  if (current !== undefined) return { ...common, status: 'running', current, dead: isDead(current) }
  return { ...common, status: 'pending' }
}
