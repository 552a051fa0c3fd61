import t from 'tap'
import { suiteCountsSchema, testResultSchema } from '../../../runner/result.ts'
import { ruleFault, type TrialPhase } from '../../../runner/trial/blame.ts'
import type { Blame } from '../../../daemon/protocol/errors.ts'
import type { Exit } from '../../../daemon/protocol/exec-frames.ts'
import type { ReportedOutcome } from '../../../runner/trial/reported.ts'
import type { SuiteFault } from '../../../runner/trial/suite-run.ts'
import { decideVerdict, type SuiteEvidence } from '../../../runner/trial/verdict.ts'

const canaries = [
  { test: 'test_early_canary', file: 'functional/test_a.py', shared: false },
  { test: 'test_late_canary', file: 'functional/test_z.py', shared: false },
]
const honest = { 'f.a::test_early_canary': 'failed', 'f.z::test_late_canary': 'failed' } as const

interface Given {
  readonly exit?: Exit
  readonly tests?: Readonly<Record<string, ReportedOutcome>>
  readonly fault?: SuiteFault
  readonly planned?: readonly string[] | null
  readonly withoutCanaries?: boolean
  readonly runner?: 'pytest' | 'other'
  readonly results?: 'junit' | 'tap' | 'reward'
}

function evidence(given: Given, suite: 'functional' | 'regression' = 'functional'): SuiteEvidence {
  const planted = given.withoutCanaries !== true
  const tests = { ...(planted ? honest : {}), ...given.tests }
  return {
    suite,
    results: given.results ?? 'junit',
    runner: given.runner ?? 'pytest',
    planned: given.planned === undefined ? ['t::one', 't::two'] : given.planned,
    canaries: planted ? canaries : [],
    run: {
      command: 'pytest -q /tests/functional',
      exit: given.exit ?? { code: 1 },
      report:
        given.fault === undefined
          ? {
              ok: true,
              tests: Object.entries(tests).map(([id, outcome]) => ({
                id,
                outcome,
                durationMs: 1,
                message: null,
              })),
            }
          : { ok: false, fault: given.fault, message: 'no report' },
    },
  }
}

const both = { 't::one': 'passed', 't::two': 'passed' } as const
const none: Readonly<Record<string, ReportedOutcome>> = {}

