import t from 'tap'
import { changesSince } from '../../../runner/qualify/standing.ts'
import { qualificationPage } from '../../../runner/qualify/html.ts'
import { renderQualification } from '../../../runner/qualify/render.ts'
import { isQualified, judge, remarks, type AgentRun } from '../../../runner/qualify/judge.ts'
import { proposeLimits, spread, timesOf } from '../../../runner/qualify/times.ts'
import type { Agent, Qualification } from '../../../runner/qualify/document.ts'
import type { TestResult } from '../../../runner/result.ts'
import type { Suite, SuiteName } from '../../../runner/task/task.ts'

type Outcome = TestResult['outcome']
type Tests = Readonly<Record<string, Outcome>>

/** `f.…` is a functional test, everything else a regression test. */
const run = (agent: Agent, number: number, tests: Tests, changes = {}): AgentRun => ({
  agent,
  run: number,
  result: {
    verdict: agent === 'noop' ? 'failed' : 'passed',
    blame: agent === 'noop' ? 'agent' : null,
    reason: { code: 'any', message: 'any' },
    tests: Object.entries(tests).map(([id, outcome]) => ({
      suite: id.startsWith('f.') ? ('functional' as const) : ('regression' as const),
      id,
      outcome,
      durationMs: 1,
      message: null,
    })),
    ...changes,
  },
})

const suite = (name: SuiteName, expected: readonly string[] | null = null): Suite =>
  ({ name, command: 'pytest', results: 'junit', timeoutSeconds: 60, expected }) as Suite
const bare = { functional: suite('functional'), regression: suite('regression') }
const noop: Tests = { 'f.a': 'failed', 'f.b': 'error', 'r.a': 'passed' }
const oracle: Tests = { 'f.a': 'passed', 'f.b': 'passed', 'r.a': 'passed' }
const honest = [
  run('noop', 1, noop),
  run('oracle', 1, oracle),
  run('noop', 2, noop),
  run('oracle', 2, oracle),
]
const with4 = (changes: { noop2?: Tests; oracle2?: Tests; noop?: Tests; oracle?: Tests }) => [
  run('noop', 1, changes.noop ?? noop),
  run('oracle', 1, changes.oracle ?? oracle),
  run('noop', 2, changes.noop2 ?? changes.noop ?? noop),
  run('oracle', 2, changes.oracle2 ?? changes.oracle ?? oracle),
]

t.test(
  'a task qualifies when the no-op fails all that is asked and the oracle passes all',
  async (t) => {
    const { findings, tests, expected } = judge(honest, bare)
    t.strictSame(findings, [])
    t.ok(isQualified(findings))
    t.strictSame(expected, { functional: ['f.a', 'f.b'], regression: ['r.a'] })
    t.strictSame(
      tests.map(({ id, noop: n, oracle: o, flaky }) => [id, n.join(), o.join(), flaky]),
      [
        ['f.a', 'failed,failed', 'passed,passed', false],
        ['f.b', 'error,error', 'passed,passed', false],
        ['r.a', 'passed,passed', 'passed,passed', false],
      ],
    )
  },
)

/** What is wrong; the runs; the codes that it earns; tests that the first names. */
const faults: readonly (readonly [
  string,
  readonly AgentRun[],
  readonly string[],
  readonly string[],
])[] = [
  [
    'a functional test that passes without work asks for nothing',
    with4({ noop: { ...noop, 'f.b': 'passed' } }),
    ['noop_passes'],
    ['f.b'],
  ],
  [
    'a regression test that fails on the image guards nothing',
    with4({ noop: { ...noop, 'r.a': 'failed' } }),
    ['noop_breaks'],
    ['r.a'],
  ],
  [
    'a regression test that the no-op leaves out is not kept either',
    with4({ noop: { ...noop, 'r.a': 'missing', 'r.other': 'passed' } }),
    ['noop_breaks'],
    ['r.a'],
  ],
  [
    'a test that the reference solution fails asks too much',
    with4({ oracle: { ...oracle, 'f.a': 'failed' } }),
    ['oracle_fails'],
    ['f.a'],
  ],
  [
    'a skipped test is no passed test',
    with4({ oracle: { ...oracle, 'r.a': 'skipped' } }),
    ['oracle_fails'],
    ['r.a'],
  ],
  [
    'a functional test that passes by luck in one repeat is named twice: it passes without work, and is flaky',
    with4({ noop2: { ...noop, 'f.a': 'passed' } }),
    ['noop_passes', 'flaky'],
    ['f.a'],
  ],
  [
    'a test that the oracle fails now and then is flaky',
    with4({ oracle2: { ...oracle, 'f.b': 'failed' } }),
    ['oracle_fails', 'flaky'],
    ['f.b'],
  ],
  [
    'an id that changes from run to run can never be expected',
    with4({ oracle2: { 'f.a': 'passed', 'f.0x7f': 'passed', 'r.a': 'passed' } }),
    ['ids_change', 'oracle_fails', 'flaky'],
    ['f.b', 'f.0x7f'],
  ],
  [
    'what a health check writes into the work tree would be in every patch',
    honest.map((one) => ({ ...one, changed: [one.agent === 'noop' ? 'boot.log' : 'fix.py'] })),
    ['noop_changes'],
    [],
  ],
  [
    'a repeat that the host spoiled proves nothing',
    [...honest.slice(0, 3), run('oracle', 2, {}, { verdict: 'void', blame: 'infra' })],
    ['spoiled'],
    [],
  ],
  [
    'tests that break on the untouched image say nothing about an agent',
    with4({ noop: {} }).map((one) =>
      one.agent === 'oracle' ? one : run('noop', one.run, {}, { verdict: 'void', blame: 'task' }),
    ),
    ['void', 'void'],
    [],
  ],
  [
    'a suite without a report is an error, whatever the verdict',
    with4({ oracle: { 'f.a': 'missing' } }),
    ['no_report', 'no_report'],
    [],
  ],
  [
    'one repeat whose suite hung is told, and makes no other test look flaky',
    with4({ oracle2: { 'f.a': 'missing', 'r.a': 'passed' } }),
    ['no_report'],
    [],
  ],
]

