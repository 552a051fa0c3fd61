/**
 * One trial: what it does now or did, in its terminal and step by step, what it costs, what was refused and when, and
 * what came of it. Everything on this page that an agent wrote is text to us and nothing else.
 */
import type { StepDocument, TrialDocument } from '../protocol/board-documents.ts'
import type { TrialResult } from './result.ts'
import { jsonOrNull } from './api.ts'
import { Blocked } from './blocked.ts'
import { every, fill, h, onFrame, type Child } from './dom.ts'
import { evidencePanel, factsPanel, patchPanel, phasesBar, testsPanel } from './trial-panels.ts'
import { count, dollars, duration, instant, short } from './format.ts'
import { line } from './hostile.ts'
import type { Page } from './page.ts'
import { growthPlot } from './plot.ts'
import { badge, silentTitle, standingOf } from './state.ts'
import { stepList } from './steps.ts'
import { followSteps } from './follow-steps.ts'
import { tabs } from './tabs.ts'
import { TerminalPane } from './terminal-pane.ts'

/** `/trials/ID` does not say which job. */
export async function anyTrialPage(page: Page): Promise<void> {
  const trial = page.params['trial'] ?? ''
  const job = await page.board.jobOf(trial)
  if (job !== null) history.replaceState(null, '', `/jobs/${job}/trials/${trial}`)
  trialPage({ ...page, params: { trial, job: job ?? '' } })
}

export function trialPage(page: Page): void {
  const { board, root, signal, params } = page
  const { job = '', trial = '' } = params
  const id = `${job}.${trial}`
  page.title(`Trial ${trial}`)

  const head = h('div', { class: 'trial-head' })
  const tiles = h('div', { class: 'tiles' })
  const phases = h('div', { class: 'phases' })
  const growth = h('div', { class: 'growths' })
  const steps: StepDocument[] = []
  const pane = new TerminalPane(page, trial)
  const list = stepList((iso) => pane.seek(iso))
  const blocked = new Blocked(page, trial, {
    onSeek: (iso) => pane.seek(iso),
    onStep: (iso) => {
      const step = steps.findLast(({ time }) => time <= iso)
      if (step !== undefined) list.show(step.step)
    },
  })
  const panels = tabs([
    { key: 'blocked', title: 'Blocked attempts', element: blocked.element },
    { key: 'patch', title: 'Patch', element: h('div', { class: 'panel' }) },
    { key: 'tests', title: 'Tests', element: h('div', { class: 'panel' }) },
    { key: 'evidence', title: 'Files', element: h('div', { class: 'panel' }) },
    { key: 'facts', title: 'Facts', element: h('div', { class: 'panel' }) },
  ])
  root.append(
    head,
    tiles,
    phases,
    h(
      'div',
      { class: 'trial-columns' },
      h('div', { class: 'trial-left' }, pane.element, growth),
      h('section', { class: 'card steps-card' }, h('h2', {}, 'Steps'), list.element),
    ),
    h('section', { class: 'card' }, panels.element),
  )

  let following = ''
  let followed = new AbortController()
  let resultOf = ''

  function follow(document: TrialDocument): void {
    const key = `${document.execution} ${document.state}`
    if (following === key || document.execution === '') return
    const same = following.startsWith(`${document.execution} `)
    following = key
    followed.abort()
    followed = new AbortController()
    if (!same) steps.length = 0
    followSteps(
      `${id}.${document.execution}`,
      {
        from: steps.length + 1,
        follow: document.state === 'running',
        signal: AbortSignal.any([signal, followed.signal]),
      },
      (more) => {
        steps.push(...more)
        list.add(more, document.state === 'running')
        pane.steps(steps)
        drawGrowth()
      },
    ).then(
      () => pane.steps(steps),
      () => {},
    )
  }

  const drawGrowth = onFrame(() => {
    const document = board.trial(job, trial)
    const start = Date.parse(document?.startedAt ?? steps[0]?.time ?? '')
    if (steps.length === 0 || Number.isNaN(start)) return
    const end =
      document?.endedAt === null || document === undefined
        ? Date.now()
        : Date.parse(steps.at(-1)?.time ?? '')
    const grown = (of: (step: StepDocument) => number) => {
      let value = 0
      return steps.map((step) => ({
        at: (Date.parse(step.time) - start) / 1000,
        value: (value += of(step)),
      }))
    }
    const marks = blocked
      .times()
      .map((time) => (time - start) / 1000)
      .filter((at) => at >= 0)
    const options = { marks, end: Math.max(1, (end - start) / 1000) }
    fill(
      growth,
      growthPlot(
        grown(({ tokens }) => (tokens?.input ?? 0) + (tokens?.output ?? 0)),
        { ...options, title: 'tokens', text: short },
      ),
      growthPlot(
        grown(({ costUsd }) => costUsd),
        { ...options, title: 'cost', text: dollars },
      ),
      growthPlot(
        grown(({ commands }) => commands.length),
        { ...options, title: 'commands', text: count },
      ),
    )
  }, signal)

  async function loadResult(document: TrialDocument): Promise<void> {
    const key = `${document.state} ${document.execution} ${document.evidence.length}`
    if (document.state !== 'recorded' || key === resultOf) return
    resultOf = key
    const result = await jsonOrNull<TrialResult>(`/v1/board/result/${id}`, { signal })
    if (result !== null) {
      fill(phases, phasesBar(result))
      testsPanel(panels.panel('tests'), result)
      factsPanel(panels.panel('facts'), result)
      panels.count('tests', result.tests.length)
    }
    evidencePanel(panels.panel('evidence'), document, signal)
    panels.count('evidence', document.evidence.length)
    await patchPanel(panels.panel('patch'), document, signal)
  }

  let blockedTotal = 0
  const draw = onFrame(() => {
    const document = board.trial(job, trial)
    if (document === undefined) {
      const planned = board.jobs.get(job)?.trials.find((one) => one.trial === trial)
      drawPlain(
        head,
        job,
        trial,
        planned === undefined
          ? 'No runner has published this trial here.'
          : `${planned.task}, ${planned.configuration}, run ${planned.run}: planned, not started.`,
      )
      blocked.follow(true)
      pane.running(true)
      return
    }
    page.title(line(document.task, 60))
    drawHead(head, document, board.silentSince(job))
    fill(tiles, ...tilesOf(document, blockedTotal))
    follow(document)
    pane.running(document.state === 'running', document.startedAt)
    blocked.follow(document.state === 'running')
    void loadResult(document).catch((error: unknown) => {
      if (!signal.aborted)
        fill(panels.panel('facts'), h('p', { class: 'bad' }, (error as Error).message))
    })
  }, signal)

  blocked.onChange = (total) => {
    blockedTotal = total
    draw()
    panels.count('blocked', total)
    pane.marks(blocked.marks())
    drawGrowth()
  }
  board.watch(draw, signal)
  // the clock of one that runs
  every(1_000, () => board.trial(job, trial)?.state === 'running' && draw(), signal)
  Promise.all([
    board.load('job'),
    board.load('alive'),
    job === '' ? undefined : board.load('trial', id),
  ]).then(draw, page.fail)
}

