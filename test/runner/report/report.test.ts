import { stripVTControlCharacters } from 'node:util'
import t from 'tap'
import type { AuditEvent } from '../../../policy/audit-event.ts'
import { trialId, type Plan } from '../../../runner/job/plan.ts'
import { foldBlocked } from '../../../runner/report/blocked.ts'
import { renderReport } from '../../../runner/report/render.ts'
import { buildReport } from '../../../runner/report/report.ts'
import {
  countText,
  cut,
  dollars,
  durationText,
  painter,
  plainLine,
  wantsColor,
} from '../../../runner/report/terminal.ts'
import { suiteNotRun, type TrialResult } from '../../../runner/result.ts'
import { sampleResult } from '../support/result.ts'

const digest = `sha256:${'0'.repeat(64)}`
const task = (name: string, area: string) => ({
  name,
  dir: '/x',
  area,
  hardware: 'cpu' as const,
  digest,
  testsDigest: digest,
  instructionDigest: digest,
  image: digest,
})

const names = ['org/one', 'org/two']
const plan: Plan = {
  schema: 'closedbook.plan/1',
  job: 'job-a',
  name: 'sample',
  createdAt: '2025-01-02T03:04:05.000Z',
  closedbookVersion: '0.1.0',
  runs: 2,
  tasks: [task('org/one', 'public-api'), task('org/two', 'gpu-kernels')],
  configurations: [
    {
      name: 'mini',
      harness: 'mini-swe-agent',
      model: 'm-1',
      digest,
      harnessDigest: digest,
      policyDigest: digest,
      price: null,
      settings: {},
    },
  ],
  trials: [1, 2].flatMap((run) =>
    names.map((name) => ({
      trial: trialId('job-a', name, 'mini', run),
      task: name,
      configuration: 'mini',
      run,
    })),
  ),
}

const result = (index: number, changes: Partial<TrialResult> = {}): TrialResult =>
  sampleResult({ trial: plan.trials[index]?.trial ?? '', ...changes })
const failed = {
  verdict: 'failed' as const,
  blame: 'agent' as const,
  suites: {
    functional: { planned: 11, passed: 7, failed: 3, missing: 1, command: 'x', exit: { code: 1 } },
    regression: suiteNotRun('y', 4),
  },
}
const voided = {
  verdict: 'void' as const,
  blame: 'infra' as const,
  reason: { code: 'sandbox_gone', message: 'the container\u001b[2J went away' },
}

void t.test('a complete report gives pass@1 over planned trials, and sums', (t) => {
  const report = buildReport({
    plan,
    results: [result(0), result(1, failed), result(2), result(3, failed)],
  })
  t.match(report, {
    complete: true,
    planned: 4,
    scored: 4,
    unscored: { length: 0 },
    configurations: [
      {
        rate: { passed: 2, passAt1: 0.5, overRuns: { rates: [0.5, 0.5], halfWidth: 0 } },
        costUsd: { total: 2, perScoredTrial: 0.5 },
        outputTokens: { total: 20, perScoredTrial: 5 },
        byArea: [
          { name: 'public-api', passAt1: 1 },
          { name: 'gpu-kernels', passAt1: 0 },
        ],
        byTask: [{ name: 'org/one', planned: 2 }, { name: 'org/two' }],
      },
    ],
  })
  t.strictSame(JSON.parse(JSON.stringify(report)), report, 'it is data')
  t.end()
})

