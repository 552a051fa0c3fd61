/**
 * From the trials of no-op and oracle to what they say of a task. Pure: no I/O, no clock. The rules, test by test:
 *  - the no-op fails every functional test, and passes every regression test;
 *  - the no-op leaves the work tree as the image has it;
 *  - the oracle passes every test of both;
 *  - a test that ends differently from repeat to repeat is flaky, whoever it favours;
 *  - the ids that the oracle's runs report are those that a trial must report.
 * A repeat that infrastructure spoiled proves nothing, so a task with one isn't qualified either.
 */
import type { TestResult, TrialReason, TrialResult } from '../result.ts'
import type { SuiteName, Task } from '../task/task.ts'
import type { Agent, Finding, Qualification, QualifiedTest } from './document.ts'

export interface AgentRun {
  readonly agent: Agent
  readonly run: number
  readonly result: Pick<TrialResult, 'verdict' | 'blame' | 'reason' | 'tests'>
  /** Paths of the work tree that its patch changes; absent where there is no patch. */
  readonly changed?: readonly string[]
}

export interface Judgement {
  readonly findings: readonly Finding[]
  readonly tests: readonly QualifiedTest[]
  readonly expected: Qualification['expected']
}

type Outcome = TestResult['outcome']
const suites = ['functional', 'regression'] as const

export function judge(runs: readonly AgentRun[], stated: Task['suites']): Judgement {
  const findings: Finding[] = [...spoiled(runs), ...unreported(runs, stated), ...written(runs)]
  // A run whose suite reported nothing says nothing about its single tests; that is told above.
  const of = (agent: Agent, suite: SuiteName): AgentRun[] =>
    runs.filter((one) => one.agent === agent && isScored(one) && isReported(one, suite))
  const expected = {
    functional: reportedIds(of('oracle', 'functional'), 'functional'),
    regression: reportedIds(of('oracle', 'regression'), 'regression'),
  }
  const tests = suites.flatMap((suite) =>
    testsOf(suite, expected[suite], of('noop', suite), of('oracle', suite)),
  )
  for (const suite of suites) findings.push(...unstableIds(of('oracle', suite), suite))
  findings.push(...misstated(stated, expected), ...misjudged(tests), ...flaky(tests))
  if (runs.length > 0 && expected.functional.length === 0 && findings.length === 0)
    findings.push(
      error(
        'no_functional_tests',
        'the oracle reported no functional test',
        'name tests in the functional suite',
      ),
    )
  return { findings, tests, expected }
}

const isScored = ({ result }: AgentRun): boolean => result.verdict !== 'void'

const isReported = ({ result }: AgentRun, suite: SuiteName): boolean =>
  result.tests.some((test) => test.suite === suite && test.outcome !== 'missing')

export const isQualified = (findings: readonly Finding[]): boolean =>
  !findings.some(({ severity }) => severity === 'error')

function finding(severity: Finding['severity']) {
  return (
    code: string,
    message: string,
    advice: string,
    tests: readonly string[] = [],
  ): Finding => ({
    code,
    severity,
    message,
    advice,
    tests: [...tests],
  })
}
const error = finding('error')
const warning = finding('warning')

const nameOf = ({ agent, run }: AgentRun): string => `${agent}, repeat ${run}`

/** Repeats without a verdict. */
function spoiled(runs: readonly AgentRun[]): Finding[] {
  return runs
    .filter(({ result }) => result.verdict === 'void')
    .map((one) =>
      error(
        one.result.blame === 'infra' ? 'spoiled' : 'void',
        `${nameOf(one)} ended without a verdict: ${text(one.result.reason)}`,
        one.result.blame === 'infra'
          ? 'a fault of the host, not of the task: see closedbook doctor, then qualify again'
          : one.agent === 'noop'
            ? 'the tests must run to their end and report on the image as it is: make them fail, not break'
            : 'see the message; the oracle is solution/solve.sh',
      ),
    )
}

