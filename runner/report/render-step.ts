/** One step for people: a head line, what the model said, each command with the end of its output, what was refused. */
import { exitSchema } from '../../daemon/protocol/exec-frames.ts'
import { exitText } from '../harness/ends.ts'
import type { Step, StepCommand } from '../step-log.ts'
import {
  countText,
  cut,
  dollars,
  durationText,
  painter,
  plainLine,
  plainText,
  type Paint,
} from './terminal.ts'

export interface StepView {
  readonly color: boolean
  /** Lines of output shown of each command. */
  readonly outputLines?: number
}

export function renderStep(step: Step, { color, outputLines = 12 }: StepView): string {
  const paint = painter(color)
  const facts = [plainLine(step.time).slice(11, 19)]
  if (step.tokens !== null)
    facts.push(
      `${countText(step.tokens.input)} in, ${countText(step.tokens.output)} out`,
      dollars(step.costUsd),
    )
  const lines = [paint('bold', `step ${step.step}`) + paint('dim', `  ${facts.join(' · ')}`)]
  if (step.text !== null && step.text.trim() !== '')
    lines.push(indent(plainText(step.text.trim()), '  '))
  for (const command of step.commands) lines.push(...commandLines(command, outputLines, paint))
  for (const { protocol, target, reason, count } of step.denied)
    lines.push(
      paint(
        'yellow',
        `  ! blocked ${plainLine(protocol)} to ${plainLine(target)}: ${plainLine(reason)}`,
      ) + (count > 1 ? ` (${count} times)` : ''),
    )
  return `${lines.join('\n')}\n`
}

function commandLines(command: StepCommand, limit: number, paint: Paint): string[] {
  const lines = [paint('cyan', indent(plainText(command.command), '    ').replace(/^ {4}/, '  $ '))]
  const parsed = exitSchema.safeParse(command.exit)
  const whole =
    command.outputBytes !== null && command.outputBytes <= Buffer.byteLength(command.head)
  const output = plainText(whole ? command.head : command.tail || command.head).replace(/\n+$/, '')
  const rows = output === '' ? [] : output.split('\n')
  const shown = rows.slice(-limit)
  if (shown.length < rows.length || (!whole && rows.length > 0))
    lines.push(paint('dim', `    … the end of ${countText(command.outputBytes ?? 0)} bytes`))
  for (const row of shown) lines.push(paint('dim', `    ${cut(row, 400)}`))
  if (!parsed.success) return [...lines, paint('dim', '  = running')]
  const ok = parsed.data !== 'unknown' && 'code' in parsed.data && parsed.data.code === 0
  const why =
    command.cause === null || command.cause === 'exited' ? '' : ` (${plainLine(command.cause)})`
  const took = command.durationMs === null ? '' : `, ${durationText(command.durationMs)}`
  lines.push(
    paint(ok ? 'green' : 'red', `  = ${plainLine(exitText(parsed.data))}${why}`) +
      paint('dim', took),
  )
  return lines
}

const indent = (text: string, by: string): string =>
  text
    .split('\n')
    .map((line) => by + line)
    .join('\n')
