/**
 * A recording made from steps, for harnesses that run their commands without a terminal: each command as if typed, its
 * output when it ended. What was printed is put back in order after each command, so that none can spoil the next.
 */
import type { StepDocument } from '../protocol/board-documents.ts'
import type { Cast, CastEvent } from './cast.ts'
import { duration, exitGood, exitText } from './format.ts'
import { line, plain } from './hostile.ts'

const size = { cols: 120, rows: 32 } as const
/** Colours off, main screen, whole scroll region, cursor shown, wrapping on, usual characters. */
const restored =
  '\u001b[0m\u001b[?47l\u001b7\u001b[r\u001b[?6l\u001b8\u001b[?25h\u001b[?7h\u001b(B\u000f'

const crlf = (text: string): string => text.replaceAll(/\r?\n/g, '\r\n')

export function stepEvents(step: StepDocument, start: number): CastEvent[] {
  const at = (iso: string): number => Math.max(0, (Date.parse(iso) - start) / 1000)
  const events: CastEvent[] = []
  if (step.text !== null && step.text !== '') {
    const thought = crlf(plain(step.text).trim()).replaceAll('\r\n', '\r\n  ')
    events.push({ time: at(step.time), code: 'o', data: `\u001b[2m▌ ${thought}\u001b[0m\r\n` })
  }
  for (const command of step.commands) {
    const began = at(command.startedAt)
    const shown = crlf(plain(command.command)).replaceAll('\r\n', '\r\n  ')
    events.push({
      time: began,
      code: 'o',
      data: `\u001b[1;36m$\u001b[0m \u001b[1m${shown}\u001b[0m\r\n`,
    })
    if (command.exit === null) continue
    const dropped = (command.outputBytes ?? 0) - new Blob([command.head, command.tail]).size
    const middle = dropped > 0 ? `\r\n\u001b[2m… ${dropped} bytes left out …\u001b[0m\r\n` : ''
    const output = crlf(command.head) + middle + crlf(command.tail)
    const newline = output === '' || output.endsWith('\n') ? '' : '\r\n'
    const colour = exitGood(command.exit) ? '32' : '31'
    const end = `${line(exitText(command.exit))}${command.durationMs === null ? '' : ` · ${duration(command.durationMs)}`}`
    events.push({
      time: began + (command.durationMs ?? 0) / 1000,
      code: 'o',
      data: `${output}${restored}${newline}\u001b[${colour}m${end}\u001b[0m\r\n\r\n`,
    })
  }
  return events
}

export function castOfSteps(steps: readonly StepDocument[], startedAt: string): Cast {
  const start = Date.parse(startedAt)
  const events = steps
    .flatMap((step) => stepEvents(step, start))
    .toSorted((a, b) => a.time - b.time)
  return { ...size, startedAt: start / 1000, events, duration: events.at(-1)?.time ?? 0 }
}

export const transcriptSize = size