/** Scored, but without a list of tests: a suite broke, or hung. */
function unreported(runs: readonly AgentRun[], stated: Task['suites']): Finding[] {
  return runs.filter(isScored).flatMap((one) => {
    const silent = suites.filter((suite) => stated[suite] !== null && !isReported(one, suite))
    return silent.length === 0
      ? []
      : [
          error(
            'no_report',
            `${nameOf(one)}: no test of the ${silent.join(' and the ')} suite was reported: ${text(one.result.reason)}`,
            "see the suites' output in the evidence; the command must write its results to {results}, in time",
          ),
        ]
  })
}

/** What the task itself writes would be in every agent's patch, and make one that did nothing look as if it had worked. */
function written(runs: readonly AgentRun[]): Finding[] {
  const paths = new Set(
    runs.flatMap(({ agent, changed = [] }) => (agent === 'noop' ? changed : [])),
  )
  const shown = [...paths].toSorted().slice(0, 5).join(', ')
  return paths.size === 0
    ? []
    : [
        error(
          'noop_changes',
          `without any agent the work tree is not as the image has it: ${shown}${paths.size > 5 ? ` and ${paths.size - 5} more` : ''}`,
          'the health check or a collect hook of the task writes there: let it write elsewhere (/tmp, /run), or put the files into the image',
        ),
      ]
}

const text = ({ code, message }: TrialReason): string => `${message} [${code}]`

/** Reported by every repeat of the oracle. */
function reportedIds(oracle: readonly AgentRun[], suite: SuiteName): string[] {
  const [first, ...others] = oracle.map((one) => idsOf(one, suite))
  return [...(first ?? [])].filter((id) => others.every((ids) => ids.has(id)))
}

const idsOf = ({ result }: AgentRun, suite: SuiteName): Set<string> =>
  new Set(
    result.tests
      .filter((test) => test.suite === suite && test.outcome !== 'missing')
      .map(({ id }) => id),
  )

/** What only some repeats reported. */
function unstableIds(oracle: readonly AgentRun[], suite: SuiteName): Finding[] {
  const sets = oracle.map((one) => idsOf(one, suite))
  const all = new Set(sets.flatMap((ids) => [...ids]))
  const some = [...all].filter((id) => sets.some((ids) => !ids.has(id)))
  return some.length === 0
    ? []
    : [
        error(
          'ids_change',
          `${suite}: ${count(some)} reported by some repeats of the oracle and not by others`,
          'name tests (and their parameters) without times, addresses, random values or the order of sets',
          some,
        ),
      ]
}

/** task.toml says which tests there are, and the oracle's runs say otherwise. */
function misstated(stated: Task['suites'], expected: Qualification['expected']): Finding[] {
  return suites.flatMap((suite) => {
    const listed = stated[suite]?.expected ?? null
    if (listed === null || expected[suite].length === 0) return []
    const missing = listed.filter((id) => !expected[suite].includes(id))
    const unlisted = expected[suite].filter((id) => !listed.includes(id))
    const found: Finding[] =
      unlisted.length === 0
        ? []
        : [
            warning(
              'expected_unlisted',
              `${suite}: ${count(unlisted)} reported and not listed in task.toml, so never asked for`,
              `add them to closedbook.${suite}.expected, or leave the list out`,
              unlisted,
            ),
          ]
    return missing.length === 0
      ? found
      : [
          ...found,
          error(
            'expected_missing',
            `${suite}: ${count(missing)} listed in task.toml and reported by no run of the oracle`,
            `take them out of closedbook.${suite}.expected, or leave the list out: this qualification holds one`,
            missing,
          ),
        ]
  })
}

const outcomesOf = (runs: readonly AgentRun[], suite: SuiteName, id: string): Outcome[] =>
  runs.map(
    ({ result }) =>
      result.tests.find((test) => test.suite === suite && test.id === id)?.outcome ?? 'missing',
  )

