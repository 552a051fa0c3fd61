/** How a trial stands, as a word, a sign and a colour: never by colour alone. */
import type { TrialDocument } from '../protocol/board-documents.ts'
import { h } from './dom.ts'

export type Standing = 'passed' | 'failed' | 'void' | 'running' | 'planned'

export const signs: Readonly<Record<Standing, string>> = {
  passed: '✓',
  failed: '✗',
  void: '∅',
  running: '●',
  planned: '·',
}

export const standingOf = (trial: TrialDocument | undefined): Standing =>
  trial === undefined
    ? 'planned'
    : trial.state === 'running'
      ? 'running'
      : (trial.verdict ?? 'void')

export function badge(standing: Standing, text: string = standing): HTMLElement {
  return h(
    'span',
    { class: `badge ${standing}` },
    h('span', { aria: { hidden: true }, class: 'sign' }, signs[standing]),
    ' ',
    text,
  )
}
