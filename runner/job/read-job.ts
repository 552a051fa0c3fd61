/** A job as it is on disk: plan and report, and where its results lie. With or without a daemon; one bad file costs its own trial. */
import { loadJobs } from '../report/load.ts'
import { reportOf, type Report } from '../report/report.ts'
import { planFile } from './layout.ts'
import { readPlan, type Plan } from './plan.ts'

export interface JobOnDisk {
  readonly plan: Plan
  /** Absolute path of each recorded trial's result. */
  readonly files: ReadonlyMap<string, string>
  readonly report: Report
}

export async function readJob(jobDir: string): Promise<JobOnDisk> {
  const plan = await readPlan(planFile(jobDir))
  const input = await loadJobs([jobDir])
  const files = new Map(
    input.entries.flatMap(({ trial, file, outcome }) =>
      file !== null && outcome.kind === 'result' ? [[trial, file] as const] : [],
    ),
  )
  return { plan, files, report: reportOf(input) }
}