function testsOf(
  suite: SuiteName,
  expected: readonly string[],
  noop: readonly AgentRun[],
  oracle: readonly AgentRun[],
): QualifiedTest[] {
  // What only the no-op reports is a module that can't be imported without the work, or a test that the work removed.
  const extra = noop.flatMap((one) => [...idsOf(one, suite)]).filter((id) => !expected.includes(id))
  const some = oracle
    .flatMap((one) => [...idsOf(one, suite)])
    .filter((id) => !expected.includes(id))
  return [...new Set([...expected, ...some, ...extra])].map((id) => {
    const outcomes = { noop: outcomesOf(noop, suite, id), oracle: outcomesOf(oracle, suite, id) }
    const moves = (all: readonly Outcome[]): boolean => new Set(all.map(kind)).size > 1
    return { suite, id, ...outcomes, flaky: moves(outcomes.noop) || moves(outcomes.oracle) }
  })
}

/** How it fails is no matter of flakiness: a test that errs in one repeat and fails in the next is a failed test. */
const kind = (outcome: Outcome): 'passed' | 'not passed' =>
  outcome === 'passed' ? 'passed' : 'not passed'

function misjudged(tests: readonly QualifiedTest[]): Finding[] {
  const found: Finding[] = []
  const add = (
    code: string,
    which: (test: QualifiedTest) => boolean,
    message: string,
    advice: string,
  ): void => {
    const bad = tests.filter(which).map(({ id }) => id)
    if (bad.length > 0) found.push(error(code, `${count(bad)} ${message}`, advice, bad))
  }
  const never = (all: readonly Outcome[]): boolean => all.every((one) => one !== 'passed')
  const always = (all: readonly Outcome[]): boolean => all.every((one) => one === 'passed')
  const inOracle = ({ oracle }: QualifiedTest): boolean => oracle.some((one) => one !== 'missing')
  add(
    'noop_passes',
    (test) => test.suite === 'functional' && !never(test.noop),
    'of the functional suite passed without any work',
    'a functional test asks for what the task asks for: sharpen it, or move it to the regression suite',
  )
  add(
    'noop_breaks',
    (test) => test.suite === 'regression' && inOracle(test) && !always(test.noop),
    'of the regression suite did not pass on the image as it is',
    'a regression test guards what works before the task: mend it, or move it to the functional suite',
  )
  add(
    'oracle_fails',
    (test) => inOracle(test) && !always(test.oracle),
    'did not pass with the reference solution',
    'mend solution/ or the test; no agent can do better than the task says',
  )
  return found
}

function flaky(tests: readonly QualifiedTest[]): Finding[] {
  const moving = tests.filter((test) => test.flaky).map(({ id }) => id)
  return moving.length === 0
    ? []
    : [
        error(
          'flaky',
          `${count(moving)} ended differently from repeat to repeat`,
          'take time, order, randomness and left-over state out of the test; raise --repeats to see more',
          moving,
        ),
      ]
}

const count = (tests: readonly string[]): string =>
  tests.length === 1 ? '1 test' : `${tests.length} tests`

/** What doesn't keep a task from being qualified, and a reviewer should know. */
export function remarks(task: Pick<Task, 'suites' | 'source'>, repeats: number): Finding[] {
  const found: Finding[] = []
  if (task.suites.regression === null)
    found.push(
      warning(
        'no_regression',
        'the task has no regression suite, so an agent may break whatever it likes',
        'add [closedbook.regression]',
      ),
    )
  if (Object.values(task.suites).some((suite) => suite?.results === 'reward'))
    found.push(
      warning(
        'reward_only',
        'the task computes its own reward: there are no single tests to look at, and no canaries among them',
        'let the suites write junit, ctrf or tap',
      ),
    )
  if (repeats < 3)
    found.push(
      warning(
        'few_repeats',
        `${repeats} ${repeats === 1 ? 'repeat shows' : 'repeats show'} few flakes`,
        'use --repeats 3 or more',
      ),
    )
  if (task.source === null)
    found.push(
      warning('no_source', 'the task does not say where it comes from', 'add closedbook.source'),
    )
  return found
}
