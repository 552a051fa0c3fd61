/**
 * From what the suites reported to the verdict of a trial. Pure: no I/O, no clock. Closed rules, in this order:
 *  1. A suite that hung, died or left no usable report is the agent's failure when the agent changed something, and the
 *     task's fault (void) when the tree under test was the image's own.
 *  2. A report in which a canary passed, was skipped or is absent was forged: the same split.
 *  3. The exit must agree with the report, canaries included: pytest ends with 1 when any test failed, else 0, and any
 *     other exit is a broken run; any other runner ends with 0 exactly when nothing failed. For a reward a pass
 *     needs exit 0; a failing reward needs nothing. Of a Harbor task's script the exit is of no account, as in Harbor.
 *  4. `passed` means that every planned test of every suite was reported as passed. Absent, skipped and erroneous tests are not.
 * With canaries in it, an honest pytest run therefore always ends with exit 1.
 */
import type { Exit } from '../../daemon/protocol/exec-frames.ts'
import type { SuiteCounts, TestResult, TrialBlame, TrialReason, Verdict } from '../result.ts'
import { suiteNotRun } from '../result.ts'
import type { ResultFormat } from '../task/schema.ts'
import type { SuiteName } from '../task/task.ts'
import { isOf, type Canary } from './canary.ts'
import type { ReportedTest } from './reported.ts'
import type { Rewards } from './report-reward.ts'
import type { SuiteRun } from './suite-run.ts'

export interface SuiteEvidence {
  readonly suite: SuiteName
  readonly results: ResultFormat
  readonly runner: 'pytest' | 'other'
  readonly manner?: 'harbor' | undefined
  /** Ids that must be reported as passed; null: whatever the report names. */
  readonly planned: readonly string[] | null
  readonly canaries: readonly Canary[]
  readonly run: Pick<SuiteRun, 'command' | 'exit' | 'report'>
}

export interface VerdictInput {
  /** False when the tree under test is the image's own, untouched: then a broken suite is the task's fault. */
  readonly changed: boolean
  readonly functional: SuiteEvidence
  /** null: the task has no such suite. */
  readonly regression: SuiteEvidence | null
}

export interface Decided {
  readonly verdict: Verdict
  readonly blame: TrialBlame | null
  readonly reason: TrialReason
  readonly suites: { readonly functional: SuiteCounts; readonly regression: SuiteCounts }
  readonly tests: readonly TestResult[]
  /** What the functional suite wrote, where it reports rewards and they can be read. */
  readonly rewards: Rewards | null
}

export type SuiteFaultCode =
  | 'verifier_timeout'
  | 'verifier_broken'
  | 'report_forged'
  | 'report_disagrees'
  | 'no_tests'

interface Judged {
  readonly fault: { readonly code: SuiteFaultCode; readonly message: string } | null
  readonly counts: SuiteCounts
  readonly tests: readonly TestResult[]
}

export function decideVerdict(input: VerdictInput): Decided {
  const functional = judge(input.functional)
  const regression = input.regression === null ? null : judge(input.regression)
  const judged = regression === null ? [functional] : [functional, regression]
  const facts = {
    suites: {
      functional: functional.counts,
      regression: regression?.counts ?? suiteNotRun(null, 0),
    },
    tests: judged.flatMap(({ tests }) => tests),
    rewards: rewardsOf(input.functional),
  }
  const faults = judged.flatMap(({ fault }) => (fault === null ? [] : [fault]))
  const [worst] = faults.sort((a, b) => gravity.indexOf(a.code) - gravity.indexOf(b.code))
  if (worst !== undefined)
    return input.changed
      ? { verdict: 'failed', blame: 'agent', reason: worst, ...facts }
      : {
          verdict: 'void',
          blame: 'task',
          reason: {
            ...worst,
            message: `${worst.message}; nothing was changed in the tree, so the task's own tests are at fault`,
          },
          ...facts,
        }
  const failing = judged.filter(({ counts }) => counts.passed < counts.planned)
  const summary = judged.map(({ counts }, index) => countsText(index, counts)).join(', ')
  return failing.length === 0
    ? {
        verdict: 'passed',
        blame: null,
        reason: { code: 'tests_passed', message: summary },
        ...facts,
      }
    : {
        verdict: 'failed',
        blame: 'agent',
        reason: { code: 'tests_failed', message: summary },
        ...facts,
      }
}

const rewardsOf = ({ run: { report } }: SuiteEvidence): Rewards | null =>
  report.ok ? (report.rewards ?? null) : null

const gravity: readonly SuiteFaultCode[] = [
  'report_forged',
  'report_disagrees',
  'verifier_timeout',
  'verifier_broken',
  'no_tests',
]

function countsText(index: number, counts: SuiteCounts): string {
  const missing = counts.missing === 0 ? '' : ` (${counts.missing} missing)`
  return `${index === 0 ? 'functional' : 'regression'} ${counts.passed} of ${counts.planned}${missing}`
}

