/** A report for people at a terminal: trials, a summary of each configuration, what was blocked; then what to know. */
import Table from 'cli-table3'
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
}

/** More trials than this have their grid only. */
const manyTrials = 60
const manyRows = 40

export function renderReport(
  report: Report,
  { color, full = false, all = false }: ReportView,
): string {
  const paint = painter(color)
  const limit = all ? Infinity : manyRows
  const shown = (table: ReportTable, more = '--trials shows all'): string =>
    `${paint('bold', table.title)}\n${tableText(table, paint, { limit, more })}`
  const fewTrials = all || report.trials.length <= manyTrials
  const parts: string[] = []
  if (fewTrials) parts.push(tableText(trialTable(report), paint))
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
  return `${parts.join('\n\n')}\n`
}

/** A terminal is no wider than it is. */
const shortGroups = ({ title, columns, rows }: ReportTable): ReportTable => {
  const keep = columns.flatMap(({ name }, index) => (/median/.test(name) ? [] : [index]))
  const kept = <T>(values: readonly T[]): T[] => values.filter((_, index) => keep.includes(index))
  return { title, columns: kept(columns), rows: rows.map(kept) }
}

const tones = { good: 'green', bad: 'red', warn: 'yellow', dim: 'dim' } as const satisfies Record<
  string,
  Style
>

export function tableText(
  { columns, rows }: ReportTable,
  paint: Paint,
  { limit = Infinity, more = '' }: { limit?: number; more?: string } = {},
): string {
  const table = new Table({
    head: columns.map(({ name }) => paint('bold', cut(plainLine(name), 40))),
    colAligns: columns.map((column) => (column.right === true ? 'right' : 'left')),
    // Colours are ours to choose, and none by default in a pipe.
    style: { head: [], border: [], compact: true },
  })
  for (const row of rows.slice(0, limit)) table.push(row.map((cell) => cellText(cell, paint)))
  const rest = rows.length - limit
  return rest > 0 ? `${table.toString()}\n… and ${rest} more; ${more}` : table.toString()
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
