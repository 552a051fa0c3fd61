/**
 * Which digest each result of a job was recorded with: what a report holds against the files. A graded-again job
 * keeps its records in one file beside its plan.
 */
import { existsSync, readFileSync } from 'node:fs'
import path from 'node:path'
import { z } from 'zod'
import { RunnerError, messageOf } from '../errors.ts'
import { ledgerFile } from '../job/layout.ts'
import { readLedger } from '../job/ledger.ts'

export interface ResultRecord {
  /** Relative to the job's directory. */
  readonly result: string
  readonly digest: string
}

export const regradeFile = (jobDir: string): string => path.join(jobDir, 'regrade.json')

const regradeRecordsSchema = z.looseObject({
  records: z.array(z.looseObject({ trial: z.string(), result: z.string(), digest: z.string() })),
})

/** By trial. A copy of the store's records may lack the last ones, and a directory that was copied may have none. */
export async function recordsOf(jobDir: string): Promise<ReadonlyMap<string, ResultRecord>> {
  const regrade = regradeFile(jobDir)
  if (existsSync(regrade)) return regradeRecords(regrade)
  const { records } = await readLedger(ledgerFile(jobDir))
  return new Map(
    records.flatMap((record) => (record.type === 'recorded' ? [[record.trial, record]] : [])),
  )
}

function regradeRecords(file: string): ReadonlyMap<string, ResultRecord> {
  try {
    const { records } = regradeRecordsSchema.parse(JSON.parse(readFileSync(file, 'utf8')))
    return new Map(records.map((record) => [record.trial, record]))
  } catch (error) {
    throw new RunnerError(
      'ledger_corrupt',
      'operator',
      `${file} can't be read: ${messageOf(error)}. Its results can still be reported with --from-files`,
      { cause: error },
    )
  }
}
