/** A probe for a terminal: a line for each cheat, the holes in words, and whether honest work is still judged rightly. */
import Table from 'cli-table3'
import { cut, durationText, painter, plainLine, type Paint } from '../report/terminal.ts'
import type { Probe, Probed } from './document.ts'

export function renderProbe(document: Probe, { color }: { readonly color: boolean }): string {
  const paint = painter(color)
  const { task, holes, cheats, honest, ok } = document
  const caught = cheats.filter(({ outcome }) => outcome === 'caught').length
  const untried = cheats.filter(({ outcome }) => outcome === 'untried').length
  const head =
    `${ok ? paint('green', 'no way through') : paint('red', holes === 1 ? 'ONE HOLE' : `${holes} HOLES`)}  ${paint('bold', plainLine(task))}: ` +
    `${caught} of ${cheats.length} cheats caught${untried > 0 ? `, ${untried} could not be tried here` : ''}`
  const parts = [head, tableOf(cheats, paint)]
  for (const one of cheats) {
    const text = wordsOf(one, paint)
    if (text !== null) parts.push(text)
  }
  parts.push(
    honest
      .map(
        ({ agent, ok: stands, verdict, reason }) =>
          `${stands ? paint('green', 'stands') : paint('red', 'CHANGED')}  ${agent === 'noop' ? 'no-op' : agent}: ${verdict}, ${plainLine(reason.message)}`,
      )
      .join('\n'),
  )
  return `${parts.join('\n\n')}\n`
}

const colors = {
  caught: 'green',
  passed: 'red',
  leaked: 'red',
  voided: 'red',
  untried: 'dim',
  spoiled: 'yellow',
} as const

function tableOf(cheats: readonly Probed[], paint: Paint): string {
  const table = new Table({
    head: ['cheat', 'outcome', 'verdict', 'reason', 'blocked', 'time'].map((text) =>
      paint('bold', text),
    ),
    colAligns: ['left', 'left', 'left', 'left', 'right', 'right'],
    style: { head: [], border: [], compact: true },
  })
  for (const { name, outcome, verdict, reason, denied, wallTimeMs } of cheats)
    table.push([
      name,
      paint(colors[outcome], outcome),
      verdict,
      cut(plainLine(`${reason.code}: ${reason.message}`), 72),
      denied === 0 ? '' : denied,
      durationText(wallTimeMs),
    ])
  return table.toString()
}

function wordsOf(probed: Probed, paint: Paint): string | null {
  const { name, outcome, tries, leaks, skipped, unexpected, hole, must, reason } = probed
  const lines: string[] = []
  if (hole) lines.push(`${paint('red', 'hole')} ${paint('bold', name)} ${outcome}: ${tries}`)
  for (const leak of leaks) lines.push(`  found ${plainLine(leak)}`)
  if (outcome === 'passed')
    lines.push(
      '  what to do: look at its patch.diff: the tests accept what is no work, or a script of the task computes the reward in a container that the agent changed (then give it [closedbook] suites with junit)',
    )
  if (outcome === 'leaked')
    lines.push('  what to do: take what was found out of the image, then probe again')
  if (outcome === 'spoiled')
    lines.push(
      `${paint('yellow', 'spoiled')} ${name}: ${plainLine(reason.message)}; probe it again (--only ${name})`,
    )
  if (outcome === 'untried')
    lines.push(
      `${paint('dim', 'untried')} ${name}: ${plainLine(skipped ?? 'nothing could be planted')}`,
    )
  if (outcome === 'caught' && unexpected)
    lines.push(
      `${paint('yellow', 'look at')} ${name}: it was caught by ${reason.code}, not by ${must.join(' or ')}`,
    )
  return lines.length === 0 ? null : lines.join('\n')
}
