/** One row a trial, raw values, by RFC 4180. Text that a spreadsheet would take for a formula is given an apostrophe. */
import type { Report } from './report.ts'

const columns = [
  'job',
  'trial',
  'task',
  'area',
  'hardware',
  'configuration',
  'model',
  'harness',
  'run',
  'verdict',
  'blame',
  'reason',
  'message',
  'functional_passed',
  'functional_planned',
  'regression_passed',
  'regression_planned',
  'cost_usd',
  'cost_is_estimate',
  'output_tokens',
  'steps',
  'wall_time_ms',
  'blocked_attempts',
  'assisted',
  'executions',
] as const

export function reportCsv({ trials, configurations }: Report): string {
  const known = new Map(configurations.map((one) => [one.name, one]))
  const rows = trials.map((row): readonly unknown[] => {
    const configuration = known.get(row.configuration)
    return [
      row.job,
      row.trial,
      row.task,
      row.area,
      row.hardware,
      row.configuration,
      configuration?.model,
      configuration?.harness,
      row.run,
      row.verdict ?? (row.unusable === null ? 'missing' : 'unusable'),
      row.blame,
      row.reason?.code,
      row.unusable ?? row.reason?.message,
      row.functional?.passed,
      row.functional?.planned,
      row.regression?.passed,
      row.regression?.planned,
      row.costUsd,
      configuration?.estimate,
      row.outputTokens,
      row.steps,
      row.wallTimeMs,
      row.blockedAttempts,
      row.assisted,
      row.executions,
    ]
  })
  return [columns, ...rows].map((row) => `${row.map(field).join(',')}\r\n`).join('')
}

function field(value: unknown): string {
  if (value === null || value === undefined) return ''
  if (typeof value !== 'string') return String(value as number | boolean)
  const text = /^[=+\-@\t\r]/.test(value) ? `'${value}` : value
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text
}