/** name, given, verdict of a changed tree, reason, passed/failed/missing, verdict of an untouched tree */
const rows: readonly (readonly [string, Given, string, string, string, string])[] = [
  [
    'all planned passed, canaries failed, exit 1',
    { tests: both },
    'passed',
    'tests_passed',
    '2/0/0',
    'passed',
  ],
  [
    'one failed',
    { tests: { ...both, 't::two': 'failed' } },
    'failed',
    'tests_failed',
    '1/1/0',
    'failed',
  ],
  [
    'one errored',
    { tests: { ...both, 't::two': 'error' } },
    'failed',
    'tests_failed',
    '1/1/0',
    'failed',
  ],
  [
    'a skipped test is not passed',
    { tests: { ...both, 't::two': 'skipped' } },
    'failed',
    'tests_failed',
    '1/1/0',
    'failed',
  ],
  [
    'an absent test is not passed',
    { tests: { 't::one': 'passed' } },
    'failed',
    'tests_failed',
    '1/0/1',
    'failed',
  ],
  [
    'tests that nobody planned change nothing, passed or failed',
    { tests: { ...both, 'x::p': 'passed', 'x::f': 'failed' } },
    'passed',
    'tests_passed',
    '2/0/0',
    'passed',
  ],
  [
    'without planned ids the reported ones are planned',
    { planned: null, tests: { ...both, 't::three': 'failed' } },
    'failed',
    'tests_failed',
    '2/1/0',
    'failed',
  ],
  [
    'without planned ids and without tests',
    { planned: null, tests: none },
    'failed',
    'no_tests',
    '0/0/0',
    'void',
  ],
  [
    'a canary that passed',
    { tests: { ...both, 'f.a::test_early_canary': 'passed' } },
    'failed',
    'report_forged',
    '0/0/2',
    'void',
  ],
  [
    'a canary that was skipped',
    { tests: { ...both, 'f.z::test_late_canary': 'skipped' } },
    'failed',
    'report_forged',
    '0/0/2',
    'void',
  ],
  [
    'both canaries passed, exit 0',
    {
      exit: { code: 0 },
      tests: { ...both, 'f.a::test_early_canary': 'passed', 'f.z::test_late_canary': 'passed' },
    },
    'failed',
    'report_forged',
    '0/0/2',
    'void',
  ],
  [
    'everything passed but exit 0 with failed canaries',
    { exit: { code: 0 }, tests: both },
    'failed',
    'report_disagrees',
    '0/0/2',
    'void',
  ],
  ['interrupted', { exit: { code: 2 }, tests: both }, 'failed', 'verifier_broken', '0/0/2', 'void'],
  [
    'internal error',
    { exit: { code: 3 }, tests: both },
    'failed',
    'verifier_broken',
    '0/0/2',
    'void',
  ],
  [
    'killed, as a shell tells it',
    { exit: { code: 137 }, tests: both },
    'failed',
    'verifier_broken',
    '0/0/2',
    'void',
  ],
  [
    'killed by a signal',
    { exit: { signal: 'SIGSEGV' }, tests: both },
    'failed',
    'verifier_broken',
    '0/0/2',
    'void',
  ],
  [
    'an exit that nobody knows',
    { exit: 'unknown', tests: both },
    'failed',
    'verifier_broken',
    '0/0/2',
    'void',
  ],
  [
    'no result file, exit 0',
    { exit: { code: 0 }, fault: 'results_missing' },
    'failed',
    'verifier_broken',
    '0/0/2',
    'void',
  ],
  [
    'a result file that is a link',
    { fault: 'results_not_a_file' },
    'failed',
    'verifier_broken',
    '0/0/2',
    'void',
  ],
  [
    'a result file too large',
    { fault: 'results_too_large' },
    'failed',
    'verifier_broken',
    '0/0/2',
    'void',
  ],
  [
    'a report that is not XML',
    { fault: 'results_unreadable' },
    'failed',
    'verifier_broken',
    '0/0/2',
    'void',
  ],
  [
    'a hang',
    { exit: { signal: 'SIGKILL' }, fault: 'timeout' },
    'failed',
    'verifier_timeout',
    '0/0/2',
    'void',
  ],
  [
    'no canaries, all passed, exit 0',
    { withoutCanaries: true, exit: { code: 0 }, tests: both },
    'passed',
    'tests_passed',
    '2/0/0',
    'passed',
  ],
  [
    'no canaries, all passed, exit 1',
    { withoutCanaries: true, tests: both },
    'failed',
    'report_disagrees',
    '0/0/2',
    'void',
  ],
  [
    'no canaries, one failed, exit 0',
    { withoutCanaries: true, exit: { code: 0 }, tests: { ...both, 't::two': 'failed' } },
    'failed',
    'report_disagrees',
    '0/0/2',
    'void',
  ],
  [
    'another runner may fail with any code',
    {
      withoutCanaries: true,
      runner: 'other',
      results: 'tap',
      exit: { code: 7 },
      tests: { ...both, 't::two': 'failed' },
    },
    'failed',
    'tests_failed',
    '1/1/0',
    'failed',
  ],
  [
    'a reward of one with exit 0',
    {
      withoutCanaries: true,
      runner: 'other',
      results: 'reward',
      planned: null,
      exit: { code: 0 },
      tests: { reward: 'passed' },
    },
    'passed',
    'tests_passed',
    '1/0/0',
    'passed',
  ],
  [
    'a reward of one with exit 1',
    {
      withoutCanaries: true,
      runner: 'other',
      results: 'reward',
      planned: null,
      tests: { reward: 'passed' },
    },
    'failed',
    'report_disagrees',
    '0/0/0',
    'void',
  ],
  [
    'a reward of nought with any exit',
    {
      withoutCanaries: true,
      runner: 'other',
      results: 'reward',
      planned: null,
      exit: { code: 3 },
      tests: { reward: 'failed' },
    },
    'failed',
    'tests_failed',
    '0/1/0',
    'failed',
  ],
]

