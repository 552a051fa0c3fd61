/** One job: its trials as a grid that lives, figures, plots, and the table of results. */
import type {
  IntervalDocument,
  JobDocument,
  ReportDocument,
  TrialDocument,
} from '../protocol/board-documents.ts'
import { every, fill, h, onFrame } from './dom.ts'
import { count, dollars, duration, instant, percent, short } from './format.ts'
import { line } from './hostile.ts'
import { resultsTable, type ResultRow } from './job-results.ts'
import type { Page } from './page.ts'
import { progress, silenceMs } from './page-jobs.ts'
import { dotPlot, scorePlot, type Axis, type Dot, type Point } from './plot.ts'
import { jobBadge, signs, standingOf, type Standing } from './state.ts'

type AxisName = 'cost' | 'time' | 'tokens'

const axes: Readonly<Record<AxisName, Axis & { readonly of: (trial: TrialDocument) => number }>> = {
  cost: {
    title: 'cost per trial (US dollars)',
    text: (value) => `$${value}`,
    of: (trial) => trial.costUsd,
  },
  time: {
    title: 'wall time per trial (minutes)',
    text: String,
    of: (trial) => (trial.wallTimeMs ?? 0) / 60_000,
  },
  tokens: { title: 'output tokens per trial', text: short, of: (trial) => trial.outputTokens },
}

export function jobPage(page: Page): void {
  const { board, root, signal, params } = page
  const id = params['job'] ?? ''
  const head = h('div', { class: 'job-head' })
  const tiles = h('div', { class: 'tiles' })
  const gridBox = h('div', { class: 'grid-box' })
  const plots = h('div', { class: 'plots' })
  const results = resultsTable()
  let axis: AxisName = 'cost'
  const choice = h(
    'div',
    { class: 'choice', role: 'radiogroup', aria: { label: 'horizontal axis' } },
    ...(['cost', 'time', 'tokens'] as const).map((name) =>
      h(
        'label',
        {},
        h('input', {
          type: 'radio',
          name: 'axis',
          value: name,
          checked: name === axis,
          on: { change: () => ((axis = name), draw()) },
        }),
        name,
      ),
    ),
  )
  root.append(
    head,
    tiles,
    h(
      'div',
      { class: 'job-columns' },
      h('section', { class: 'card' }, h('h2', {}, 'Trials'), legend(), gridBox),
      h(
        'section',
        { class: 'card' },
        h('header', { class: 'card-head' }, h('h2', {}, 'Score and cost'), choice),
        plots,
      ),
    ),
    h(
      'section',
      { class: 'card' },
      h('header', { class: 'card-head' }, h('h2', {}, 'Results'), results.filter),
      results.element,
    ),
  )
  const grid = trialGrid(id)
  let drawnFor = ''
  const draw = onFrame(() => {
    const job = board.jobs.get(id)
    if (job === undefined) return
    page.title(line(job.name, 60))
    const trials = board.trialsOf(id)
    const report = board.reports.get(id)
    drawHead(head, job, board.silentSince(id))
    const recorded = [...trials.values()]
    fill(
      tiles,
      ...(report?.configurations ?? []).map((one) =>
        tile(
          report !== undefined && report.configurations.length > 1
            ? `pass@1, ${line(one.name, 30)}`
            : 'pass@1',
          one.passAt1 === null
            ? one.scored === 0
              ? '–'
              : `${one.passed} of ${one.scored} so far`
            : percent(one.passAt1),
          one.passAt1 === null
            ? `${one.planned - one.scored} of ${one.planned} not scored yet`
            : `${one.passed} of ${one.planned}${intervalText(one)}`,
        ),
      ),
      tile(
        'scored',
        progress(report?.scored ?? 0, job.trials.length),
        `${recorded.filter(({ state }) => state === 'running').length} running`,
      ),
      tile(
        'cost',
        dollars(sum(recorded, (trial) => trial.costUsd)),
        `${short(sum(recorded, (trial) => trial.outputTokens))} output tokens`,
      ),
      tile(
        'blocked attempts',
        count(sum(recorded, (trial) => trial.denied)),
        `in ${recorded.filter(({ denied }) => denied > 0).length} trials`,
      ),
    )
    grid.update(job, trials, gridBox)
    results.update(job, rowsOf(job, trials))
    // plots are drawn anew, so only when what they show has changed
    const shown = JSON.stringify([
      axis,
      report,
      recorded.filter(({ state }) => state === 'recorded').length,
    ])
    if (shown === drawnFor) return
    drawnFor = shown
    fill(plots, ...plotsOf(job, trials, report?.configurations ?? [], axis))
  }, signal)
  board.watch(draw, signal)
  every(silenceMs, draw, signal)
  Promise.all([
    board.load('job'),
    board.load('alive'),
    board.load('report'),
    board.load('trial', `${id}.`),
  ]).then(() => {
    if (board.jobs.has(id)) draw()
    else page.fail(new Error(`no job ${id} has been published here`))
  }, page.fail)
}

