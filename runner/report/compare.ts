/**
 * Two configurations over the tasks that both tried (`closedbook.compare/1`); pure. A task that changed between them is
 * not the same task and is left out, by name. As in a report nothing is divided by the trials that happened to be scored:
 * while one is missing there is no difference, only bounds of it.
 */
import type { Verdict } from '../result.ts'
import type { Bounds, PassRate } from '../statistics.ts'
import { passRate } from '../statistics.ts'
import {
  pairedDifference,
  signFlipTest,
  type PairedDifference,
  type SignFlipTest,
} from '../statistics-paired.ts'
import { alarm, noted, type Notice } from './notices.ts'
import { rowScored, type ConfigurationReport, type Report, type TrialRow } from './report.ts'

export interface Side {
  readonly report: Report
  readonly configuration: ConfigurationReport
}

export interface ComparedSide {
  readonly job: string
  readonly configuration: string
  readonly model: string | null
  readonly harness: string
  readonly estimate: boolean
  /** Over the shared tasks. */
  readonly rate: PassRate
}

export interface ComparedTask {
  readonly task: string
  readonly area: string
  readonly a: readonly (Verdict | null)[]
  readonly b: readonly (Verdict | null)[]
  /** Of the shares that passed; null while one isn't scored. */
  readonly difference: number | null
}

export interface Comparison {
  readonly schema: 'closedbook.compare/1'
  readonly a: ComparedSide
  readonly b: ComparedSide
  readonly complete: boolean
  readonly passAt1: PairedDifference | null
  /** Of the difference A - B, where passAt1 is null. */
  readonly bounds: Bounds | null
  readonly test: SignFlipTest | null
  readonly costUsd: PairedDifference | null
  readonly outputTokens: PairedDifference | null
  readonly steps: PairedDifference | null
  readonly wallTimeMs: PairedDifference | null
  readonly tasks: readonly ComparedTask[]
  readonly onlyA: readonly string[]
  readonly onlyB: readonly string[]
  /** On both sides, and not the same. */
  readonly changed: readonly string[]
  readonly notices: readonly Notice[]
}

export function compareSides(a: Side, b: Side): Comparison {
  const [rowsA, rowsB] = [rowsOf(a), rowsOf(b)]
  const [tasksA, tasksB] = [versionsOf(a, rowsA), versionsOf(b, rowsB)]
  const both = [...tasksA.keys()].filter((task) => tasksB.has(task))
  const changed = both.filter((task) => tasksA.get(task) !== tasksB.get(task))
  const shared = new Set(both.filter((task) => !changed.includes(task)))
  const ofShared = (row: TrialRow): boolean => shared.has(row.task)
  const [ownA, ownB] = [rowsA.filter(ofShared), rowsB.filter(ofShared)]
  const complete = shared.size > 0 && [...ownA, ...ownB].every(rowScored)
  const difference = (value: (row: TrialRow) => number | null): PairedDifference | null =>
    complete ? pairedDifference(valuesOf(ownA, value), valuesOf(ownB, value)) : null
  const passed = (row: TrialRow): number => (row.verdict === 'passed' ? 1 : 0)
  const [sideA, sideB] = [comparedSide(a, ownA), comparedSide(b, ownB)]
  const facts = {
    schema: 'closedbook.compare/1',
    a: sideA,
    b: sideB,
    complete,
    passAt1: difference(passed),
    bounds: complete ? null : boundsOf(sideA.rate, sideB.rate),
    test: complete ? signFlipTest(valuesOf(ownA, passed), valuesOf(ownB, passed)) : null,
    costUsd: difference((row) => row.costUsd),
    outputTokens: difference((row) => row.outputTokens),
    steps: difference((row) => row.steps),
    wallTimeMs: difference((row) => row.wallTimeMs),
    tasks: [...shared].map((task) => comparedTask(task, ownA, ownB)),
    onlyA: [...tasksA.keys()].filter((task) => !tasksB.has(task)),
    onlyB: [...tasksB.keys()].filter((task) => !tasksA.has(task)),
    changed,
  } as const
  return { ...facts, notices: noticesOf(facts, a, b) }
}

