/** Findings for people: one line each, `file:line severity rule message`, the task's name above them. */
import type { LintReport } from './lint.ts'
import { plural } from '../../report/terminal.ts'
import { rules, ruleNames } from './rules.ts'

const colors = { error: '\u001b[31m', warning: '\u001b[33m', dim: '\u001b[2m', reset: '\u001b[0m' }

export function renderReport(report: LintReport, { color }: { color: boolean }): string {
  const paint = (name: keyof typeof colors, text: string): string =>
    color ? `${colors[name]}${text}${colors.reset}` : text
  const lines = report.findings.map(({ rule, severity, file, line, message }) => {
    const where = line === null ? file : `${file}:${line}`
    return `  ${where}  ${paint(severity, severity)} ${rule}: ${message}`
  })
  const count = (severity: string): number =>
    report.findings.filter((finding) => finding.severity === severity).length
  const verdict =
    lines.length === 0
      ? 'clean'
      : `${plural(count('error'), 'error')}, ${plural(count('warning'), 'warning')}`
  const note = report.note === null ? '' : paint('dim', ` (${report.note})`)
  return [`${report.task}: ${verdict}${note}`, ...lines].join('\n')
}

export const renderRules = (): string =>
  ruleNames
    .map((name) => {
      const { severity, looksAt, byDefault, about } = rules[name]
      const off = byDefault ? '' : ' (off by default)'
      return `${name.padEnd(32)} ${severity.padEnd(8)} ${looksAt.padEnd(6)} ${about}${off}`
    })
    .join('\n')