/** Both, each by its name; the first is that of the plot. */
function intervalText({ overRuns, byTask }: ReportDocument['configurations'][number]): string {
  const text = (name: string, interval: IntervalDocument | null): string =>
    interval === null ? '' : `; ${percent(interval.low)} to ${percent(interval.high)} ${name}`
  const both = text('over runs', overRuns) + text('by task', byTask)
  return both === '' ? '' : `, 95 %${both.replace(';', ':')}`
}

const sum = <T>(values: readonly T[], of: (value: T) => number): number =>
  values.reduce((total, value) => total + of(value), 0)

function drawHead(head: HTMLElement, job: JobDocument, silent: string | null): void {
  fill(
    head,
    h(
      'nav',
      { class: 'crumbs', aria: { label: 'where this is' } },
      h('a', { href: '/jobs' }, 'Jobs'),
      ' / ',
    ),
    h('h1', {}, line(job.name), ' ', jobBadge(job, silent)),
    h(
      'p',
      { class: 'quiet' },
      h('span', { class: 'mono' }, job.job),
      ` · ${instant(job.createdAt)} · ${count(job.tasks.length)} tasks × ${job.configurations.length} configurations × ${job.runs} runs · ${line(job.host, 60)}:`,
      h('span', { class: 'mono' }, line(job.directory, 200)),
    ),
  )
}

const tile = (title: string, value: string | HTMLElement, below: string): HTMLElement =>
  h(
    'div',
    { class: 'tile' },
    h('span', { class: 'tile-title' }, title),
    h('strong', {}, value),
    h('span', { class: 'quiet' }, below),
  )

const standings: readonly Standing[] = ['passed', 'failed', 'void', 'running', 'planned']
const legend = (): HTMLElement =>
  h(
    'ul',
    { class: 'legend' },
    ...standings.map((one) =>
      h('li', {}, h('span', { class: `cell ${one}`, aria: { hidden: true } }, signs[one]), one),
    ),
  )

