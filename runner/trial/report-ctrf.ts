/** CTRF JSON (`results.tests[]`). Id: the name, after the suite where there is one; `pending` and `other` count as skipped. */
import { z } from 'zod'
import {
  ReportError,
  idText,
  messageText,
  type ReportedOutcome,
  type ReportedTest,
} from './reported.ts'

const schema = z.looseObject({
  results: z.looseObject({
    tests: z.array(
      z.looseObject({
        name: z.string(),
        status: z.enum(['passed', 'failed', 'skipped', 'pending', 'other']),
        duration: z.number().nonnegative().optional(),
        message: z.string().nullish(),
        suite: z.union([z.string(), z.array(z.string())]).nullish(),
      }),
    ),
  }),
})

const outcomes: Readonly<Record<string, ReportedOutcome>> = { passed: 'passed', failed: 'failed' }

export function parseCtrf(text: string): readonly ReportedTest[] {
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch (error) {
    throw new ReportError(`it is not JSON: ${String(error)}`)
  }
  const parsed = schema.safeParse(value)
  if (!parsed.success) throw new ReportError(`it is not CTRF: ${z.prettifyError(parsed.error)}`)
  return parsed.data.results.tests.map((test) => ({
    id: idText([...suitesOf(test.suite), test.name].join(' > ')),
    outcome: outcomes[test.status] ?? 'skipped',
    durationMs: test.duration ?? null,
    message: messageText(test.message ?? ''),
  }))
}

const suitesOf = (suite: string | string[] | null | undefined): readonly string[] =>
  typeof suite === 'string' ? (suite === '' ? [] : [suite]) : (suite ?? [])
