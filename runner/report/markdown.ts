/** A report as Markdown that needs no renderer to be read. What agents wrote can't end a cell, open a tag or make a link. */
import type { Report } from './report.ts'
import {
  blockedReasonTable,
  blockedTable,
  configurationTable,
  failureTable,
  gridTable,
  groupTable,
  taskTable,
  trialTable,
  unscoredTable,
  type ReportTable,
} from './tables.ts'
import { cut, plainLine } from './terminal.ts'

export function reportMarkdown(report: Report): string {
  const tables = [
    configurationTable(report),
    groupTable(report, 'byArea'),
    groupTable(report, 'byHardware'),
    gridTable(report),
    failureTable(report.failures),
    blockedReasonTable(report),
    blockedTable(report.blocked),
    taskTable(report),
    unscoredTable(report),
    trialTable(report),
  ]
  const lines = [
    `# ${escaped(report.name || 'Report')}`,
    '',
    `Job ${escaped(report.job)}, ${escaped(report.createdAt)}`,
    '',
  ]
  for (const { level, text } of report.notices)
    lines.push(level === 'alarm' ? `> **${escaped(text)}**` : `> ${escaped(text)}`, '')
  for (const table of tables)
    if (table !== null && table.rows.length > 0) lines.push(...section(table), '')
  return `${lines.join('\n').trimEnd()}\n`
}

export function section({ title, columns, rows }: ReportTable): string[] {
  return [
    `## ${escaped(title)}`,
    '',
    row(columns.map(({ name }) => escaped(name))),
    row(columns.map((column) => (column.right === true ? '--:' : '---'))),
    ...rows.map((cells) => row(cells.map(({ text }) => escaped(cut(text, 300))))),
  ]
}

const row = (cells: readonly string[]): string => `| ${cells.join(' | ')} |`

export const escaped = (text: string): string =>
  plainLine(text).replace(/[\\`*_{}[\]<>|~&#$!]/g, (char) =>
    char === '<' ? '&lt;' : char === '>' ? '&gt;' : char === '&' ? '&amp;' : `\\${char}`,
  )
