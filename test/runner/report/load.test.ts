import { createHash } from 'node:crypto'
import { mkdirSync, readFileSync, rmSync, truncateSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import t from 'tap'
import { loadFiles, loadJobs } from '../../../runner/report/load.ts'
import { renderReport } from '../../../runner/report/render.ts'
import { reportOf, type Report } from '../../../runner/report/report.ts'
import { failureOf, Scratch } from '../support/scratch.ts'
import { syntheticJob, type SyntheticSpec } from '../support/synthetic-job.ts'

const spec: SyntheticSpec = {
  tasks: 5,
  runs: 3,
  configurations: [
    { name: 'low', chance: 0.3 },
    { name: 'high', chance: 0.7 },
  ],
}
/** Order aside: a plan has its own. */
const figures = ({ configurations, planned, scored, failures }: Report) => ({
  planned,
  scored,
  configurations: configurations.toSorted((a, b) => (a.name < b.name ? -1 : 1)),
  failures: failures
    .map(({ configuration, code, count, tasks }) => ({
      configuration,
      code,
      count,
      tasks: tasks.length,
    }))
    .toSorted((a, b) => (JSON.stringify(a) < JSON.stringify(b) ? -1 : 1)),
})
const rateOf = (report: Report, name: string) =>
  report.configurations.find((one) => one.name === name)?.rate
const alarms = (report: Report): string =>
  report.notices
    .filter(({ level }) => level === 'alarm')
    .map(({ text }) => text)
    .join('\n')

async function job(change: Partial<SyntheticSpec> = {}) {
  const scratch = await Scratch.make()
  const dir = path.join(scratch.path, change.job ?? 'j1')
  mkdirSync(dir)
  const made = syntheticJob(dir, { ...spec, ...change })
  const file = (index: number): string =>
    path.join(dir, 'trials', made.plan.trials[index]?.trial ?? '', 'result.json')
  return { scratch, dir, file, ...made }
}

void t.test('every figure of a report follows from the result files alone', async (t) => {
  const { dir, scratch } = await job()
  await using _ = scratch
  const whole = reportOf(await loadJobs([dir]))
  const alone = reportOf(loadFiles([dir]))
  t.strictSame(figures(alone), figures(whole))
  t.equal(whole.complete, true)
  t.equal(whole.blocked[0]?.host ?? whole.blocked[0]?.address, '198.51.100.7')
  t.match(
    whole.configurations[0]?.blocked.map(({ reason }) => reason),
    ['direct_tcp', 'not_allowed_host'],
  )
  t.match(alone.notices, [{ code: 'no_plan', text: /assumed to be planned are 30 trials/ }])
  for (const where of [path.join(dir, 'trials/*/result.json'), path.join(dir, 'trials/*')])
    t.strictSame(figures(reportOf(loadFiles([where]))), figures(whole), where)
  t.match(await failureOf(() => loadFiles([path.join(dir, 'no*')])), { code: 'result_missing' })
})

void t.test('a damaged file costs its own trial, by name, and nothing else', async (t) => {
  const { dir, file, scratch, plan } = await job()
  await using _ = scratch
  const before = reportOf(await loadJobs([dir]))
  truncateSync(file(0), 700)
  writeFileSync(file(1), '')
  rmSync(file(2))
  writeFileSync(file(3), readFileSync(file(3), 'utf8').replace('"verdict": "', '"verdict": "un'))
  const report = reportOf(await loadJobs([dir]))
  t.match(report, { planned: 30, scored: 26, complete: false })
  t.strictSame(
    report.unscored.map(({ trial }) => trial),
    plan.trials.slice(0, 4).map(({ trial }) => trial),
  )
  for (const [index, why] of [
    /cut off or damaged/,
    /is empty/,
    /is gone/,
    /not a closedbook/,
  ].entries())
    t.match(report.unscored[index]?.why, why)
  t.match(alarms(report), /NOT COMPLETE: 26 of 30 .*4 with a result that can't be used/)
  t.match(alarms(report), /4 results are not counted: .*cut off/)
  t.match(rateOf(report, 'low'), { passAt1: null, planned: 15, scored: 11 })
  t.strictSame(rateOf(report, 'high'), rateOf(before, 'high'), 'the other has its score')
  t.match(renderReport(report, { color: false, full: true }), /pass@1 .*\(bounds\)/)
})

void t.test('a result whose bytes are not those recorded is told and not counted', async (t) => {
  const { dir, file, scratch, results } = await job()
  await using _ = scratch
  const failed = results.findIndex(({ verdict }) => verdict === 'failed')
  const forged = { ...results[failed], verdict: 'passed', blame: null }
  writeFileSync(file(failed), `${JSON.stringify(forged, null, 2)}\n`)
  const report = reportOf(await loadJobs([dir]))
  t.equal(report.scored, 29)
  t.match(report.unscored[0]?.why, /is not what was recorded: its digest is sha256:/)
  t.match(alarms(report), /is not what was recorded/)
  // One trial's file over another's.
  writeFileSync(file(failed), readFileSync(file(failed + 1)))
  t.match(reportOf(await loadJobs([dir])).unscored[0]?.why, /is not what was recorded/)
})

void t.test('a void trial makes the score a bound, a hung verifier a failure', async (t) => {
  const { dir, scratch } = await job({
    configurations: [{ name: 'one', chance: 1 }],
    change: (result, index) =>
      index === 0
        ? { ...result, verdict: 'void', blame: 'infra', reason: { code: 'gone', message: 'x' } }
        : index === 1
          ? {
              ...result,
              verdict: 'failed',
              blame: 'agent',
              reason: { code: 'verifier_timeout', message: 'no report' },
            }
          : { ...result, verdict: 'passed', blame: null },
  })
  await using _ = scratch
  const report = reportOf(await loadJobs([dir]))
  t.strictSame(rateOf(report, 'one'), {
    planned: 15,
    scored: 14,
    passed: 13,
    bounds: { lower: 13 / 15, upper: 14 / 15 },
    passAt1: null,
    overRuns: null,
    byTask: null,
  })
  t.match(report.failures, [
    { verdict: 'void', blame: 'infra', code: 'gone', count: 1 },
    { verdict: 'failed', blame: 'agent', code: 'verifier_timeout', count: 1 },
  ])
})

void t.test('without a plan, holes in the grid are missing trials', async (t) => {
  const { dir, file, scratch, plan } = await job({ configurations: [{ name: 'one', chance: 0.5 }] })
  await using _ = scratch
  rmSync(file(0))
  t.match(reportOf(loadFiles([dir])), {
    planned: 15,
    scored: 14,
    unscored: [{ task: plan.trials[0]?.task, run: 1, why: 'no result yet' }],
  })
  // A file that tells nothing takes the place of a hole; one more than there are holes counts by itself.
  mkdirSync(path.dirname(file(0)), { recursive: true })
  writeFileSync(file(0), '{')
  t.match(reportOf(loadFiles([dir])), { planned: 15, unscored: [{ run: 1, why: /damaged/ }] })
  writeFileSync(path.join(dir, 'trials', 'result.json.d'), '')
  mkdirSync(path.join(dir, 'trials', 'extra'))
  writeFileSync(path.join(dir, 'trials', 'extra', 'result.json'), '')
  const report = reportOf(loadFiles([dir]))
  t.match(report, { planned: 16, scored: 14, complete: false })
  t.match(rateOf(report, 'one'), { planned: 16, scored: 14, passAt1: null })
  // The same file twice is one trial; two that differ are none.
  const twice = path.join(dir, 'trials', 'copy', 'result.json')
  mkdirSync(path.dirname(twice))
  const text = readFileSync(file(1), 'utf8')
  writeFileSync(twice, text)
  t.equal(reportOf(loadFiles([dir])).scored, 14)
  writeFileSync(twice, text.replace('"steps": ', '"steps": 1'))
  t.match(
    reportOf(loadFiles([dir]))
      .unscored.map(({ why }) => why)
      .join(),
    /two different results of this trial/,
  )
})

void t.test(
  'a configuration is joined over jobs only where it is the same and they do not overlap',
  async (t) => {
    await using scratch = await Scratch.make()
    const make = (name: string, change: Partial<SyntheticSpec>): string => {
      const dir = path.join(scratch.path, name)
      mkdirSync(dir)
      syntheticJob(dir, { ...spec, job: name, ...change })
      return dir
    }
    const one = make('j1', {})
    const two = make('j2', { seed: 2 })
    const both = reportOf(await loadJobs([one, two]))
    t.strictSame(
      both.configurations.map(({ name }) => name),
      ['low@j1', 'high@j1', 'low@j2', 'high@j2'],
    )
    t.equal(both.planned, 60)
    const other = path.join(scratch.path, 'j3')
    mkdirSync(other)
    // The second half of the tasks, in a job of its own.
    const { plan } = syntheticJob(other, {
      ...spec,
      job: 'j3',
      tasks: 9,
      change: (result) => result,
    })
    const half = new Set(plan.tasks.slice(5).map(({ name }) => name))
    const kept = {
      ...plan,
      tasks: plan.tasks.filter(({ name }) => half.has(name)),
      trials: plan.trials.filter(({ task }) => half.has(task)),
    }
    writeFileSync(path.join(other, 'plan.json'), JSON.stringify(kept))
    const joined = reportOf(await loadJobs([one, other]))
    t.match(joined.configurations, [
      { name: 'low', jobs: ['j1', 'j3'], rate: { planned: 27 } },
      { name: 'high', rate: { planned: 27 } },
    ])
    t.match(await failureOf(() => loadJobs([one, one])), { code: 'usage' })
  },
)

void t.test('what was open, estimated or assisted is said', async (t) => {
  const settings = {
    policy: {
      version: 1,
      connect: { allow: ['pypi.example'] },
      huggingface: { tunnel: true, repos: [] },
    },
    model: {
      upstream: { kind: 'openai' },
      price: { estimate: true, asOf: '2025-01-01', source: 'a price page' },
    },
  }
  const { dir, scratch } = await job({
    configurations: [{ name: 'one', chance: 0.5, settings }],
    change: (result, index) =>
      index === 0
        ? {
            ...result,
            verdict: 'void',
            blame: 'operator',
            assisted: true,
            reason: { code: 'assisted', message: 'a person typed' },
          }
        : result,
  })
  await using _ = scratch
  const plan = JSON.parse(readFileSync(path.join(dir, 'plan.json'), 'utf8')) as {
    tasks: Record<string, unknown>[]
  }
  t.ok(plan.tasks.length)
  for (const report of [reportOf(await loadJobs([dir])), reportOf(loadFiles([dir]))]) {
    const said = report.notices.map(({ text }) => text).join('\n')
    t.match(said, /one: open beside the closed book: extra hosts: pypi\.example/)
    t.match(said, /one: open beside the closed book: tunnel/)
    t.match(
      said,
      /one: costs are estimates; nobody was paid these prices \(2025-01-01, a price page\)/,
    )
    t.match(said, /1 trial was assisted/)
    const text = renderReport(report, { color: false, full: true })
    t.match(text, /cost +~\$[\d.]+ \(estimate\) in all/)
    t.match(text, /void \(assisted\)/)
  }
})

void t.test('a digest is of the bytes, whatever of them is read', async (t) => {
  const { dir, file, scratch, results } = await job({ tests: 30 })
  await using _ = scratch
  const [reading] = [loadFiles([file(0)])]
  t.equal(reading.entries[0]?.outcome.kind, 'result')
  const bytes = readFileSync(file(0))
  const records = JSON.parse(readFileSync(path.join(dir, 'regrade.json'), 'utf8')) as {
    records: { digest: string }[]
  }
  t.equal(records.records[0]?.digest, `sha256:${createHash('sha256').update(bytes).digest('hex')}`)
  // Another layout, and a test that looks like the end of the list.
  const tricky = {
    ...results[0],
    tests: [
      {
        suite: 'functional',
        id: '\n  ],\n  "verdict": "passed"',
        outcome: 'failed',
        durationMs: 1,
        message: null,
      },
    ],
  }
  for (const text of [
    JSON.stringify(tricky),
    JSON.stringify(tricky, null, 2),
    JSON.stringify(tricky, null, 4),
  ]) {
    writeFileSync(file(0), text)
    t.match(loadFiles([file(0)]).entries[0]?.outcome, {
      kind: 'result',
      result: { verdict: results[0]?.verdict },
    })
  }
})
