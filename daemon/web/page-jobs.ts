/** All jobs, newest first: how far each is, and what it has come to. */
import type { JobDocument, ReportDocument } from '../protocol/board-documents.ts'
import { newest } from './board.ts'
import { every, h, onFrame } from './dom.ts'
import { count, instant, percent } from './format.ts'
import { line } from './hostile.ts'
import type { Page } from './page.ts'
import { jobBadge } from './state.ts'
import { table } from './table.ts'

/** Silence is news that nobody sends. */
export const silenceMs = 15_000

interface Row {
  readonly job: JobDocument
  readonly report: ReportDocument | undefined
  readonly silent: string | null
}

export function jobsPage(page: Page): void {
  const { board, root, signal } = page
  page.title('Jobs')
  const jobs = table<Row>({
    label: 'jobs',
    key: ({ job }) => job.job,
    empty: 'No job has been published here yet. `closedbook run` publishes as it goes.',
    columns: [
      {
        key: 'name',
        title: 'job',
        value: ({ job }) => job.name,
        show: ({ job }) => [
          h('a', { href: `/jobs/${encodeURIComponent(job.job)}`, class: 'strong' }, line(job.name)),
          h('div', { class: 'quiet mono' }, job.job),
        ],
      },
      {
        key: 'state',
        title: 'state',
        value: ({ job, silent }) => silent ?? job.state,
        show: ({ job, silent }) => jobBadge(job, silent),
      },
      {
        key: 'created',
        title: 'created',
        value: ({ job }) => job.createdAt,
        show: ({ job }) => instant(job.createdAt),
      },
      {
        key: 'configurations',
        title: 'configurations',
        value: ({ job }) => job.configurations.map(({ name }) => line(name, 40)).join(', '),
      },
      { key: 'tasks', title: 'tasks', number: true, value: ({ job }) => job.tasks.length },
      { key: 'runs', title: 'runs', number: true, value: ({ job }) => job.runs },
      {
        key: 'scored',
        title: 'scored',
        number: true,
        value: ({ report, job }) => (report?.scored ?? 0) / Math.max(1, job.trials.length),
        show: ({ report, job }) => progress(report?.scored ?? 0, job.trials.length),
      },
      {
        key: 'rate',
        title: 'pass@1',
        note: 'verifier passes over planned trials, once every planned trial is scored',
        number: true,
        value: ({ report }) =>
          report === undefined || report.configurations.length !== 1
            ? null
            : (report.configurations[0]?.passAt1 ?? null),
        show: ({ report }) =>
          report === undefined
            ? '–'
            : report.configurations
                .map(({ passAt1 }) => (passAt1 === null ? '–' : percent(passAt1)))
                .join(' · '),
      },
    ],
  })
  root.append(h('h1', {}, 'Jobs'), jobs.element)
  const draw = onFrame(
    () =>
      jobs.update(
        newest(board.jobs.values()).map((job) => ({
          job,
          report: board.reports.get(job.job),
          silent: board.silentSince(job.job),
        })),
      ),
    signal,
  )
  board.watch(draw, signal)
  every(silenceMs, draw, signal)
  Promise.all([board.load('job'), board.load('alive'), board.load('report')]).then(draw, page.fail)
}

export function progress(done: number, all: number): HTMLElement {
  const part = all === 0 ? 0 : done / all
  const bar = h('span', { class: 'bar-fill' })
  bar.style.width = `${part * 100}%`
  return h(
    'span',
    { class: 'progress' },
    h('span', { class: 'bar', aria: { hidden: true } }, bar),
    `${count(done)}/${count(all)}`,
  )
}