const rowsOf = ({ report, configuration }: Side): TrialRow[] =>
  report.trials.filter((row) => row.configuration === configuration.name)

function versionsOf({ report }: Side, rows: readonly TrialRow[]): ReadonlyMap<string, string> {
  const own = new Set(rows.map(({ task }) => task))
  return new Map(
    report.tasks
      .filter(({ name }) => own.has(name))
      .map(({ name, digest, image }) => [name, `${digest} ${image}`]),
  )
}

const valuesOf = (rows: readonly TrialRow[], value: (row: TrialRow) => number | null) =>
  rows.map((row) => ({ task: row.task, value: value(row) ?? 0 }))

const comparedSide = ({ configuration: one }: Side, own: readonly TrialRow[]): ComparedSide => ({
  job: one.jobs.join(' '),
  configuration: one.name,
  model: one.model,
  harness: one.harness,
  estimate: one.estimate,
  rate: passRate(
    own.map((row) => ({
      task: row.task,
      run: row.run,
      passed: rowScored(row) ? row.verdict === 'passed' : null,
    })),
  ),
})

function boundsOf(a: PassRate, b: PassRate): Bounds | null {
  const of = ({ passAt1, bounds }: PassRate): Bounds | null =>
    passAt1 === null ? bounds : { lower: passAt1, upper: passAt1 }
  const [one, other] = [of(a), of(b)]
  return one === null || other === null
    ? null
    : { lower: one.lower - other.upper, upper: one.upper - other.lower }
}

function comparedTask(
  task: string,
  rowsA: readonly TrialRow[],
  rowsB: readonly TrialRow[],
): ComparedTask {
  const of = (rows: readonly TrialRow[]): TrialRow[] =>
    rows.filter((row) => row.task === task).toSorted((x, y) => x.run - y.run)
  const [a, b] = [of(rowsA), of(rowsB)]
  const share = (rows: readonly TrialRow[]): number =>
    rows.filter(({ verdict }) => verdict === 'passed').length / rows.length
  return {
    task,
    area: a[0]?.area ?? 'unspecified',
    a: a.map(({ verdict }) => verdict),
    b: b.map(({ verdict }) => verdict),
    difference: [...a, ...b].every(rowScored) ? share(a) - share(b) : null,
  }
}

function noticesOf(
  { onlyA, onlyB, changed, complete, tasks }: Omit<Comparison, 'notices'>,
  a: Side,
  b: Side,
): Notice[] {
  const notices: Notice[] = []
  const left = (code: string, names: readonly string[], why: string): void => {
    if (names.length > 0)
      notices.push(
        alarm(
          code,
          `left out, ${why}: ${names.slice(0, 8).join(', ')}${names.length > 8 ? ` and ${names.length - 8} more` : ''}`,
        ),
      )
  }
  if (tasks.length === 0)
    notices.push(alarm('no_shared_task', 'NOTHING TO COMPARE: the two tried no task in common.'))
  else if (!complete)
    notices.push(
      alarm(
        'not_complete',
        'NOT COMPLETE: not every trial of the shared tasks is scored, so there is no difference, only bounds of it.',
      ),
    )
  left('changed', changed, 'the task or its image differs between the two')
  left('only_a', onlyA, 'only A tried it')
  left('only_b', onlyB, 'only B tried it')
  for (const [side, { report, configuration }] of [
    ['A', a],
    ['B', b],
  ] as const)
    for (const notice of report.notices)
      if (notice.code !== 'not_complete' && concerns(notice, configuration))
        notices.push({ ...notice, text: `${side}: ${notice.text}` })
  const versions = new Set([...a.report.jobs, ...b.report.jobs].map((job) => job.closedbookVersion))
  if (versions.size > 1)
    notices.push(
      noted('versions', `made by different versions of Closedbook: ${[...versions].join(', ')}`),
    )
  return notices
}

/** What is said of one configuration begins with its name. */
const concerns = ({ code, text }: Notice, { name }: ConfigurationReport): boolean =>
  ['open_door', 'estimated_cost', 'replayed', 'regraded'].includes(code)
    ? text.startsWith(`${name}: `)
    : true
