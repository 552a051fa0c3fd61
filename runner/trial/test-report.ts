/**
 * What a suite reported, whatever the format: one entry a test. The report comes out of a container in which the
 * agent's code has run, so every parser here is strict about structure, bounded, and has no features (no entities, no
 * references, no coercion): a report that is not well-formed is no report.
 */
import type { ResultFormat } from '../task/schema.ts'
import { parseCtrf } from './report-ctrf.ts'
import { parseJunit } from './report-junit.ts'
import { parseTap } from './report-tap.ts'
import { ReportError, type ReportedOutcome, type ReportedTest } from './reported.ts'

export const maxReportBytes = 8 * 1024 * 1024
export const maxReportedTests = 200_000

const parsers: Readonly<
  Record<Exclude<ResultFormat, 'reward'>, (text: string) => readonly ReportedTest[]>
> = { junit: parseJunit, ctrf: parseCtrf, tap: parseTap }

/** Throws ReportError. */
export function parseReport(
  format: Exclude<ResultFormat, 'reward'>,
  bytes: Buffer,
): readonly ReportedTest[] {
  const tests = parsers[format](bytes.toString('utf8'))
  if (tests.length > maxReportedTests)
    throw new ReportError(`it has ${tests.length} tests, more than ${maxReportedTests}`)
  return worstOfEach(tests)
}

const badness: Readonly<Record<ReportedOutcome, number>> = {
  passed: 0,
  skipped: 1,
  failed: 2,
  error: 3,
}

/** A test that is reported more than once (teardown errors, reruns) counts as its worst report. */
function worstOfEach(tests: readonly ReportedTest[]): readonly ReportedTest[] {
  const byId = new Map<string, ReportedTest>()
  for (const test of tests) {
    const known = byId.get(test.id)
    if (known === undefined || badness[test.outcome] > badness[known.outcome])
      byId.set(test.id, test)
  }
  return [...byId.values()]
}
