import t from 'tap'
import type { ResultFormat } from '../../../runner/task/schema.ts'
import {
  passRuleSchema,
  readRewards,
  rewardTests,
  type PassRule,
} from '../../../runner/trial/report-reward.ts'
import { ReportError } from '../../../runner/trial/reported.ts'
import { parseReport } from '../../../runner/trial/test-report.ts'

type Format = Exclude<ResultFormat, 'reward'>

const outcomes = (format: Format, text: string): string[] =>
  parseReport(format, Buffer.from(text)).map((test) => `${test.id} = ${test.outcome}`)

const junit = (inner: string): string =>
  `<?xml version="1.0"?><testsuites><testsuite name="pytest">${inner}</testsuite></testsuites>`

const good: readonly (readonly [string, Format, string, readonly string[]])[] = [
  [
    'the four outcomes of pytest',
    'junit',
    junit(
      '<testcase classname="a.b" name="p" time="0.5"/><testcase classname="a.b" name="f"><failure message="m">t</failure></testcase>' +
        '<testcase classname="a.b" name="e"><error message="m"/></testcase><testcase classname="a.b" name="s"><skipped type="pytest.xfail"/></testcase>',
    ),
    ['a.b::p = passed', 'a.b::f = failed', 'a.b::e = error', 'a.b::s = skipped'],
  ],
  [
    'a test that passed and then failed in teardown counts as its worst report',
    'junit',
    junit('<testcase name="x"/><testcase name="x"><error/></testcase>'),
    ['x = error'],
  ],
  [
    'character references and the five entities in names, each decoded once',
    'junit',
    junit('<testcase name="t[&lt;&amp;gt;&#10;&#x41;&quot;]"/>'),
    ['t[<&gt;\nA"] = passed'],
  ],
  [
    'suites in suites, or one suite alone',
    'junit',
    '<testsuite><testsuite><testcase name="in"/></testsuite><testcase name="out"/></testsuite>',
    ['out = passed', 'in = passed'],
  ],
  ['no tests at all is a report', 'junit', junit(''), []],
  [
    'text that looks like a test inside of output is none',
    'junit',
    junit('<testcase name="a"><system-out>&lt;testcase name="b"/&gt;</system-out></testcase>'),
    ['a = passed'],
  ],
  [
    'CTRF with and without suites; pending and other are skipped',
    'ctrf',
    JSON.stringify({
      results: {
        tool: { name: 'pytest' },
        tests: [
          { name: 'a', status: 'passed', duration: 5 },
          { name: 'b', status: 'failed', suite: 'S' },
          { name: 'c', status: 'pending', suite: ['S', 'T'] },
          { name: 'd', status: 'other' },
        ],
      },
    }),
    ['a = passed', 'S > b = failed', 'S > T > c = skipped', 'd = skipped'],
  ],
  [
    'TAP with directives, diagnostics and noise of other programs',
    'tap',
    'TAP version 13\nok 1 - first\nnot ok 2 second\n  ---\n  not ok 9 - not a test\n  ...\nhello\nok 3 - third # SKIP no gpu\nnot ok 4 - fourth # TODO later\n1..4\n',
    ['first = passed', 'second = failed', 'third = skipped', 'fourth = skipped'],
  ],
  [
    'TAP subtests: the leaves, with the names on the way',
    'tap',
    '# Subtest: outer\n    ok 1 - in\n    not ok 2 - ner\n    1..2\nnot ok 1 - outer\n# Subtest: other\n    ok 1 - x\n    1..1\nnot ok 2 - other # time=3\n1..2\n',
    ['outer > in = passed', 'outer > ner = failed', 'other > x = passed', 'other = failed'],
  ],
]

for (const [name, format, text, expected] of good)
  t.test(`${format}: ${name}`, async (t) => {
    t.same(outcomes(format, text), expected)
  })

const bad: readonly (readonly [string, Format, string])[] = [
  ['cut off in the middle', 'junit', junit('<testcase name="a"/>').slice(0, -15)],
  ['empty', 'junit', ''],
  ['another root', 'junit', '<results><testcase name="a"/></results>'],
  ['a document type', 'junit', `<!DOCTYPE x [<!ENTITY a "b">]>${junit('<testcase name="&a;"/>')}`],
  ['a test without a name', 'junit', junit('<testcase classname="a"/>')],
  ['two roots', 'junit', `${junit('')}${junit('')}`],
  ['mismatched tags', 'junit', '<testsuites><testsuite></testsuites></testsuite>'],
  ['not JSON', 'ctrf', '{"results":'],
  ['no tests array', 'ctrf', '{"results": {}}'],
  ['an outcome that CTRF has not', 'ctrf', '{"results":{"tests":[{"name":"a","status":"PASS"}]}}'],
  ['no plan', 'tap', 'ok 1 - a\n'],
  ['fewer tests than planned', 'tap', '1..2\nok 1 - a\n'],
  ['more tests than planned', 'tap', '1..1\nok 1 - a\nok 2 - b\n'],
  ['two plans', 'tap', '1..1\nok 1 - a\n1..1\n'],
  ['numbers out of order', 'tap', '1..2\nok 2 - a\nok 1 - b\n'],
  ['bailed out', 'tap', '1..1\nok 1 - a\nBail out! no disk\n'],
  ['a subtest without its plan', 'tap', '    ok 1 - a\nok 1 - outer\n1..1\n'],
  ['a subtest that no test closes', 'tap', '1..0\n    ok 1 - a\n    1..1\n'],
  ['a diagnostic that does not end', 'tap', '1..1\nok 1 - a\n  ---\n  x: 1\n'],
]