void t.test('an incomplete report names what is missing and divides by nothing', (t) => {
  const report = buildReport({ plan, results: [result(0), result(1, voided), result(2)] })
  t.match(report, {
    complete: false,
    scored: 2,
    unscored: [
      { task: 'org/two', run: 1, why: /^void \(infra\): the container/ },
      { task: 'org/two', run: 2, why: 'no result yet' },
    ],
    configurations: [
      {
        rate: { planned: 4, scored: 2, passed: 2, passAt1: null },
        costUsd: { total: 1.5, perScoredTrial: 0.5 },
      },
    ],
  })
  const text = renderReport(report, { color: false })
  t.match(
    text,
    /NOT COMPLETE: 2 of 4 planned trials are scored \(1 void, 1 without a result\), so pass@1 is given as bounds only\./,
  )
  t.match(
    text,
    /org\/two, mini, run 1 \(t[a-z2-9]{15}\): void \(infra\): the container\\x1b\[2J went away/,
  )
  t.match(
    text,
    /pass@1 {3}50\.0 to 100\.0 % \(bounds\): 2 of 4 planned trials are scored, 2 passed/,
  )
  t.notMatch(text, /interval/)
  const none = buildReport({ plan, results: [] })
  t.match(none, { scored: 0, configurations: [{ costUsd: { total: 0, perScoredTrial: null } }] })
  t.match(renderReport(none, { color: false }), /no result/)
  t.end()
})

void t.test(
  'the table has a row for each trial with its counts, cost, tokens, steps, time and blocked attempts',
  (t) => {
    const report = buildReport({
      plan,
      results: [result(0), result(1, failed), result(2), result(3, voided)],
    })
    const lines = renderReport(report, { color: false }).split('\n')
    const cells = lines.map((line) =>
      line
        .split('│')
        .map((cell) => cell.trim())
        .slice(1, -1),
    )
    const row = (name: string, run: number) =>
      cells.find((one) => one[0] === name && one[2] === String(run))
    t.strictSame(cells[1], [
      'task',
      'configuration',
      'run',
      'verdict',
      'functional',
      'regression',
      'cost',
      'out tokens',
      'steps',
      'wall time',
      'blocked',
    ])
    t.strictSame(row('org/one', 1), [
      'org/one',
      'mini',
      '1',
      'passed',
      '3/3',
      '-',
      '$0.5000',
      '5',
      '2',
      '1 min 01 s',
      '2',
    ])
    t.match(row('org/two', 1), ['org/two', 'mini', '1', 'failed', '7/11', 'not run'])
    t.match(row('org/two', 2), ['org/two', 'mini', '2', 'void (infra)'])
    t.end()
  },
)

void t.test('colour changes nothing but colour', (t) => {
  const report = buildReport({ plan, results: [result(0), result(1, failed), result(2, voided)] })
  const plain = renderReport(report, { color: false })
  const coloured = renderReport(report, { color: true })
  t.not(coloured, plain)
  t.equal(stripVTControlCharacters(coloured), plain)
  t.notOk(plain.includes('\u001b'))
  t.end()
})

const event = (changes: Partial<AuditEvent>): AuditEvent => ({
  seq: 1,
  time: '2025-01-01T00:00:00.000Z',
  lease: 'l1',
  trial: 't1',
  kind: 'decision',
  protocol: 'tcp',
  host: null,
  address: '198.51.100.7',
  port: 443,
  action: 'deny',
  reason: 'direct_tcp',
  count: 1,
  bytesUp: 0,
  bytesDown: 0,
  ...changes,
})

void t.test(
  'blocked attempts are counted by target and reason, ours and allowed ones left out',
  (t) => {
    const rows = foldBlocked([
      event({}),
      event({ trial: 't2' }),
      event({ kind: 'census', protocol: 'udp', port: 53, reason: 'direct_udp', count: 9 }),
      event({
        host: 'evil.example',
        protocol: 'connect',
        reason: 'not_allowed_host',
        address: null,
      }),
      event({
        host: 'evil.example',
        protocol: 'connect',
        reason: 'not_allowed_host',
        address: '127.0.0.1',
      }),
      event({ canary: true, port: 1 }),
      event({ action: 'allow', reason: 'allowed_host' }),
      event({ kind: 'close' }),
      event({ kind: 'lifecycle', action: 'none', reason: null }),
    ])
    t.match(rows, [
      { address: '198.51.100.7', port: 53, protocol: 'udp', count: 9 },
      { address: '198.51.100.7', port: 443, count: 2, trials: ['t1', 't2'] },
      { host: 'evil.example', address: null, count: 2, trials: ['t1'] },
    ])
    t.equal(rows.length, 3)
    const results = [result(0), result(1), result(2), result(3)]
    const text = renderReport(buildReport({ plan, results, blocked: rows }), { color: false })
    t.match(text, /Blocked attempts[^]*198\.51\.100\.7[^]*direct_udp[^]*evil\.example/)
    const many = Array.from({ length: 50 }, (_, n) => event({ port: n + 1 }))
    t.match(
      renderReport(buildReport({ plan, results, blocked: foldBlocked(many) }), { color: false }),
      /… and 10 more; closedbook audit shows all/,
    )
    t.end()
  },
)

void t.test('numbers and names are written for people', (t) => {
  t.strictSame(
    [0, 999, 1000, 59_949, 59_951, 61_000, 3_599_000, 3_600_000, 7_322_000].map(durationText),
    [
      '0 ms',
      '999 ms',
      '1.0 s',
      '59.9 s',
      '1 min 00 s',
      '1 min 01 s',
      '59 min 59 s',
      '1 h 00 min',
      '2 h 02 min',
    ],
  )
  t.strictSame([0, 0.12345, 12.345].map(dollars), ['$0.0000', '$0.1235', '$12.35'])
  t.equal(countText(1_234_567), '1,234,567')
  t.strictSame([cut('abc', 3), cut('abcd', 3), cut('a\u{1f600}b', 3)], ['abc', 'ab…', 'a…'])
  t.equal(plainLine('a\n\tb\u001b'), 'a b\\x1b')
  t.equal(painter(false)('red', 'x'), 'x')
  t.end()
})

void t.test('colour is for terminals that did not refuse it', (t) => {
  const rows: readonly (readonly [boolean, Record<string, string>, boolean])[] = [
    [true, {}, true],
    [false, {}, false],
    [true, { NO_COLOR: '1' }, false],
    [true, { NO_COLOR: '' }, true],
    [true, { TERM: 'dumb' }, false],
    [false, { FORCE_COLOR: '1' }, true],
    [true, { FORCE_COLOR: '0' }, false],
    [true, { NO_COLOR: '1', FORCE_COLOR: '1' }, false],
  ]
  for (const [isTTY, env, expected] of rows)
    t.equal(wantsColor({ isTTY }, env), expected, JSON.stringify({ isTTY, ...env }))
  t.end()
})
