/** Where the files of jobs are: one place that knows the names. */
import { readdir } from 'node:fs/promises'
import path from 'node:path'
import { RunnerError, systemCode } from '../errors.ts'

export const planFile = (jobDir: string): string => path.join(jobDir, 'plan.json')
export const ledgerFile = (jobDir: string): string => path.join(jobDir, 'ledger.jsonl')
export const sourcesFile = (jobDir: string): string => path.join(jobDir, 'sources.json')
export const trialDir = (jobDir: string, trial: string): string =>
  path.join(jobDir, 'trials', trial)
export const resultFile = (jobDir: string, trial: string): string =>
  path.join(trialDir(jobDir, trial), 'result.json')
export const executionDir = (jobDir: string, trial: string, execution: string): string =>
  path.join(trialDir(jobDir, trial), 'executions', execution)

/** Jobs by id, newest last. */
export async function listJobs(jobsDir: string): Promise<string[]> {
  try {
    const entries = await readdir(jobsDir, { withFileTypes: true })
    return entries
      .filter((entry) => entry.isDirectory())
      .map(({ name }) => name)
      .toSorted()
  } catch (error) {
    if (systemCode(error) === 'ENOENT') return []
    throw error
  }
}

/** A job by its id, an unambiguous beginning of it, its path, or `latest`. */
export async function findJob(jobsDir: string, text: string): Promise<string> {
  if (text.includes(path.sep)) return path.resolve(text)
  const jobs = await listJobs(jobsDir)
  if (jobs.length === 0)
    throw new RunnerError('job_unknown', 'operator', `no job has been run yet in ${jobsDir}`)
  const found = text === 'latest' ? jobs.slice(-1) : jobs.filter((job) => job.startsWith(text))
  const exact = found.find((job) => job === text) ?? (found.length === 1 ? found[0] : undefined)
  if (exact !== undefined) return path.join(jobsDir, exact)
  throw new RunnerError(
    'job_unknown',
    'operator',
    found.length > 1
      ? `"${text}" is the beginning of ${found.length} jobs: ${found.join(', ')}`
      : `no job "${text}" in ${jobsDir}; \`closedbook ps\` shows what there is`,
  )
}