/** A row a task, a cell a run of a configuration; arrow keys walk. */
function trialGrid(job: string): {
  update(job: JobDocument, trials: ReadonlyMap<string, TrialDocument>, box: HTMLElement): void
} {
  const cells = new Map<string, HTMLAnchorElement>()
  let built = ''

  function build(document: JobDocument, box: HTMLElement): void {
    const key = JSON.stringify(document.trials.length)
    if (key === built) return
    built = key
    cells.clear()
    const planned = new Map(
      document.trials.map((trial) => [
        `${trial.task}\n${trial.configuration}\n${trial.run}`,
        trial,
      ]),
    )
    const runs = Array.from({ length: document.runs }, (_, index) => index + 1)
    const several = document.configurations.length > 1
    const rows = document.tasks.map(({ name, area, hardware }) =>
      h(
        'tr',
        {},
        h(
          'th',
          { scope: 'row', title: `${line(area)}, ${line(hardware)}` },
          line(name.replace(/^.*\//, ''), 60),
        ),
        ...document.configurations.map((configuration) =>
          h(
            'td',
            {},
            ...runs.map((run) => {
              const trial = planned.get(`${name}\n${configuration.name}\n${run}`)
              if (trial === undefined) return null
              const cell = h(
                'a',
                { href: `/jobs/${job}/trials/${trial.trial}`, class: 'cell planned' },
                signs.planned,
              )
              cells.set(trial.trial, cell)
              return cell
            }),
          ),
        ),
      ),
    )
    const heading = several
      ? h(
          'thead',
          {},
          h(
            'tr',
            {},
            h('td'),
            ...document.configurations.map(({ name }) => h('th', { scope: 'col' }, line(name, 24))),
          ),
        )
      : null
    fill(
      box,
      h(
        'table',
        { class: 'trial-grid', on: { keydown: (event) => walk(event as KeyboardEvent) } },
        heading,
        h('tbody', {}, ...rows),
      ),
    )
  }

  function walk(event: KeyboardEvent): void {
    const all = [...cells.values()]
    const at = all.indexOf(document.activeElement as HTMLAnchorElement)
    if (at === -1) return
    const box = all[at]?.getBoundingClientRect()
    const sameColumn = (cell: HTMLElement): boolean =>
      Math.abs(cell.getBoundingClientRect().left - (box?.left ?? 0)) < 4
    const to: Readonly<Record<string, HTMLElement | undefined>> = {
      ArrowRight: all[at + 1],
      ArrowLeft: all[at - 1],
      ArrowDown: all.slice(at + 1).find(sameColumn),
      ArrowUp: all.slice(0, at).findLast(sameColumn),
    }
    const next = to[event.key]
    if (next === undefined) return
    event.preventDefault()
    next.focus()
  }

  return {
    update(document, trials, box) {
      build(document, box)
      for (const planned of document.trials) {
        const cell = cells.get(planned.trial)
        if (cell === undefined) continue
        const trial = trials.get(planned.trial)
        const standing = standingOf(trial)
        const className = `cell ${standing}${trial?.assisted === true ? ' assisted' : ''}`
        const title = cellTitle(planned, trial, standing)
        if (cell.className !== className) {
          cell.className = className
          fill(cell, signs[standing])
        }
        if (cell.title === title) continue
        cell.title = title
        cell.setAttribute('aria-label', title)
      }
    },
  }
}

function cellTitle(
  planned: ResultRow['planned'],
  trial: TrialDocument | undefined,
  standing: Standing,
): string {
  const name = `${line(planned.task, 80)}, ${line(planned.configuration, 40)}, run ${planned.run}: ${standing}`
  if (trial === undefined) return name
  if (trial.state === 'running')
    return `${name}, ${line(trial.phase ?? 'starting', 20)}, step ${trial.steps}, ${dollars(trial.costUsd)}`
  return `${name}; ${dollars(trial.costUsd)}, ${duration(trial.wallTimeMs ?? 0)}${trial.denied > 0 ? `, ${trial.denied} blocked` : ''}`
}

const rowsOf = (job: JobDocument, trials: ReadonlyMap<string, TrialDocument>): ResultRow[] =>
  job.trials.map((planned) => {
    const trial = trials.get(planned.trial)
    return { planned, trial, standing: standingOf(trial) }
  })

function plotsOf(
  job: JobDocument,
  trials: ReadonlyMap<string, TrialDocument>,
  configurations: ReportDocument['configurations'],
  name: AxisName,
): (Node | string)[] {
  const axis = axes[name]
  const mean = {
    cost: (one: (typeof configurations)[number]) => one.meanCostUsd,
    time: (one: (typeof configurations)[number]) =>
      one.meanWallTimeMs === null ? null : one.meanWallTimeMs / 60_000,
    tokens: (one: (typeof configurations)[number]) => one.meanOutputTokens,
  }[name]
  const points = configurations.flatMap((one): Point[] => {
    const x = mean(one)
    if (x === null || one.scored === 0) return []
    const y = one.passAt1 ?? one.passed / one.scored
    return [
      {
        ...{ x, y },
        low: (one.overRuns ?? one.byTask)?.low ?? null,
        high: (one.overRuns ?? one.byTask)?.high ?? null,
        label: `${line(one.name, 28)} ${percent(y)}`,
        note: `${line(one.name)}: ${one.passed} of ${one.scored} scored trials passed${intervalText(one)}`,
        open: one.passAt1 === null,
      },
    ]
  })
  if (points.length === 0) return [h('p', { class: 'empty' }, 'Nothing is scored yet.')]
  const names = job.configurations.map((one) => one.name)
  const dots = [...trials.values()].flatMap((trial): Dot[] => {
    const row = names.indexOf(trial.configuration)
    const standing = standingOf(trial)
    if (row === -1 || standing === 'running') return []
    return [
      {
        ...{ row, standing },
        x: axis.of(trial),
        href: `/jobs/${job.job}/trials/${trial.trial}`,
        note: `${line(trial.task, 80)}, run ${trial.run}: ${standing}`,
      },
    ]
  })
  return [
    scorePlot(points, { title: `mean ${axis.title}`, text: axis.text }),
    dotPlot(
      dots,
      names.map((one) => line(one, 60)),
      axis,
    ),
  ]
}
