import { mkdirSync } from 'node:fs'
import path from 'node:path'
import t from 'tap'
import { compareSides, type Comparison, type Side } from '../../../runner/report/compare.ts'
import { loadJobs } from '../../../runner/report/load.ts'
import { comparisonMarkdown, renderComparison } from '../../../runner/report/render-compare.ts'
import { reportOf } from '../../../runner/report/report.ts'
import type { TrialResult } from '../../../runner/result.ts'
import { Scratch } from '../support/scratch.ts'
import { syntheticJob, type SyntheticSpec } from '../support/synthetic-job.ts'

const configurations = [
  { name: 'a', chance: 0.2 },
  { name: 'b', chance: 0.8 },
]

async function side(
  scratch: Scratch,
  name: string,
  change: Partial<SyntheticSpec> & { configuration?: string } = {},
): Promise<Side> {
  const dir = path.join(scratch.path, name)
  mkdirSync(dir, { recursive: true })
  syntheticJob(dir, { tasks: 6, runs: 2, configurations, job: name, ...change })
  const report = reportOf(await loadJobs([dir]))
  const wanted = change.configuration ?? 'a'
  const configuration = report.configurations.find((one) => one.name === wanted)
  if (configuration === undefined) throw new Error(`no ${wanted}`)
  return { report, configuration }
}

const passing =
  (passes: (result: TrialResult) => boolean) =>
  (result: TrialResult): TrialResult =>
    passes(result)
      ? { ...result, verdict: 'passed', blame: null }
      : { ...result, verdict: 'failed', blame: 'agent' }

const textOf = (one: Comparison): string => renderComparison(one, { color: false })

void t.test(
  'two configurations are compared task by task, with an interval and an exact test',
  async (t) => {
    await using scratch = await Scratch.make()
    // A passes tasks 1 to 4, B tasks 1 and 2: by hand, four tasks equal, two where A is ahead by all runs.
    const upTo = (last: number) => passing(({ task }) => Number(task.name.slice(-2)) <= last)
    const a = await side(scratch, 'j1', { change: upTo(4) })
    const b = await side(scratch, 'j2', { change: upTo(2) })
    const found = compareSides(a, b)
    t.match(found, {
      complete: true,
      passAt1: { a: 4 / 6, b: 2 / 6, interval: { degreesOfFreedom: 5 } },
      test: { p: 0.5, tasks: 6, better: 2, worse: 0 },
      onlyA: { length: 0 },
      onlyB: { length: 0 },
      changed: { length: 0 },
      bounds: null,
    })
    t.ok(Math.abs((found.passAt1?.difference ?? 0) - 1 / 3) < 1e-12)
    // Six differences of 0 0 0 0 1 1: mean 1/3, sd sqrt(4/15), t(0.975, 5) = 2.5706.
    t.ok(
      Math.abs((found.passAt1?.interval?.halfWidth ?? 0) - 2.5705818356 * Math.sqrt(4 / 15 / 6)) <
        1e-9,
    )
    t.match(found.costUsd?.a, Number)
    const text = textOf(found)
    t.match(text, /\+33\.3 points/)
    t.match(
      text,
      /exact paired sign-flip permutation test by task: p = 0\.5000, two-sided; A passed more often on 2 of 6 tasks, B on 0\./,
    )
    t.match(text, /org\/task-03.*PP.*FF.*\+100\.0 points/)
    t.notMatch(text, /org\/task-01/, 'only where they differ')
    t.match(comparisonMarkdown(found), /\| pass@1 \| 66\.7 % \| 33\.3 % \| \+33\.3 points/)
    const mirrored = compareSides(b, a)
    t.equal(mirrored.passAt1?.difference, -(found.passAt1?.difference ?? 0))
    t.equal(mirrored.test?.p, found.test?.p)
  },
)

void t.test(
  'what was not tried by both, or changed between them, is left out by name',
  async (t) => {
    await using scratch = await Scratch.make()
    const a = await side(scratch, 'j1')
    const b = await side(scratch, 'j2', { tasks: 4 })
    const other = {
      ...b,
      report: {
        ...b.report,
        tasks: b.report.tasks.map((task, index) =>
          index === 0 ? { ...task, digest: 'sha256:other' } : task,
        ),
      },
    }
    const found = compareSides(a, other)
    t.match(found, {
      onlyA: ['org/task-05', 'org/task-06'],
      onlyB: { length: 0 },
      changed: ['org/task-01'],
    })
    t.equal(found.tasks.length, 3)
    t.equal(found.a.rate.planned, 6)
    const text = textOf(found)
    t.match(text, /left out, the task or its image differs between the two: org\/task-01/)
    t.match(text, /left out, only A tried it: org\/task-05, org\/task-06/)
    const none = compareSides(a, { ...b, report: { ...b.report, tasks: [] } })
    t.match(none, { complete: false, passAt1: null, test: null })
    t.match(textOf(none), /NOTHING TO COMPARE/)
  },
)

void t.test(
  'while a trial lacks a score there are bounds of the difference and nothing else',
  async (t) => {
    await using scratch = await Scratch.make()
    const first = passing(() => true)
    const a = await side(scratch, 'j1', {
      change: (result, index) => (index === 0 ? null : first(result)),
    })
    const b = await side(scratch, 'j2', { change: passing(() => false) })
    const found = compareSides(a, b)
    t.match(found, { complete: false, passAt1: null, test: null, costUsd: null })
    t.strictSame(found.bounds, { lower: 11 / 12, upper: 1 })
    t.equal(found.tasks.find(({ task }) => task === 'org/task-01')?.difference, null)
    t.match(textOf(found), /NOT COMPLETE: not every trial/)
    t.match(textOf(found), /\+91\.7 points to \+100\.0 points \(bounds\)/)
  },
)

void t.test('what qualifies one side is said of that side', async (t) => {
  await using scratch = await Scratch.make()
  const settings = {
    policy: { connect: { allow: ['pypi.example'] } },
    model: { price: { estimate: true } },
  }
  const open = await side(scratch, 'j1', {
    configurations: [
      { name: 'a', chance: 0.5, settings },
      { name: 'z', chance: 0.5 },
    ],
  })
  const text = textOf(compareSides(open, await side(scratch, 'j2')))
  t.match(text, /note: A: a: open beside the closed book: extra hosts: pypi\.example/)
  t.match(text, /\$[\d.]+ \(estimate\)/)
  t.notMatch(text, /note: B/)
})
