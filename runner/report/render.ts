/** A report for people at a terminal: trials, a summary of each configuration, what was blocked; then what to know. */
import { boxText } from './box.ts'
import { wrapLine } from './fit.ts'
import type { Amount, ConfigurationReport, Report } from './report.ts'
import {
  blockedReasonTable,
  blockedTable,
  failureTable,
  gridTable,
  groupTable,
  taskTable,
  trialTable,
  type Cell,
  type ReportTable,
} from './tables.ts'
import {
  countText,
  cut,
  durationText,
  painter,
  plainLine,
  type Paint,
  type Style,
} from './terminal.ts'
import { costText, intervalText, percent, rateText } from './words.ts'

export interface ReportView {
  readonly color: boolean
  /** Also the grid, groups and failures. */
  readonly full?: boolean
  /** Every trial and every row, however many. */
  readonly all?: boolean
  /** Of the terminal that shows it; none, and nothing is left out or broken. */
  readonly width?: number
}

/** More trials than this have their grid only. */
const manyTrials = 60
const manyRows = 40

export function renderReport(
  report: Report,
  { color, full = false, all = false, width = Infinity }: ReportView,
): string {
  const paint = painter(color)
  const limit = all ? Infinity : manyRows
  const shown = (table: ReportTable, more = '--trials shows all'): string =>
    `${paint('bold', table.title)}\n${tableText(table, paint, { limit, more, width })}`
  const fewTrials = all || report.trials.length <= manyTrials
  const parts: string[] = []
  if (fewTrials)
    parts.push(tableText(trialTable(report), paint, { width, elsewhere: `${again} csv` }))
  if (full || !fewTrials) parts.push(shown(gridTable(report)))
  parts.push(report.configurations.map((one) => summary(one, paint)).join('\n'))
  if (full) {
    for (const by of ['byArea', 'byHardware'] as const)
      if (report.configurations.some((one) => one[by].length > 1))
        parts.push(shown(shortGroups(groupTable(report, by))))
    if (report.failures.length > 0) parts.push(shown(failureTable(report.failures)))
    const qualified = taskTable(report)
    if (qualified !== null) parts.push(shown(qualified))
  }
  if (report.blocked.length > 0)
    parts.push(shown(blockedTable(report.blocked), 'closedbook audit shows all'))
  else if (full && report.configurations.some(({ blocked }) => blocked.length > 0))
    parts.push(shown(blockedReasonTable(report)))
  const notices = noticeLines(report, paint, limit)
  if (notices !== '') parts.push(notices)
  return proseWrapped(`${parts.join('\n\n')}\n`, width)
}

/** What has all columns. */
const again = 'closedbook report --format'

export const proseWrapped = (text: string, width: number): string =>
  text
    .split('\n')
    .map((line) => (/^[┌│├└]/.test(line) ? line : wrapLine(line, width)))
    .join('\n')

/** A terminal is no wider than it is. */
const shortGroups = ({ columns, rows, ...table }: ReportTable): ReportTable => {
  const keep = columns.flatMap(({ name }, index) => (/median/.test(name) ? [] : [index]))
  const kept = <T>(values: readonly T[]): T[] => values.filter((_, index) => keep.includes(index))
  return { ...table, columns: kept(columns), rows: rows.map(kept) }
}

const tones = { good: 'green', bad: 'red', warn: 'yellow', dim: 'dim' } as const satisfies Record<
  string,
  Style
>

export interface TableView {
  readonly limit?: number
  readonly more?: string
  readonly width?: number
  /** What has the columns that a narrow terminal has no place for. */
  readonly elsewhere?: string
}

export function tableText(
  { columns, rows, leaveOut = [] }: ReportTable,
  paint: Paint,
  { limit = Infinity, more = '', width = Infinity, elsewhere = `${again} md` }: TableView = {},
): string {
  const name = (text: string): string => cut(plainLine(text), 40)
  const text = boxText(
    {
      columns: columns.map((column) => ({ ...column, name: name(column.name) })),
      rows: rows.slice(0, limit).map((row) => row.map((cell) => cellText(cell, paint))),
      leaveOut: leaveOut.map(name),
      compact: true,
    },
    { paint, width, elsewhere },
  )
  const rest = rows.length - limit
  return rest > 0 ? `${text}\n… and ${rest} more; ${more}` : text
}

const cellText = ({ text, tone }: Cell, paint: Paint): string => {
  const shown = cut(plainLine(text), 64)
  return tone === undefined ? shown : paint(tones[tone], shown)
}

function summary(one: ConfigurationReport, paint: Paint): string {
  const { rate } = one
  const title = [one.name, one.model, one.harness === one.name ? null : one.harness]
    .filter((text) => text !== null)
    .map(plainLine)
    .join(' · ')
  const lines = [paint('bold', title)]
  if (rate.passAt1 === null)
    lines.push(
      `  pass@1   ${paint('yellow', rateText(rate))}: ${rate.scored} of ${rate.planned} planned trials are scored, ${rate.passed} passed`,
    )
  else {
    lines.push(
      `  pass@1   ${percent(rate.passAt1)} (${rate.passed} of ${rate.planned} planned trials)`,
    )
    if (rate.overRuns !== null)
      lines.push(
        `  95 % interval   ${intervalText(rate.overRuns)} over the ${rate.overRuns.rates.length} runs' pass rates (t)`,
      )
    if (rate.byTask !== null)
      lines.push(`  95 % interval   ${intervalText(rate.byTask)} clustered by task (t)`)
  }
  const amounts: readonly (readonly [string, Amount, (value: number) => string])[] = [
    ['cost', one.costUsd, (value) => costText(value, one.estimate)],
    ['output tokens', one.outputTokens, (value) => countText(Math.round(value))],
    ['steps', one.steps, (value) => countText(Math.round(value * 10) / 10)],
    ['wall time', one.wallTimeMs, durationText],
  ]
  for (const [label, { total, perScoredTrial, median }, text] of amounts)
    lines.push(
      `  ${label.padEnd(14)} ${text(total)} in all${perScoredTrial === null ? '' : `, ${text(perScoredTrial)} a scored trial`}${median === null ? '' : `, median ${text(median)}`}`,
    )
  return lines.join('\n')
}

/** What is only worth knowing first, the alarms last: the end of the output is what is seen. */
function noticeLines(report: Report, paint: Paint, limit: number): string {
  const notes = report.notices.filter(({ level }) => level === 'note')
  const alarms = report.notices.filter(({ level }) => level === 'alarm')
  const parts = notes.map(({ text }) => `note: ${plainLine(text)}`)
  if (report.unscored.length > 0) {
    for (const { task, configuration, run, trial, why } of report.unscored.slice(0, limit))
      parts.push(
        `  ${plainLine(task)}, ${plainLine(configuration)}, run ${run} (${plainLine(trial)}): ${cut(plainLine(why), 200)}`,
      )
    const rest = report.unscored.length - limit
    if (rest > 0) parts.push(`  … and ${rest} more without a score; --trials shows all`)
  }
  parts.push(...alarms.map(({ text }) => paint('red', paint('bold', plainLine(text)))))
  return parts.join('\n')
}
