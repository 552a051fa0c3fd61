/**
 * The directory of a job that is to be reported: where jobs are kept, and only then the store, which knows those that
 * lie elsewhere. A report of a directory needs no store at all.
 */
import type { RunnerConfig } from '../config.ts'
import { directoryOf } from '../job/find-job.ts'
import { findJob } from '../job/layout.ts'

export async function reportedJob(config: RunnerConfig, text: string): Promise<string> {
  if (text === 'latest') return directoryOf(config, text)
  return findJob(config.jobsDir, text).catch(() => directoryOf(config, text))
}