for (const [what, runs, codes, tests] of faults)
  t.test(what, async (t) => {
    const { findings } = judge(runs, bare)
    t.notOk(isQualified(findings))
    t.strictSame(
      findings.map(({ code }) => code),
      codes,
    )
    t.strictSame([...(findings[0]?.tests ?? [])].toSorted(), [...tests].toSorted())
    for (const { advice } of findings) t.ok(advice.length > 10, 'it says what to do')
  })

t.test('how a test fails is no matter of flakiness', async (t) => {
  const { findings } = judge(with4({ noop2: { ...noop, 'f.a': 'error' } }), bare)
  t.strictSame(findings, [])
})

t.test(
  'a module that can only be imported with the work done counts as failed tests',
  async (t) => {
    const broken: Tests = { 'f.module': 'error', 'r.a': 'passed' }
    const { findings, tests } = judge(with4({ noop: broken }), bare)
    t.strictSame(findings, [])
    t.strictSame(tests.find(({ id }) => id === 'f.a')?.noop, ['missing', 'missing'])
  },
)

t.test('what task.toml lists must be what there is', async (t) => {
  const listed = {
    functional: suite('functional', ['f.a', 'f.gone']),
    regression: suite('regression', ['r.a']),
  }
  const { findings } = judge(honest, listed)
  t.strictSame(
    findings.map(({ code, severity, tests }) => [code, severity, tests.join()]),
    [
      ['expected_unlisted', 'warning', 'f.b'],
      ['expected_missing', 'error', 'f.gone'],
    ],
  )
})

t.test('remarks warn, and keep no task from being qualified', async (t) => {
  const task = { suites: { functional: suite('functional'), regression: null }, source: null }
  const found = remarks(task, 1)
  t.strictSame(
    found.map(({ code }) => code),
    ['no_regression', 'few_repeats', 'no_source'],
  )
  t.ok(isQualified(found))
})

const timed = (ms: number, suiteMs: number) => ({
  result: {
    wallTimeMs: ms,
    phasesMs: { queue: 0, lease: 1, agent: 4000, freeze: 1, collect: 1, verify: ms, close: 1 },
  },
  suitesMs: { functional: suiteMs },
})

t.test('limits follow from the slowest runs', async (t) => {
  t.strictSame(spread([30, 10, 20, 40]), { min: 10, median: 25, max: 40 })
  t.strictSame(spread([7]), { min: 7, median: 7, max: 7 })
  const times = timesOf([timed(1000, 20_000), timed(3000, 40_000)])
  t.strictSame(times?.suites, { functional: { min: 20_000, median: 30_000, max: 40_000 } })
  const task = { suites: bare, agent: { timeoutSeconds: null, user: null } }
  const { limits, findings } = proposeLimits(task, { noop: null, oracle: times })
  t.match(limits, [
    { key: 'closedbook.functional.timeout_sec', currentSeconds: 60, proposedSeconds: 200 },
    { key: 'agent.timeout_sec', currentSeconds: null, proposedSeconds: 1800 },
  ])
  t.match(findings, [{ code: 'tight_limit', severity: 'warning' }], '60 s is less than twice 40 s')
  const quick = timesOf([timed(1000, 500)])
  t.match(proposeLimits(task, { noop: quick, oracle: quick }).limits[0], { proposedSeconds: 30 })
  t.strictSame(proposeLimits(task, { noop: quick, oracle: quick }).findings, [])
  t.equal(timesOf([]), null)
})

