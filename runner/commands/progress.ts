/**
 * Shows a job while it runs. On a terminal: one live line for each trial under way and one line for each that ended.
 * Elsewhere: a line for each change that a reader of a log wants. Everything goes to stderr; stdout is for results.
 */
import { existsSync } from 'node:fs'
import { estimateLeft, type Taken } from '../job/estimate.ts'
import { resultFile } from '../job/layout.ts'
import type { Plan, PlannedTrial } from '../job/plan.ts'
import type { JobWatcher } from '../job/watcher.ts'
import {
  cut,
  dollars,
  durationText,
  painter,
  plainLine,
  wantsColor,
  type Paint,
} from '../report/terminal.ts'
import type { Phase, SuiteCounts, TrialReason, TrialResult } from '../result.ts'
import type { Step } from '../step-log.ts'

interface Live {
  readonly trial: PlannedTrial
  phase: Phase | 'starting'
  step: number
  costUsd: number
  doing: string
  denied: number
  readonly since: number
}

const refreshMs = 120
const barCells = 24
const logLeftMs = 30_000

export class Progress implements JobWatcher, Disposable {
  readonly #stream: NodeJS.WriteStream
  readonly #live: boolean
  readonly #paint: Paint
  readonly #trials = new Map<string, Live>()
  readonly #started = performance.now()
  readonly #timer: NodeJS.Timeout | null
  readonly #taken: Taken[] = []
  #left = new Map<string, PlannedTrial>()
  #saidLeft = -Infinity
  #total = 0
  #done = 0
  #shown = 0

  constructor(stream: NodeJS.WriteStream = process.stderr) {
    this.#stream = stream
    this.#live = stream.isTTY && process.env['TERM'] !== 'dumb'
    this.#paint = painter(wantsColor(stream, process.env))
    this.#timer = this.#live ? setInterval(() => this.#draw(), refreshMs) : null
    this.#timer?.unref()
  }

  plan(trials: number, recorded: number): void {
    this.#total = trials
    this.#done = recorded
  }

  /** The same for a job whose trials are known, so that what is left can be estimated. */
  job(plan: Plan, jobDir: string): void {
    this.#left = new Map(
      plan.trials
        .filter(({ trial }) => !existsSync(resultFile(jobDir, trial)))
        .map((planned) => [planned.trial, planned]),
    )
    this.plan(plan.trials.length, plan.trials.length - this.#left.size)
  }

  /** A line above the live ones. */
  say(text: string): void {
    this.#erase()
    this.#stream.write(`${text}\n`)
    this.#draw()
  }

