/** A comparison for people: at a terminal, and as Markdown. */
import type { PairedDifference } from '../statistics-paired.ts'
import type { Interval } from '../statistics.ts'
import type { ComparedSide, ComparedTask, Comparison } from './compare.ts'
import { escaped, section } from './markdown.ts'
import { proseWrapped, tableText } from './render.ts'
import { runMark, type Cell, type ReportTable } from './tables.ts'
import { countText, dollars, durationText, painter, plainLine } from './terminal.ts'
import { rangeText, rateText } from './words.ts'

export function renderComparison(
  one: Comparison,
  { color, width = Infinity }: { readonly color: boolean; readonly width?: number },
): string {
  const paint = painter(color)
  const view = { width, elsewhere: '--format md' }
  const parts = [sidesTable(one), differenceTable(one)]
    .map((table) => `${paint('bold', table.title)}\n${tableText(table, paint, view)}`)
    .concat(testLine(one) ?? [])
  const uneven = taskTable(one)
  if (uneven.rows.length > 0)
    parts.push(
      `${paint('bold', uneven.title)}\n${tableText(uneven, paint, { ...view, limit: 60, more: '--json has all' })}`,
    )
  const notices = one.notices.map(({ level, text }) =>
    level === 'alarm' ? paint('red', paint('bold', plainLine(text))) : `note: ${plainLine(text)}`,
  )
  if (notices.length > 0) parts.push(notices.join('\n'))
  return proseWrapped(`${parts.join('\n\n')}\n`, width)
}

export function comparisonMarkdown(one: Comparison): string {
  const lines = [
    `# ${escaped(`${one.a.configuration} against ${one.b.configuration}`)}`,
    '',
    ...one.notices.flatMap(({ level, text }) => [
      level === 'alarm' ? `> **${escaped(text)}**` : `> ${escaped(text)}`,
      '',
    ]),
    ...section(sidesTable(one)),
    '',
    ...section(differenceTable(one)),
    '',
  ]
  const test = testLine(one)
  if (test !== null) lines.push(escaped(test), '')
  const uneven = taskTable(one)
  if (uneven.rows.length > 0) lines.push(...section(uneven), '')
  return `${lines.join('\n').trimEnd()}\n`
}

const plain = (text: string): Cell => ({ text })

function sidesTable({ a, b, tasks }: Comparison): ReportTable {
  const row = (side: string, one: ComparedSide): Cell[] =>
    [
      side,
      one.configuration,
      one.model ?? '-',
      one.job,
      rateText(one.rate),
      rangeText(one.rate.overRuns),
      rangeText(one.rate.byTask),
      `${one.rate.passed} of ${one.rate.planned}`,
    ].map(plain)
  return {
    title: `Over ${tasks.length} shared ${tasks.length === 1 ? 'task' : 'tasks'}`,
    columns: [
      { name: '' },
      { name: 'configuration' },
      { name: 'model' },
      { name: 'job' },
      { name: 'pass@1', right: true },
      { name: '95 % over runs (t)', right: true },
      { name: '95 % clustered by task (t)', right: true },
      { name: 'passed', right: true },
    ],
    leaveOut: ['model', 'job', 'passed', '95 % over runs (t)', '95 % clustered by task (t)'],
    rows: [row('A', a), row('B', b)],
  }
}

const signed = (value: number, text: (value: number) => string): string =>
  `${value < 0 ? '-' : '+'}${text(Math.abs(value))}`
const points = (value: number): string => `${(value * 100).toFixed(1)} points`
const tokens = (value: number): string => countText(Math.round(value))
const steps = (value: number): string => countText(Math.round(value * 10) / 10)

function differenceTable(one: Comparison): ReportTable {
  const estimate = one.a.estimate || one.b.estimate ? ' (estimate)' : ''
  const cost = (value: number): string => `${dollars(value)}${estimate}`
  const share = (value: number): string => `${(value * 100).toFixed(1)} %`
  const row = (
    name: string,
    of: PairedDifference | null,
    text: (value: number) => string,
    change = text,
  ): Cell[] =>
    of === null
      ? [name, '-', '-', '-', '-'].map(plain)
      : [
          name,
          text(of.a),
          text(of.b),
          signed(of.difference, change),
          of.interval === null ? '-' : span(of.interval, change),
        ].map(plain)
  const rate = row('pass@1', one.passAt1, share, points)
  if (one.bounds !== null)
    rate[3] = plain(
      `${signed(one.bounds.lower, points)} to ${signed(one.bounds.upper, points)} (bounds)`,
    )
  return {
    title: 'Difference A - B, mean of a trial',
    columns: [
      { name: '' },
      { name: 'A', right: true },
      { name: 'B', right: true },
      { name: 'A - B', right: true },
      { name: '95 % clustered by task (t)', right: true },
    ],
    leaveOut: ['B', 'A'],
    rows: [
      rate,
      row('cost', one.costUsd, cost),
      row('output tokens', one.outputTokens, tokens),
      row('steps', one.steps, steps),
      row('wall time', one.wallTimeMs, durationText),
    ],
  }
}

const span = ({ low, high }: Interval, text: (value: number) => string): string =>
  `${signed(low, text)} to ${signed(high, text)}`

function testLine({ test, complete }: Comparison): string | null {
  if (test === null)
    return complete
      ? 'No exact test: the numbers of runs differ too much between tasks to enumerate.'
      : null
  const p = test.p < 0.0001 ? test.p.toExponential(1) : test.p.toFixed(4)
  return `${test.name}: p = ${p}, two-sided; A passed more often on ${test.better} of ${test.tasks} tasks, B on ${test.worse}.`
}

function taskTable({ tasks }: Comparison): ReportTable {
  const marks = (verdicts: ComparedTask['a']): string =>
    verdicts.map((verdict) => runMark({ verdict })).join('')
  return {
    title: 'Tasks on which they differ (P passed, F failed, v void, ? no usable result)',
    columns: [
      { name: 'task' },
      { name: 'area' },
      { name: 'A' },
      { name: 'B' },
      { name: 'A - B', right: true },
    ],
    leaveOut: ['area'],
    rows: tasks
      .filter(({ difference }) => difference !== 0)
      .toSorted((x, y) => (y.difference ?? 0) - (x.difference ?? 0))
      .map(({ task, area, a, b, difference }) => [
        plain(task),
        plain(area),
        plain(marks(a)),
        plain(marks(b)),
        {
          text: difference === null ? '-' : signed(difference, points),
          tone: difference === null ? 'warn' : difference > 0 ? 'good' : 'bad',
        },
      ]),
  }
}
