/**
 * What came of an execution, kept in its directory before the store is told: a report that could not be delivered,
 * because the store and then this process were gone, is delivered by the next resume.
 */
import { readFile } from 'node:fs/promises'
import path from 'node:path'
import { z } from 'zod'
import { writeFileAtomic } from '../json-file.ts'
import { executionDir } from '../job/layout.ts'
import { blames, parseResult, reasonSchema, serializeResult, type TrialResult } from '../result.ts'
import type { End, ResultRow } from '../store/settle.ts'

const outcomeSchema = z.strictObject({
  execution: z.string(),
  blame: z.enum(blames).nullable(),
  reason: reasonSchema,
  costUsd: z.number(),
  endedAt: z.iso.datetime(),
  /** Text of result.json; null: the trial was to be run again. */
  result: z.string().nullable(),
})

const fileOf = (jobDir: string, trial: string, execution: string): string =>
  path.join(executionDir(jobDir, trial, execution), 'outcome.json')

export const rowOf = (result: TrialResult): ResultRow => {
  const { text, digest } = serializeResult(result)
  const { verdict, blame, costUsd, wallTimeMs } = result
  return { verdict, blame, digest, body: text, costUsd, wallTimeMs }
}

export const keepOutcome = (jobDir: string, trial: string, end: End): Promise<void> =>
  writeFileAtomic(
    fileOf(jobDir, trial, end.execution),
    `${JSON.stringify({ ...end, result: end.result?.body ?? null })}\n`,
  )

export async function keptOutcome(
  jobDir: string,
  trial: string,
  execution: string,
): Promise<End | null> {
  const file = fileOf(jobDir, trial, execution)
  const text = await readFile(file, 'utf8').catch(() => null)
  if (text === null) return null
  try {
    const outcome = outcomeSchema.parse(JSON.parse(text))
    const { result } = outcome
    return { ...outcome, result: result === null ? null : rowOf(parseResult(result, file)) }
  } catch {
    return null
  }
}