  started(trial: PlannedTrial, execution: string): void {
    this.#trials.set(trial.trial, {
      trial,
      phase: 'starting',
      step: 0,
      costUsd: 0,
      doing: '',
      denied: 0,
      since: performance.now(),
    })
    if (!this.#live) this.say(`${label(trial)}: begins (${trial.trial}, execution ${execution})`)
  }

  phase(trial: PlannedTrial, phase: Phase): void {
    const live = this.#trials.get(trial.trial)
    if (live === undefined) return
    live.phase = phase
    live.doing = ''
    if (!this.#live) this.say(`${label(trial)}: ${phaseText[phase]}`)
  }

  step(trial: PlannedTrial, step: Step): void {
    const live = this.#trials.get(trial.trial)
    if (live === undefined) return
    live.step = step.step
    live.costUsd += step.costUsd
    live.denied += step.denied.reduce((sum, { count }) => sum + count, 0)
    live.doing = plainLine(step.commands[0]?.command ?? step.text ?? '')
    const blocked = step.denied.map(({ target, reason }) => `${plainLine(target)} (${reason})`)
    if (!this.#live) this.say(`${label(trial)}: step ${step.step}  ${cut(live.doing, 90)}`)
    if (blocked.length > 0)
      this.say(
        this.#paint(
          'yellow',
          `${label(trial)}: blocked ${cut([...new Set(blocked)].join(', '), 120)}`,
        ),
      )
  }

  note(trial: PlannedTrial, text: string): void {
    this.say(`${label(trial)}: ${text}`)
  }

  faulted(trial: PlannedTrial, reason: TrialReason, again: boolean): void {
    this.say(
      this.#paint(
        'yellow',
        `${label(trial)}: ${cut(plainLine(reason.message), 240)} [${reason.code}]; ${again ? 'it is run again' : 'it is void'}`,
      ),
    )
  }

  recorded(trial: PlannedTrial, result: TrialResult): void {
    this.#trials.delete(trial.trial)
    this.#left.delete(trial.trial)
    this.#done += 1
    const { wallTimeMs, costUsd } = result
    this.#taken.push({ configuration: trial.configuration, wallTimeMs, costUsd })
    const color = { passed: 'green', failed: 'red', void: 'yellow' } as const
    const { functional, regression } = result.suites
    this.say(
      `${this.#paint(color[result.verdict], result.verdict.padEnd(6))} ${label(trial)}: functional ${share(functional)}, ` +
        `regression ${share(regression)}, ${result.steps} steps, ${dollars(result.costUsd)}, ${durationText(result.wallTimeMs)}` +
        (result.verdict === 'failed' ? ` [${result.reason.code}]` : ''),
    )
    this.#sayLeft()
  }

  /** In a log, now and then; a terminal has it beside the bar. */
  #sayLeft(): void {
    const now = performance.now()
    if (this.#live || this.#left.size === 0 || now - this.#saidLeft < logLeftMs) return
    this.#saidLeft = now
    this.say(`${this.#done} of ${this.#total} trials${this.#leftText()}`)
  }

  #leftText(): string {
    const estimate = estimateLeft({
      left: [...this.#left.values()],
      taken: this.#taken,
      runningMs: [...this.#trials.values()].map(({ since }) => performance.now() - since),
    })
    if (estimate === null || this.#left.size === 0) return ''
    const money = estimate.costUsd > 0 ? ` and ${dollars(estimate.costUsd)}` : ''
    // what runs may take longer than those before
    const time = estimate.timeMs < 1_000 ? 'a moment' : durationText(estimate.timeMs)
    return `, about ${time}${money} to go`
  }

  #draw(): void {
    if (!this.#live) return
    this.#erase()
    if (this.#total === 0) return
    const width = this.#stream.columns || 80
    const filled = Math.round((this.#done / this.#total) * barCells)
    const bar = `${'█'.repeat(filled)}${'░'.repeat(barCells - filled)}`
    const lines = [
      `${bar} ${this.#done} of ${this.#total} trials  ${durationText(performance.now() - this.#started)}${this.#leftText()}`,
      ...[...this.#trials.values()].map((live) => this.#line(live)),
    ]
    this.#stream.write(lines.map((line) => `${cut(line, width - 1)}\n`).join(''))
    this.#shown = lines.length
  }

  #line({ trial, phase, step, costUsd, doing, denied, since }: Live): string {
    const facts = [
      phase === 'starting' ? 'starting' : phaseText[phase],
      ...(step > 0 ? [`step ${step}`, dollars(costUsd)] : []),
      ...(denied > 0 ? [`${denied} blocked`] : []),
      durationText(performance.now() - since),
    ]
    return `  ${label(trial)}  ${facts.join(' · ')}${doing === '' ? '' : `  ${doing}`}`
  }

  #erase(): void {
    if (this.#shown > 0) this.#stream.write(`\u001b[${this.#shown}A\u001b[0J`)
    this.#shown = 0
  }

  [Symbol.dispose](): void {
    if (this.#timer !== null) clearInterval(this.#timer)
    this.#erase()
    this.#total = 0
  }
}

const label = ({ task, run, configuration }: PlannedTrial): string =>
  `${task.replace(/^.*\//, '')} · ${configuration} · run ${run}`

const share = ({ passed, planned, exit }: SuiteCounts): string =>
  exit === null ? 'not run' : `${passed}/${planned}`

const phaseText: Record<Phase, string> = {
  queue: 'waiting',
  lease: 'opening the sealed sandbox',
  agent: 'the agent works',
  freeze: 'freezing and proving again',
  collect: 'collecting the patch',
  verify: 'running the hidden tests',
  close: 'closing',
}