function judge(evidence: SuiteEvidence): Judged {
  const { suite, run, canaries } = evidence
  if (!run.report.ok) {
    const code = run.report.fault === 'timeout' ? 'verifier_timeout' : 'verifier_broken'
    const ended = run.report.fault === 'timeout' ? '' : ` (it ended with ${exitText(run.exit)})`
    return withoutReport(evidence, code, `${suite}: ${run.report.message}${ended}`)
  }
  const reported = run.report.tests
  const isCanary = (test: ReportedTest): boolean => canaries.some((canary) => isOf(canary, test.id))
  const disagreement = exitDisagreement(evidence, reported)
  if (disagreement?.code === 'verifier_broken')
    return withoutReport(evidence, 'verifier_broken', disagreement.message)
  const forged = canaries.filter((canary) => !told(canary, reported))
  if (forged.length > 0)
    return withoutReport(
      evidence,
      'report_forged',
      `${suite}: ${forged.length} of ${canaries.length} tests that must fail did not fail in the report`,
    )
  if (disagreement !== null) return withoutReport(evidence, disagreement.code, disagreement.message)
  return counted(
    evidence,
    reported.filter((test) => !isCanary(test)),
  )
}

/** As it must be: failed, or absent with the whole file that it stands in, of which nothing passed then. */
function told(canary: Canary, reported: readonly ReportedTest[]): boolean {
  const broken = ({ outcome }: ReportedTest): boolean => outcome === 'failed' || outcome === 'error'
  const own = reported.filter((test) => isOf(canary, test.id))
  // A copy of a test shares its fixtures and marks, which may skip it.
  if (own.length > 0)
    return (
      !own.some(({ outcome }) => outcome === 'passed') && (canary.copy === true || own.some(broken))
    )
  if (!canary.shared) return false
  const module = canary.file.replace(/^.*\//, '').replace(/\.py$/, '')
  const ofModule = ({ id }: ReportedTest): boolean => id.split(/[.:]+/).includes(module)
  return (
    reported.some((test) => ofModule(test) && broken(test) && test.id.endsWith(module)) &&
    !reported.some((test) => ofModule(test) && test.outcome === 'passed')
  )
}

function counted(evidence: SuiteEvidence, reported: readonly ReportedTest[]): Judged {
  const { suite, run } = evidence
  const byId = new Map(reported.map((test) => [test.id, test]))
  const planned = new Set(evidence.planned ?? byId.keys())
  const tests: TestResult[] = []
  let passed = 0
  let missing = 0
  for (const id of planned) {
    const test = byId.get(id)
    if (test === undefined) missing += 1
    else if (test.outcome === 'passed') passed += 1
    tests.push(resultOf(suite, id, test))
  }
  // What nobody planned doesn't count; what went wrong in it may explain what is missing.
  for (const test of reported)
    if (!planned.has(test.id) && (test.outcome === 'failed' || test.outcome === 'error'))
      tests.push(resultOf(suite, test.id, test))
  return {
    fault:
      planned.size > 0
        ? null
        : { code: 'no_tests', message: `${suite}: the report names no test at all` },
    counts: {
      planned: planned.size,
      passed,
      failed: planned.size - passed - missing,
      missing,
      command: run.command,
      exit: run.exit,
    },
    tests,
  }
}

const resultOf = (suite: SuiteName, id: string, test: ReportedTest | undefined): TestResult => ({
  suite,
  id,
  outcome: test?.outcome ?? 'missing',
  durationMs: test?.durationMs ?? null,
  message: test?.message ?? null,
})

/** A report that can't be believed counts for nothing: every planned test is missing. */
function withoutReport(evidence: SuiteEvidence, code: SuiteFaultCode, message: string): Judged {
  const planned = evidence.planned ?? []
  return {
    fault: { code, message },
    counts: {
      ...suiteNotRun(evidence.run.command, planned.length),
      exit: evidence.run.exit,
    },
    tests: planned.map((id) => resultOf(evidence.suite, id, undefined)),
  }
}

function exitDisagreement(
  { suite, run, results, runner, manner }: SuiteEvidence,
  reported: readonly ReportedTest[],
): { readonly code: 'verifier_broken' | 'report_disagrees'; readonly message: string } | null {
  if (manner === 'harbor') return null
  const { exit } = run
  const failed = reported.some((test) => test.outcome === 'failed' || test.outcome === 'error')
  if (results === 'reward') {
    if (failed || (typeof exit === 'object' && 'code' in exit && exit.code === 0)) return null
    return {
      code: 'report_disagrees',
      message: `${suite}: the reward says passed, but the command ended with ${exitText(exit)}`,
    }
  }
  if (typeof exit !== 'object' || !('code' in exit))
    return {
      code: 'verifier_broken',
      message: `${suite}: the command ended with ${exitText(exit)}`,
    }
  if (runner === 'pytest' && exit.code > 1)
    return {
      code: 'verifier_broken',
      message: `${suite}: pytest ended with ${exit.code} (${pytestExits[exit.code] ?? 'killed or crashed'})`,
    }
  if ((exit.code !== 0) === failed) return null
  return {
    code: 'report_disagrees',
    message: `${suite}: the report has ${failed ? 'failed tests' : 'no failed test'}, but the command ended with ${exit.code}`,
  }
}

const pytestExits: Readonly<Record<number, string>> = {
  2: 'interrupted',
  3: 'internal error',
  4: 'usage error',
  5: 'no tests collected',
}

function exitText(exit: Exit): string {
  if (exit === 'unknown') return 'an unknown exit'
  return 'code' in exit ? `exit ${exit.code}` : `signal ${exit.signal}`
}
