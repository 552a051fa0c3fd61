/** How a trial stands, as a word, a sign and a colour: never by colour alone. */
import type { JobDocument, TrialDocument } from '../protocol/board-documents.ts'
import { h } from './dom.ts'
import { instant } from './format.ts'

export type Standing = 'passed' | 'failed' | 'void' | 'running' | 'planned'

export const signs: Readonly<Record<Standing, string>> = {
  passed: '✓',
  failed: '✗',
  void: '∅',
  running: '●',
  planned: '·',
}

export const standingOf = (trial: TrialDocument | undefined): Standing =>
  trial === undefined || trial.state === 'stopped'
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

/** `silent`: since when its runner was not heard of, though it is said to run. */
export function jobBadge({ state }: JobDocument, silent: string | null): HTMLElement {
  if (silent === null) return h('span', { class: `badge job-${state}` }, state)
  return h(
    'span',
    { class: 'badge job-silent', title: silentTitle },
    `not heard of since ${instant(silent)}`,
  )
}

export const silentTitle =
  'its runner gives no sign of life: it was killed, or can’t reach this daemon; `closedbook resume` goes on with the job'