const digest = (letter: string): string => `sha256:${letter.repeat(64)}`
const bound = {
  task: digest('1'),
  tests: digest('2'),
  instruction: digest('3'),
  image: digest('4'),
  recipe: digest('5'),
}
const files = { 'task.toml': 'a', 'tests/x.py': 'b', 'solution/solve.sh': 'c' }

t.test('whatever changes is named', async (t) => {
  const changes: readonly (readonly [string, object, object, readonly string[], boolean])[] = [
    ['nothing', {}, {}, [], false],
    ['a rebuild of the same recipe', { image: digest('9') }, {}, [], true],
    [
      'a test',
      { task: digest('9'), tests: digest('8') },
      { ...files, 'tests/x.py': 'z', 'tests/y.py': 'new' },
      ['tests (tests/x.py, tests/y.py)'],
      false,
    ],
    [
      'the solution',
      { task: digest('9') },
      { ...files, 'solution/solve.sh': 'z' },
      ['the task (solution/solve.sh)'],
      false,
    ],
    [
      'the instruction and a test',
      { task: digest('9'), instruction: digest('8'), tests: digest('7') },
      { ...files, 'tests/x.py': 'z', 'instruction.md': 'z' },
      ['tests (tests/x.py)', 'the instruction', 'instruction.md'],
      false,
    ],
    [
      'the recipe of the image',
      { task: digest('9'), recipe: digest('8'), image: digest('7') },
      { ...files, 'environment/Dockerfile': 'z' },
      ["the image's recipe (environment/ or its base)"],
      false,
    ],
    [
      'a base that is not among the files',
      { recipe: digest('8'), image: digest('7') },
      {},
      ["the image's recipe (environment/ or its base)"],
      false,
    ],
  ]
  for (const [what, now, nowFiles, changed, rebuilt] of changes) {
    const all = Object.keys(nowFiles).length === 0 ? files : (nowFiles as Record<string, string>)
    t.strictSame(
      changesSince({ digests: bound, files }, { ...bound, ...now }, all),
      { changed, rebuilt },
      what,
    )
  }
  const byId = { ...bound, recipe: null }
  t.match(
    changesSince({ digests: byId, files }, { ...byId, image: digest('9') }, files),
    { changed: [/^the image \(was sha256:4{12}, is sha256:9{12}\)$/], rebuilt: false },
    'an image without a recipe is known by its id alone',
  )
})

t.test('the report can be read by people, and nothing in it can run', async (t) => {
  const judged = judge(with4({ noop: { ...noop, 'f.b': 'passed' } }), bare)
  const document: Qualification = {
    schema: 'closedbook.qualification/1',
    task: 'org/<script>alert(1)</script>',
    qualified: false,
    startedAt: '2026-01-01T00:00:00.000Z',
    endedAt: '2026-01-01T00:01:00.000Z',
    closedbookVersion: '0.0.0',
    hardware: 'cpu',
    host: { name: 'h', engine: 'e', kernel: 'k', cpus: 2, gpus: [] },
    repeats: 2,
    concurrency: 1,
    digests: bound,
    files: {},
    ...judged,
    findings: [...judged.findings],
    tests: [...judged.tests],
    times: { noop: null, oracle: timesOf([timed(1000, 500)]) },
    limits: [],
    trials: [
      {
        agent: 'noop',
        run: 1,
        trial: 't1',
        verdict: 'failed',
        blame: 'agent',
        reason: { code: 'tests_failed', message: '\u001b[2J"><img src=x onerror=alert(1)>' },
        wallTimeMs: 1000,
        result: digest('a'),
      },
    ],
    evidence: 'qualify-1',
  }
  const page = qualificationPage(document, digest('b'))
  t.notMatch(page, /<script|<img|<a |<link|https?:/)
  // oxlint-disable-next-line no-control-regex
  t.notMatch(page, /\u001b/)
  t.match(page, /not qualified/)
  t.match(page, /f\.b/)
  const text = renderQualification(document, { color: false })
  t.match(text, /^NOT QUALIFIED .*one reason/)
  t.match(
    text,
    /error noop_passes: 1 test of the functional suite passed without any work\n {4}f\.b/,
  )
  t.match(text, /what to do: a functional test asks/)
  t.match(text, /no-op +│ +1 │ failed +│ 1\/2 +│ 1\/1/)
  // oxlint-disable-next-line no-control-regex
  t.notMatch(text, /\u001b/)
})
