/**
 * Finds the job and directory of a trial on disk, for commands that are given its id, the beginning of it, or the id of
 * one of its leases.
 */
import { readdir } from 'node:fs/promises'
import path from 'node:path'
import { RunnerError } from '../errors.ts'
import { inOrder } from '../trial/evidence.ts'
import { executionDir, ledgerFile, listJobs, planFile, trialDir } from './layout.ts'
import { readLedger } from './ledger.ts'
import { readPlan, type Plan, type PlannedTrial } from './plan.ts'

export interface FoundTrial {
  readonly jobDir: string
  readonly trialDir: string
  readonly plan: Plan
  readonly planned: PlannedTrial
}

/** null when no job of `jobsDir` knows it. A job whose plan can't be read is passed over. */
export async function findTrial(jobsDir: string, id: string): Promise<FoundTrial | null> {
  const jobs: { jobDir: string; plan: Plan }[] = []
  for (const name of (await listJobs(jobsDir)).reverse()) {
    const jobDir = path.join(jobsDir, name)
    const plan = await readPlan(planFile(jobDir)).catch(() => null)
    if (plan !== null) jobs.push({ jobDir, plan })
  }
  const found = jobs.flatMap(({ jobDir, plan }) =>
    plan.trials
      .filter((one) => one.trial.startsWith(id))
      .map((planned) => ({ jobDir, plan, planned, trialDir: trialDir(jobDir, planned.trial) })),
  )
  const exact = found.find(({ planned }) => planned.trial === id) ?? found[0]
  if (exact !== undefined) {
    if (found.length > 1 && exact.planned.trial !== id) throw ambiguous(id, found)
    return exact
  }
  for (const { jobDir, plan } of jobs) {
    const records = await readLedger(ledgerFile(jobDir)).then(
      (ledger) => ledger.records,
      () => [],
    )
    const started = records.find((one) => one.type === 'started' && one.leases.includes(id))
    const planned = plan.trials.find((one) => one.trial === started?.trial)
    if (planned !== undefined)
      return { jobDir, plan, planned, trialDir: trialDir(jobDir, planned.trial) }
  }
  return null
}

const ambiguous = (id: string, found: readonly FoundTrial[]): RunnerError =>
  new RunnerError(
    'trial_unknown',
    'operator',
    `"${id}" is the beginning of ${found.length} trials: ${found
      .slice(0, 8)
      .map(({ planned }) => planned.trial)
      .join(', ')}${found.length > 8 ? ', …' : ''}; write more of the id`,
  )

/** The directory of its newest execution; null before the first has begun. */
export async function newestExecution(found: FoundTrial): Promise<string | null> {
  const names = await readdir(path.join(found.trialDir, 'executions')).catch(() => [])
  const last = names.toSorted(inOrder).at(-1)
  return last === undefined ? null : executionDir(found.jobDir, found.planned.trial, last)
}
