/** The table of a job's results, with a filter for words and one for how trials stand. */
import type {
  JobDocument,
  PlannedTrialDocument,
  SuiteDocument,
  TrialDocument,
} from '../protocol/board-documents.ts'
import { h } from './dom.ts'
import { count, dollars, duration, short } from './format.ts'
import { line } from './hostile.ts'
import { badge, type Standing } from './state.ts'
import { table } from './table.ts'

export interface ResultRow {
  readonly planned: PlannedTrialDocument
  readonly trial: TrialDocument | undefined
  readonly standing: Standing
}

export function resultsTable(): {
  readonly element: HTMLElement
  readonly filter: HTMLElement
  update(job: JobDocument, rows: readonly ResultRow[]): void
} {
  let job = ''
  let rows: readonly ResultRow[] = []
  const words = h('input', {
    type: 'search',
    class: 'filter',
    placeholder: 'filter by task, configuration, reason',
    aria: { label: 'filter results' },
    on: { input: () => draw() },
  })
  const standing = h(
    'select',
    { aria: { label: 'how trials stand' }, on: { change: () => draw() } },
    ...['all', 'passed', 'failed', 'void', 'running', 'planned'].map((value) =>
      h('option', { value }, value),
    ),
  )
  const results = table<ResultRow>({
    label: 'results',
    key: ({ planned }) => planned.trial,
    empty: 'No trial matches.',
    columns: [
      {
        key: 'task',
        title: 'task',
        value: ({ planned }) => planned.task,
        show: ({ planned }) =>
          h('a', { href: `/jobs/${job}/trials/${planned.trial}` }, line(planned.task, 80)),
      },
      // beside the task, where a narrow screen shows it too
      {
        key: 'verdict',
        title: 'verdict',
        value: ({ standing: one, trial }) =>
          `${one} ${trial?.phase ?? ''} ${trial?.assisted ?? ''}`,
        show: ({ standing: one, trial }) => [
          badge(one, one === 'running' ? (trial?.phase ?? 'starting') : one),
          trial?.assisted === true ? h('span', { class: 'badge assisted' }, 'assisted') : null,
        ],
      },
      {
        key: 'configuration',
        title: 'configuration',
        value: ({ planned }) => line(planned.configuration, 40),
      },
      { key: 'run', title: 'run', number: true, value: ({ planned }) => planned.run },
      suite('functional', (trial) => trial.functional),
      suite('regression', (trial) => trial.regression),
      number('cost', (trial) => trial.costUsd, dollars),
      number('out tokens', (trial) => trial.outputTokens, short),
      number('steps', (trial) => trial.steps, count),
      number('wall time', (trial) => trial.wallTimeMs, duration),
      number('blocked', (trial) => trial.denied, count),
      {
        key: 'reason',
        title: 'reason',
        value: ({ trial }) =>
          trial === undefined ? null : line(trial.reason?.message ?? trial.note ?? '', 140),
        show: ({ trial }) =>
          h('span', { class: 'reason' }, line(trial?.reason?.message ?? trial?.note ?? '', 140)),
      },
    ],
  })

  function draw(): void {
    const wanted = words.value.toLowerCase().split(/\s+/)
    results.update(
      rows.filter(({ planned, trial, standing: one }) => {
        if (standing.value !== 'all' && standing.value !== one) return false
        const text = `${planned.task} ${planned.configuration} ${trial?.reason?.code ?? ''} ${trial?.reason?.message ?? ''}`
        return wanted.every((word) => text.toLowerCase().includes(word))
      }),
    )
  }

  return {
    element: results.element,
    filter: h('div', { class: 'filters' }, words, standing),
    update(document, next) {
      job = document.job
      rows = next
      draw()
    },
  }
}

const number = (
  key: string,
  of: (trial: TrialDocument) => number | null,
  text: (value: number) => string,
) => ({
  key,
  title: key,
  number: true,
  value: ({ trial }: ResultRow) => (trial === undefined ? null : of(trial)),
  show: ({ trial }: ResultRow) => {
    const value = trial === undefined ? null : of(trial)
    return value === null ? '–' : text(value)
  },
})

const suite = (key: string, of: (trial: TrialDocument) => SuiteDocument | null) => ({
  key,
  title: key,
  number: true,
  value: ({ trial }: ResultRow) => {
    const counts = trial === undefined ? null : of(trial)
    return counts === null ? null : counts.passed / Math.max(1, counts.planned)
  },
  show: ({ trial }: ResultRow) => {
    const counts = trial === undefined ? null : of(trial)
    return counts === null ? '–' : `${counts.passed}/${counts.planned}`
  },
})
