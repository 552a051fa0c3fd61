/** A job by what a person calls it: in the store, where it may lie anywhere, else in the directory of jobs. */
import path from 'node:path'
import type { RunnerConfig } from '../config.ts'
import { RunnerError } from '../errors.ts'
import { findJob } from './layout.ts'

/** Its directory. */
export async function directoryOf(config: RunnerConfig, text: string): Promise<string> {
  if (text.includes(path.sep)) return path.resolve(text)
  const { Store } = await import('../store/store.ts')
  const { allJobs } = await import('../store/trials.ts')
  const store = await Store.openIfThere(config)
  if (store === null) return findJob(config.jobsDir, text)
  await using _store = store
  const jobs = await allJobs(store.database)
  const found = text === 'latest' ? jobs.slice(-1) : jobs.filter(({ job }) => job.startsWith(text))
  const exact = found.find(({ job }) => job === text) ?? (found.length === 1 ? found[0] : undefined)
  if (exact !== undefined) return exact.jobDir
  if (found.length > 1)
    throw new RunnerError(
      'job_unknown',
      'operator',
      `"${text}" is the beginning of ${found.length} jobs: ${found.map(({ job }) => job).join(', ')}`,
    )
  return await findJob(config.jobsDir, text)
}
