/** What grading again came to: the verdicts that changed, and what could not be graded. */
import { proseWrapped, tableText } from '../report/render.ts'
import { leavingOut, type Cell, type ReportTable, type Tone } from '../report/tables.ts'
import { painter, plainLine, plural } from '../report/terminal.ts'
import type { RegradeRecord, RegradeTrial } from './record.ts'

export function renderRegrade(
  record: RegradeRecord,
  { color, width = Infinity }: { readonly color: boolean; readonly width?: number },
): string {
  const paint = painter(color)
  const view = { width, elsewhere: '--json' }
  const { trials } = record
  const of = (how: RegradeTrial['how']): RegradeTrial[] => trials.filter((one) => one.how === how)
  const changed = trials.filter((one) => one.changed)
  const parts: string[] = []
  if (changed.length > 0)
    parts.push(
      `${paint('bold', 'Verdicts that changed')}\n${tableText(tableOf(changed), paint, view)}`,
    )
  const impossible = of('impossible').filter((one) => !one.changed)
  if (impossible.length > 0)
    parts.push(
      `${paint('bold', 'Not graded again')}\n${tableText(tableOf(impossible), paint, view)}`,
    )
  const lines = [
    `${of('graded').length} of ${trials.length} trials graded again, ${plural(changed.length, 'verdict')} changed`,
  ]
  if (of('kept').length > 0)
    lines.push(
      `${of('kept').length} left no work to grade, or was assisted, and keep their verdict`,
    )
  for (const { name, testsBefore, tests, imageBefore, image } of record.tasks)
    lines.push(
      `${plainLine(name)}: ${[tests === testsBefore ? '' : 'other tests', image === imageBefore ? '' : 'another image'].filter((one) => one !== '').join(' and ')} than planned`,
    )
  if (of('impossible').length > 0)
    lines.push(
      paint(
        'red',
        paint(
          'bold',
          `NOT COMPLETE: ${plural(of('impossible').length, 'trial')} could not be graded again and ${of('impossible').length === 1 ? 'is' : 'are'} void.`,
        ),
      ),
    )
  parts.push(lines.join('\n'))
  return proseWrapped(`${parts.join('\n\n')}\n`, width)
}

const tones: Readonly<Record<string, Tone>> = { passed: 'good', failed: 'bad', void: 'warn' }
const verdict = (text: string): Cell => {
  const tone = tones[text]
  return { text, ...(tone !== undefined && { tone }) }
}

const tableOf = (trials: readonly RegradeTrial[]): ReportTable => ({
  title: '',
  columns: [
    { name: 'task' },
    { name: 'configuration' },
    { name: 'run', right: true },
    { name: 'was' },
    { name: 'is' },
    { name: 'reason' },
  ],
  leaveOut: leavingOut(
    trials.map((one) => one.configuration),
    ...['reason', 'run'],
  ),
  rows: trials.map(({ task, configuration, run, before, after }) => [
    { text: task },
    { text: configuration },
    { text: String(run) },
    verdict(before.verdict),
    verdict(after.verdict),
    { text: after.reason.message },
  ]),
})
