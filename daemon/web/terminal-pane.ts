/**
 * The terminal of a trial: its sessions live, or their recordings once they have ended; where the harness had none,
 * what its commands printed. Moments are given as instants and sought in whatever recording is shown.
 */
import type { StepDocument } from '../protocol/board-documents.ts'
import type { PtyView } from '../protocol/pty.ts'
import { jsonOrNull, text } from './api.ts'
import { readCast, type Cast } from './cast.ts'
import { fill, h } from './dom.ts'
import { timeOfDay } from './format.ts'
import { liveTerminal } from './live-terminal.ts'
import type { Page } from './page.ts'
import { player, type Mark, type Player } from './player.ts'
import { SafeTerminal } from './terminal.ts'
import { castOfSteps, stepEvents, transcriptSize } from './transcript.ts'

type Moment = Omit<Mark, 'time'> & { readonly iso: string }
const lookEveryMs = 2_500

export class TerminalPane {
  readonly element: HTMLElement
  readonly #page: Page
  readonly #trial: string
  readonly #chooser = h('div', { class: 'pty-choice' })
  readonly #place = h('div')
  #ptys: readonly PtyView[] = []
  #chosen: string | null = null
  /** A moment to go to once its recording is there. */
  #wanted: string | null = null
  #shown = ''
  #player: { readonly cast: Cast; readonly player: Player } | null = null
  #own = new AbortController()
  #running: boolean | null = null
  #startedAt: string | null = null
  #steps: readonly StepDocument[] = []
  #blocked: readonly Moment[] = []
  #live: { readonly term: SafeTerminal; written: number } | null = null

