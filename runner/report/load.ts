/**
 * From directories to what a report is made from: jobs by their plan and records, or result files alone. One damaged
 * file costs its own trial and is named; a file whose bytes are not those that were recorded counts for nothing.
 */
import { existsSync, globSync, readdirSync, statSync } from 'node:fs'
import path from 'node:path'
import { RunnerError } from '../errors.ts'
import { planFile, resultFile, trialDir } from '../job/layout.ts'
import { readPlan, type Plan } from '../job/plan.ts'
import { foldBlocked } from './blocked.ts'
import {
  entriesOfFiles,
  entriesOfPlan,
  type Entry,
  type FileReading,
  type JobFacts,
  type Outcome,
  type ReportInput,
} from './entries.ts'
import { alarm, noted, type Notice } from './notices.ts'
import { readDenied, type TrialEvidence } from './read-egress.ts'
import { readResultFile } from './read-results.ts'
import { recordsOf, type ResultRecord } from './records.ts'
import { jobFacts } from './report.ts'

export async function loadJobs(jobDirs: readonly string[]): Promise<ReportInput> {
  const jobs: JobFacts[] = []
  const entries: Entry[] = []
  const notices: Notice[] = []
  const evidence: TrialEvidence[] = []
  const ids = new Set<string>()
  let unheld = 0
  for (const jobDir of jobDirs) {
    const plan = await readPlan(planFile(jobDir))
    if (ids.has(plan.job))
      throw new RunnerError('usage', 'operator', `job ${plan.job} is named twice; name it once`)
    ids.add(plan.job)
    jobs.push(jobFacts(plan, jobDir))
    const records = await recordsOf(jobDir)
    const own = entriesOfPlan(plan, (trial) => outcomeOf(jobDir, plan, trial, records.get(trial)))
    for (const entry of own) {
      entries.push(entry)
      if (entry.outcome.kind === 'result' && records.get(entry.trial) === undefined) unheld += 1
      evidence.push({
        directory: trialDir(jobDir, entry.trial),
        executions:
          entry.outcome.kind === 'result'
            ? entry.outcome.result.executions.map(({ id }) => id)
            : null,
      })
    }
  }
  if (unheld > 0)
    notices.push(
      noted(
        'no_record',
        `${unheld} results have no record of their digest, so that their files could not be held against one`,
      ),
    )
  const { events, unreadable } = readDenied(evidence)
  if (unreadable > 0)
    notices.push(
      alarm(
        'egress_unreadable',
        `${unreadable} lines of egress logs can't be read, and the refused attempts by target lack them`,
      ),
    )
  return { from: 'plan', jobs, entries, blocked: foldBlocked(events), notices }
}

/** A result file is written whole, and only for a result that counts; its record tells which bytes those were. */
function outcomeOf(
  jobDir: string,
  plan: Plan,
  trial: string,
  record: ResultRecord | undefined,
): { readonly outcome: Outcome; readonly file: string | null } {
  const file = record === undefined ? resultFile(jobDir, trial) : path.join(jobDir, record.result)
  const reading = readResultFile(file)
  if (!reading.ok)
    return reading.missing === true && record === undefined
      ? { outcome: { kind: 'none' }, file: null }
      : { outcome: { kind: 'unusable', why: reading.why }, file }
  const why = disbelief(reading, plan, trial, record)
  return {
    outcome: why === null ? { kind: 'result', result: reading.result } : { kind: 'unusable', why },
    file,
  }
}

function disbelief(
  { file, digest, result }: Extract<FileReading, { ok: true }>,
  plan: Plan,
  trial: string,
  record: ResultRecord | undefined,
): string | null {
  if (record !== undefined && record.digest !== digest)
    return `${file} is not what was recorded: its digest is ${digest}, the record says ${record.digest}`
  if (result.trial !== trial || result.job !== plan.job)
    return `${file} is of trial ${result.trial} of job ${result.job}`
  return null
}

/** `where`: directories that are searched for result.json at any depth, files, or patterns. */
export function loadFiles(where: readonly string[]): ReportInput {
  const files = [...new Set(where.flatMap(resultFiles))].toSorted()
  const readings = files.map(readResultFile)
  const first = new Map<string, JobFacts>()
  for (const reading of readings) {
    if (!reading.ok) continue
    const { job, startedAt, closedbookVersion } = reading.result
    const before = first.get(job)
    const createdAt =
      before === undefined || startedAt < before.createdAt ? startedAt : before.createdAt
    first.set(job, { job, name: job, createdAt, closedbookVersion, directory: null })
  }
  const jobs = [...first.values()].toSorted((a, b) => (a.job < b.job ? -1 : 1))
  return { from: 'files', jobs, entries: entriesOfFiles(readings), blocked: [], notices: [] }
}

function resultFiles(where: string): string[] {
  const full = path.resolve(where)
  const found = existsSync(full) ? [full] : globSync(where).map((one) => path.resolve(one))
  const files = found.flatMap((one) => (statSync(one).isDirectory() ? resultsBelow(one) : [one]))
  if (files.length > 0) return files
  throw new RunnerError(
    'result_missing',
    'operator',
    `no result.json is in ${where}; name a directory, a file or a pattern in quotes, such as 'jobs/*/trials/*/result.json'`,
  )
}

/** A directory with a result holds the evidence of one trial, and no other result. */
function resultsBelow(directory: string): string[] {
  const result = path.join(directory, 'result.json')
  if (existsSync(result)) return [result]
  const entries = readdirSync(directory, { withFileTypes: true })
  return entries.flatMap((entry) =>
    entry.isDirectory() && entry.name !== 'executions'
      ? resultsBelow(path.join(directory, entry.name))
      : [],
  )
}