for (const [name, format, text] of bad)
  t.test(`${format} is no report: ${name}`, async (t) => {
    t.throws(() => parseReport(format, Buffer.from(text)), { name: 'ReportError' })
  })

t.test('durations and messages are kept, and cut to a bound', async (t) => {
  const [test] = parseReport(
    'junit',
    Buffer.from(
      junit(
        `<testcase name="a" time="1.25"><failure message="${'x'.repeat(5000)}">y</failure></testcase>`,
      ),
    ),
  )
  t.equal(test?.durationMs, 1250)
  t.equal(test?.message?.length, 2001)
  const [inner] = parseReport(
    'junit',
    Buffer.from(
      junit('<testcase name="a" time="-1"><failure>because &lt;1&gt;</failure></testcase>'),
    ),
  )
  t.equal(inner?.message, 'because <1>')
  t.equal(inner?.durationMs, null)
})

t.test(
  'a report of very deep suites is refused or read, and never overflows the stack',
  async (t) => {
    const deep = `${'<testsuite>'.repeat(20_000)}${'</testsuite>'.repeat(20_000)}`
    try {
      t.same(parseReport('junit', Buffer.from(deep)), [])
    } catch (error) {
      t.ok(error instanceof ReportError, String(error))
    }
  },
)

const rewards: readonly (readonly [string, string | null, string | null, string])[] = [
  ['one means passed', null, '1\n', 'reward = passed'],
  ['a decimal one as well', null, '1.0', 'reward = passed'],
  ['a part of it does not', null, '0.5', 'reward = failed'],
  ['more than one does not', null, '1000000000', 'reward = failed'],
  ['names of the map are tests', '{"a": 1, "b": 0}', null, 'a = passed, b = failed'],
  ['two files that agree', '{"reward": 1}', '1', 'reward = passed'],
  ['two files that disagree', '{"reward": 1}', '0', 'ReportError'],
  ['a map of several and a number', '{"a": 1, "b": 1}', '1', 'ReportError'],
  ['words', null, 'passed', 'ReportError'],
  ['nothing', null, ' \n', 'ReportError'],
  ['not a number', null, 'NaN', 'ReportError'],
  ['infinity', null, 'Infinity', 'ReportError'],
  ['a truth value', '{"reward": true}', null, 'ReportError'],
  ['an empty map', '{}', null, 'ReportError'],
  ['a list', '[1]', null, 'ReportError'],
  ['neither file', null, null, 'ReportError'],
]

for (const [name, json, txt, expected] of rewards)
  t.test(`reward: ${name}`, async (t) => {
    const files = {
      json: json === null ? null : Buffer.from(json),
      txt: txt === null ? null : Buffer.from(txt),
    }
    if (expected === 'ReportError') t.throws(() => readRewards(files), { name: 'ReportError' })
    else
      t.equal(
        rewardTests(readRewards(files), null)
          .map((test) => `${test.id} = ${test.outcome}`)
          .join(', '),
        expected,
      )
  })

t.test('a job may say which rewards count, and from where on', (t) => {
  const rewards = { accuracy: 0.75, speed: 12.5, clean: 1 }
  const rows: readonly (readonly [why: string, rule: PassRule, told: string])[] = [
    ['at least', { accuracy: '>=0.75' }, 'accuracy = passed'],
    ['more than', { accuracy: '>0.75' }, 'accuracy = failed'],
    ['less is better', { speed: '< 20' }, 'speed = passed'],
    ['several', { accuracy: '>=0.9', clean: '==1' }, 'accuracy = failed, clean = passed'],
    ['one that was not written is not there', { other: '>=0', clean: '>=1' }, 'clean = passed'],
  ]
  for (const [why, rule, told] of rows) {
    const tests = rewardTests(rewards, passRuleSchema.parse(rule))
    t.equal(tests.map(({ id, outcome }) => `${id} = ${outcome}`).join(', '), told, why)
  }
  t.match(rewardTests(rewards, { accuracy: '>0.9' })[0]?.message, 'reward 0.75, not >0.9')
  for (const bad of ['0.5', '>=', '>=half', '!=1', '>=1e9999'])
    t.notOk(passRuleSchema.safeParse({ reward: bad }).success, `${bad} is no rule`)
  t.end()
})
