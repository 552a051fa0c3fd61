/** A report for people: the table of trials, a summary of each configuration, the blocked attempts. */
import Table from 'cli-table3'
import type { SuiteCounts } from '../result.ts'
import type { Interval } from '../statistics.ts'
import { targetOf, type BlockedRow } from './blocked.ts'
import type { Amount, ConfigurationReport, Report, TrialRow } from './report.ts'
import {
  countText,
  cut,
  dollars,
  durationText,
  painter,
  plainLine,
  type Paint,
} from './terminal.ts'

export function renderReport(report: Report, { color }: { readonly color: boolean }): string {
  const paint = painter(color)
  const parts = [trialTable(report.trials, paint)]
  parts.push(report.configurations.map((one) => summary(one, paint)).join('\n'))
  if (report.blocked.length > 0)
    parts.push(`${paint('bold', 'Blocked attempts')}\n${blockedTable(report.blocked, paint)}`)
  if (!report.complete) parts.push(unscoredLines(report, paint))
  return `${parts.join('\n\n')}\n`
}

const grid = (head: readonly string[], right: readonly number[], paint: Paint) =>
  new Table({
    head: head.map((text) => paint('bold', text)),
    colAligns: head.map((_, index) => (right.includes(index) ? 'right' : 'left')),
    // Colours are ours to choose, and none by default in a pipe.
    style: { head: [], border: [], compact: true },
  })

export function trialTable(rows: readonly TrialRow[], paint: Paint): string {
  const head = [
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
  ]
  const table = grid(head, [2, 4, 5, 6, 7, 8, 9, 10], paint)
  for (const row of rows)
    table.push([
      cut(plainLine(row.task), 48),
      cut(plainLine(row.configuration), 32),
      row.run,
      verdictText(row, paint),
      suiteText(row.functional),
      suiteText(row.regression),
      row.costUsd === null ? '-' : dollars(row.costUsd),
      row.outputTokens === null ? '-' : countText(row.outputTokens),
      row.steps === null ? '-' : countText(row.steps),
      row.wallTimeMs === null ? '-' : durationText(row.wallTimeMs),
      row.blockedAttempts === null ? '-' : countText(row.blockedAttempts),
    ])
  return table.toString()
}

function verdictText({ verdict, blame }: TrialRow, paint: Paint): string {
  switch (verdict) {
    case null:
      return paint('dim', 'no result')
    case 'passed':
      return paint('green', 'passed')
    case 'failed':
      return paint('red', 'failed')
    case 'void':
      return paint('yellow', `void (${blame ?? 'unknown'})`)
  }
}

/** `7/11`; `not run` where the suite exists and never ran; `-` where the task has none. */
function suiteText(suite: SuiteCounts | null): string {
  if (suite === null || suite.command === null) return '-'
  if (suite.exit === null) return 'not run'
  return `${suite.passed}/${suite.planned}`
}

export function summary(one: ConfigurationReport, paint: Paint): string {
  const { rate } = one
  const title = [one.name, one.model, one.harness === one.name ? null : one.harness]
    .filter((text) => text !== null)
    .map(plainLine)
    .join(' · ')
  const lines = [paint('bold', title)]
  if (rate.passAt1 === null)
    lines.push(`  pass@1   not given: ${rate.scored} of ${rate.planned} planned trials are scored`)
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
    ['cost', one.costUsd, dollars],
    ['output tokens', one.outputTokens, (value) => countText(Math.round(value))],
    ['steps', one.steps, (value) => countText(Math.round(value * 10) / 10)],
    ['wall time', one.wallTimeMs, durationText],
  ]
  for (const [label, { total, perScoredTrial }, text] of amounts)
    lines.push(
      `  ${label.padEnd(14)} ${text(total)} in all${perScoredTrial === null ? '' : `, ${text(perScoredTrial)} a scored trial`}`,
    )
  return lines.join('\n')
}

const percent = (share: number): string => `${(share * 100).toFixed(1)} %`

const intervalText = ({ low, high, degreesOfFreedom }: Interval): string =>
  `${percent(low)} to ${percent(high)}, ${degreesOfFreedom} degree${degreesOfFreedom === 1 ? '' : 's'} of freedom,`

export function blockedTable(rows: readonly BlockedRow[], paint: Paint, limit = 40): string {
  const table = grid(
    ['host or address', 'port', 'protocol', 'reason', 'count', 'trials'],
    [1, 4, 5],
    paint,
  )
  for (const row of rows.slice(0, limit))
    table.push([
      cut(plainLine(targetOf(row)), 64),
      row.port ?? '-',
      row.protocol,
      row.reason,
      countText(row.count),
      countText(row.trials.length),
    ])
  const rest = rows.length - limit
  return rest > 0
    ? `${table.toString()}\n… and ${rest} more; closedbook audit shows all`
    : table.toString()
}

function unscoredLines({ unscored, planned, scored }: Report, paint: Paint): string {
  const head = `NOT COMPLETE: ${scored} of ${planned} planned trials are scored, so no pass@1 is given.`
  const lines = unscored.map(
    ({ task, configuration, run, trial, why }) =>
      `  ${plainLine(task)}, ${plainLine(configuration)}, run ${run} (${trial}): ${cut(plainLine(why), 200)}`,
  )
  return [paint('red', paint('bold', head)), ...lines].join('\n')
}
