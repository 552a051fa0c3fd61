/** A job as it is on disk: plan, results so far, and what was blocked. For reports, with or without a daemon. */
import path from 'node:path'
import { foldBlocked } from '../report/blocked.ts'
import { buildReport, type Report } from '../report/report.ts'
import { readResult, type TrialResult } from '../result.ts'
import { readEgressFile } from '../trial/evidence.ts'
import type { AuditEvent } from '../../policy/audit-event.ts'
import { ledgerFile, planFile, trialDir } from './layout.ts'
import { readLedger } from './ledger.ts'
import { readPlan, type Plan } from './plan.ts'
import { foldTrial } from './trial-state.ts'

export interface JobOnDisk {
  readonly plan: Plan
  readonly results: readonly TrialResult[]
  /** Absolute path of each recorded trial's result. */
  readonly files: ReadonlyMap<string, string>
  readonly report: Report
}

export async function readJob(jobDir: string): Promise<JobOnDisk> {
  const plan = await readPlan(planFile(jobDir))
  const { records } = await readLedger(ledgerFile(jobDir))
  const results: TrialResult[] = []
  const files = new Map<string, string>()
  const events: AuditEvent[] = []
  for (const { trial } of plan.trials) {
    const state = foldTrial(trial, records, null)
    if (state.status === 'recorded') {
      const file = path.join(jobDir, state.result)
      files.set(trial, file)
      results.push(await readResult(file))
    }
    for await (const event of readEgressFile(trialDir(jobDir, trial))) events.push(event)
  }
  const blocked = foldBlocked(events)
  return { plan, results, files, report: buildReport({ plan, results, blocked }) }
}