  constructor(page: Page, trial: string) {
    this.#page = page
    this.#trial = trial
    this.element = h('section', { class: 'card term-card' }, this.#chooser, this.#place)
    page.signal.addEventListener('abort', () => this.#own.abort(), { once: true })
  }

  running(running: boolean, startedAt: string | null = null): void {
    const changed = this.#running !== running
    const first = this.#running === null
    this.#running = running
    this.#startedAt = startedAt
    if (first) void this.#look()
    else if (changed) void this.#lookOnce()
  }

  steps(steps: readonly StepDocument[]): void {
    this.#steps = steps
    if (this.#live !== null) void this.#writeSteps(this.#live)
    else if (this.#ptys.length === 0) this.#show()
  }

  marks(blocked: readonly Moment[]): void {
    this.#blocked = blocked
    if (this.#player !== null) this.#show(true)
  }

  /** In the session that ran then: a trial may have had several executions. */
  seek(iso: string): void {
    const then = this.#ptys.find(
      ({ startedAt, endedAt }) => startedAt <= iso && iso <= (endedAt ?? '9999'),
    )
    if (then !== undefined && then.pty !== this.#chosen) {
      this.#wanted = iso
      this.#chosen = then.pty
      this.#drawChooser()
      return this.#show()
    }
    const start = this.#player?.cast.startedAt
    if (start !== null && start !== undefined)
      this.#player?.player.seek(Date.parse(iso) / 1000 - start)
  }

  async #look(): Promise<void> {
    if (this.#page.signal.aborted) return
    if (!document.hidden) await this.#lookOnce()
    // a trial that has ended gets no more sessions
    if (this.#running === true) setTimeout(() => void this.#look(), lookEveryMs)
  }

  async #lookOnce(): Promise<void> {
    const { signal } = this.#page
    const found = await jsonOrNull<{ ptys: PtyView[] }>(
      `/v1/ptys?of=${encodeURIComponent(this.#trial)}`,
      { signal },
    ).catch(() => null)
    if (signal.aborted) return
    this.#ptys = found?.ptys ?? []
    this.#chosen ??= this.#best()
    this.#drawChooser()
    this.#show()
  }

  /** The harness or the agent before a person's shell; the newest of them. */
  #best(): string | null {
    const ranked = this.#ptys.toSorted(
      (a, b) =>
        Number(a.role === 'person') - Number(b.role === 'person') ||
        (a.startedAt < b.startedAt ? 1 : -1),
    )
    return ranked[0]?.pty ?? null
  }

  #drawChooser(): void {
    if (this.#ptys.length < 2) return fill(this.#chooser)
    fill(
      this.#chooser,
      ...this.#ptys.map((pty) =>
        h(
          'button',
          {
            type: 'button',
            class: pty.pty === this.#chosen ? 'chosen' : '',
            on: {
              click: () => {
                this.#chosen = pty.pty
                this.#drawChooser()
                this.#show()
              },
            },
          },
          `${pty.role}, ${timeOfDay(pty.startedAt)}${pty.state === 'running' ? ' ●' : ''}`,
        ),
      ),
    )
  }

  #show(again = false): void {
    const pty = this.#ptys.find((one) => one.pty === this.#chosen)
    const key =
      pty === undefined
        ? this.#running === true
          ? 'live steps'
          : `steps ${this.#steps.length}`
        : `${pty.pty} ${pty.state === 'running'}`
    if (key === this.#shown && !again) return
    this.#shown = key
    this.#own.abort()
    this.#own = new AbortController()
    this.#player = null
    this.#live = null
    const page = { ...this.#page, signal: AbortSignal.any([this.#page.signal, this.#own.signal]) }
    if (pty === undefined) return this.#showSteps(page)
    if (pty.state === 'running')
      return fill(
        this.#place,
        liveTerminal(pty, page, () => setTimeout(() => void this.#lookOnce(), 300)),
      )
    void this.#showRecording(pty, page)
  }

  async #showRecording(pty: PtyView, page: Page): Promise<void> {
    try {
      const path = `/v1/leases/${pty.lease}/ptys/${pty.pty}/recording`
      const cast = readCast(await text(path, { signal: page.signal }))
      if (page.signal.aborted) return
      if (cast === null)
        return fill(this.#place, h('p', { class: 'empty' }, 'This recording can’t be read.'))
      const startedAt = cast.startedAt ?? Date.parse(pty.startedAt) / 1000
      this.#play(
        { ...cast, startedAt },
        page,
        cast.events.filter(({ code }) => code === 'm').map(markOf),
      )
    } catch (error) {
      if (!page.signal.aborted)
        fill(this.#place, h('p', { class: 'bad' }, (error as Error).message))
    }
  }

  #showSteps(page: Page): void {
    if (this.#running === true) {
      const box = h('div', { class: 'term-box' })
      fill(
        this.#place,
        h(
          'section',
          { class: 'term', aria: { label: 'what its commands print' } },
          h(
            'header',
            { class: 'term-bar' },
            h('span', { class: 'live-dot' }),
            h(
              'span',
              { class: 'term-state' },
              'live; its commands run without a terminal, output comes as each ends',
            ),
          ),
          box,
        ),
      )
      const live = { term: new SafeTerminal(box, transcriptSize), written: 0 }
      page.signal.addEventListener('abort', () => live.term.dispose(), { once: true })
      this.#live = live
      void this.#writeSteps(live)
      return
    }
    if (this.#steps.length === 0)
      return fill(
        this.#place,
        h('p', { class: 'empty' }, 'This trial left no terminal and no steps.'),
      )
    this.#play(castOfSteps(this.#steps, this.#startedAt ?? this.#steps[0]?.time ?? ''), page, [])
  }

  async #writeSteps(live: { readonly term: SafeTerminal; written: number }): Promise<void> {
    const fresh = this.#steps.slice(live.written)
    live.written = this.#steps.length
    for (const step of fresh)
      for (const { data } of stepEvents(step, 0)) await live.term.write(data)
  }

  #play(cast: Cast, page: Page, own: readonly Mark[]): void {
    const at = (iso: string): number => Date.parse(iso) / 1000 - (cast.startedAt ?? 0)
    const steps = own.some(({ kind }) => kind === 'step')
      ? []
      : this.#steps.map((step): Mark => ({
          time: at(step.time),
          kind: 'step',
          label: `step ${step.step}`,
        }))
    const blocked = own.some(({ kind }) => kind === 'blocked')
      ? []
      : this.#blocked.map(({ iso, ...mark }) => ({ ...mark, time: at(iso) }))
    const marks = [...own, ...steps, ...blocked]
      .filter(({ time }) => time >= 0 && time <= cast.duration + 1)
      .toSorted((a, b) => a.time - b.time)
    const shown = player(cast, marks, page.signal)
    this.#player = { cast, player: shown }
    fill(this.#place, shown.element)
    const wanted = this.#wanted
    this.#wanted = null
    if (wanted !== null) shown.seek(at(wanted))
  }
}

const markOf = ({ time, data }: { readonly time: number; readonly data: string }): Mark => ({
  time,
  label: data,
  kind: data.startsWith('blocked') ? 'blocked' : data.startsWith('step') ? 'step' : 'other',
})