function crumbs(job: string, name: string, trial: string): HTMLElement {
  return h(
    'nav',
    { class: 'crumbs', aria: { label: 'where this is' } },
    h('a', { href: '/jobs' }, 'Jobs'),
    ' / ',
    job === '' ? 'no job' : h('a', { href: `/jobs/${encodeURIComponent(job)}` }, name),
    ' / ',
    h('span', { class: 'mono' }, trial),
  )
}

function drawPlain(head: HTMLElement, job: string, trial: string, why: string): void {
  fill(
    head,
    crumbs(job, job, trial),
    h('h1', {}, `Trial ${trial}`),
    h('p', { class: 'quiet' }, line(why)),
  )
}

function drawHead(head: HTMLElement, trial: TrialDocument, silent: string | null): void {
  const standing = standingOf(trial)
  fill(
    head,
    crumbs(trial.job, trial.job, trial.trial),
    h(
      'h1',
      {},
      line(trial.task, 120),
      ' ',
      badge(standing, standing === 'running' ? (trial.phase ?? 'starting') : standing),
      trial.assisted
        ? h(
            'span',
            { class: 'badge assisted', title: 'a person typed into it: recorded, never scored' },
            'assisted',
          )
        : null,
    ),
    h(
      'p',
      { class: 'quiet' },
      `${line(trial.configuration, 60)} · run ${trial.run} · started ${instant(trial.startedAt)}${trial.blame === null ? '' : ` · blame: ${line(trial.blame)}`}`,
    ),
    silent === null || trial.state !== 'running'
      ? null
      : h(
          'p',
          { class: 'reason-line void' },
          `Not heard of since ${instant(silent)}: ${silentTitle}.`,
        ),
    trial.reason === null && trial.note === null
      ? null
      : h(
          'p',
          { class: `reason-line ${standing}` },
          line(trial.reason?.message ?? trial.note ?? '', 400),
        ),
  )
}

function tilesOf(trial: TrialDocument, blockedTotal: number): Child[] {
  const suite = (counts: TrialDocument['functional']): string =>
    counts === null ? '–' : `${counts.passed}/${counts.planned}`
  const wall = trial.wallTimeMs ?? Date.now() - Date.parse(trial.startedAt)
  return [
    tile('steps', count(trial.steps)),
    tile(
      'input tokens',
      short(trial.inputTokens),
      trial.cachedInputTokens > 0 ? `${short(trial.cachedInputTokens)} cached` : '',
    ),
    tile('output tokens', short(trial.outputTokens)),
    tile('cost', dollars(trial.costUsd)),
    tile('wall time', duration(wall)),
    // a harness without steps has told of none while it runs; the audit log has
    tile('blocked', count(Math.max(trial.denied, blockedTotal))),
    tile('functional', suite(trial.functional)),
    tile('regression', suite(trial.regression)),
  ]
}

const tile = (title: string, value: string, below = ''): HTMLElement =>
  h(
    'div',
    { class: 'tile small' },
    h('span', { class: 'tile-title' }, title),
    h('strong', {}, value),
    below === '' ? null : h('span', { class: 'quiet' }, below),
  )