for (const [name, given, verdict, reason, counts, untouched] of rows)
  t.test(`verdict: ${name}`, async (t) => {
    const decided = decideVerdict({
      changed: true,
      functional: evidence(given),
      regression: null,
    })
    const { functional } = decided.suites
    t.equal(decided.verdict, verdict)
    t.equal(decided.blame, verdict === 'passed' ? null : 'agent')
    t.equal(decided.reason.code, reason)
    t.equal(`${functional.passed}/${functional.failed}/${functional.missing}`, counts)
    t.ok(suiteCountsSchema.safeParse(functional).success, 'the counts are as the result promises')
    for (const test of decided.tests) t.ok(testResultSchema.safeParse(test).success)
    t.notOk(
      decided.tests.some((test) => test.id.includes('canary')),
      'canaries are no tests of the task',
    )
    const own = decideVerdict({ changed: false, functional: evidence(given), regression: null })
    t.equal(own.verdict, untouched)
    if (untouched === 'void') t.equal(own.blame, 'task')
  })

t.test(
  'regression counts as much as functional, and the gravest fault is the reason',
  async (t) => {
    const functional = evidence({ tests: both })
    const broken = evidence({ fault: 'results_missing' }, 'regression')
    const failing = evidence({ tests: { 't::one': 'passed' } }, 'regression')
    const forged = evidence(
      { tests: { ...both, 'f.a::test_early_canary': 'passed' } },
      'regression',
    )
    t.equal(decideVerdict({ changed: true, functional, regression: failing }).verdict, 'failed')
    t.equal(
      decideVerdict({ changed: true, functional, regression: failing }).reason.message,
      'functional 2 of 2, regression 1 of 2 (1 missing)',
    )
    t.equal(
      decideVerdict({
        changed: true,
        functional: evidence({ fault: 'timeout' }),
        regression: forged,
      }).reason.code,
      'report_forged',
    )
    const decided = decideVerdict({ changed: true, functional, regression: broken })
    t.equal(decided.reason.code, 'verifier_broken')
    t.equal(decided.suites.functional.passed, 2, 'what the other suite showed is kept')
  },
)

t.test(
  'a test that failed unplanned is listed, for it may say why others are missing',
  async (t) => {
    const decided = decideVerdict({
      changed: true,
      functional: evidence({ tests: { 'test_new.py': 'error' } }),
      regression: null,
    })
    t.same(
      decided.tests.map((test) => `${test.id} ${test.outcome}`),
      ['t::one missing', 't::two missing', 'test_new.py error'],
    )
  },
)

const faults: readonly (readonly [TrialPhase, string, Blame, string])[] = [
  ['lease', 'lease_no_capacity', 'infra', 'void infra again'],
  ['lease', 'seal_failed', 'infra', 'void infra again'],
  ['lease', 'proof_failed', 'infra', 'void infra again'],
  ['lease', 'image_missing', 'operator', 'void operator'],
  ['lease', 'image_not_pinned', 'operator', 'void task'],
  ['lease', 'bad_request', 'caller', 'void infra'],
  ['agent', 'container_gone', 'infra', 'void infra again'],
  ['agent', 'lease_expired', 'operator', 'void operator'],
  ['verify', 'lease_expired', 'operator', 'void infra again'],
  ['agent', 'cancelled', 'operator', 'void operator'],
  ['collect', 'transfer_failed', 'infra', 'void infra again'],
  ['collect', 'collect_failed', 'task', 'void task'],
  ['collect', 'transfer_failed', 'agent', 'failed agent'],
  ['verify', 'verify_failed', 'infra', 'void infra again'],
  ['close', 'something', 'agent', 'void infra again'],
  ['verify', 'constructor', 'operator', 'void operator'],
]

for (const [phase, code, blame, expected] of faults)
  t.test(`fault: ${code} (${blame}) in ${phase} is ${expected}`, async (t) => {
    const ruling = ruleFault(phase, { code, blame })
    t.equal(`${ruling.verdict} ${ruling.blame}${ruling.retry ? ' again' : ''}`, expected)
  })
