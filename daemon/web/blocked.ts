/** What a trial was refused: from the daemon's audit, each with a way to its moment in the recording and its step. */
import type { AuditEvent } from '../../policy/audit-event.ts'
import { lines } from './api.ts'
import { h } from './dom.ts'
import { count, timeOfDay } from './format.ts'
import { line } from './hostile.ts'
import { targetText } from './page-audit.ts'
import type { Page } from './page.ts'
import type { Mark } from './player.ts'
import { virtualList } from './virtual-list.ts'

const shown = 5_000
const everyMs = 3_000

export class Blocked {
  readonly element: HTMLElement
  onChange: (total: number) => void = () => {}
  readonly #page: Page
  readonly #trial: string
  readonly #list
  readonly #nothing: HTMLElement
  #events: AuditEvent[] = []
  #following: boolean | null = null

  constructor(
    page: Page,
    trial: string,
    links: { readonly onSeek: (iso: string) => void; readonly onStep: (iso: string) => void },
  ) {
    this.#page = page
    this.#trial = trial
    this.#list = virtualList<AuditEvent>({
      label: 'blocked attempts',
      draw: (event) => row(event, links),
      open: (event) => links.onSeek(event.time),
    })
    this.#nothing = h('p', { class: 'empty' }, 'Nothing was blocked.')
    this.element = h(
      'div',
      { class: 'panel blocked' },
      h(
        'p',
        { class: 'quiet' },
        'Each row goes to its moment. ',
        h(
          'a',
          { href: `/audit?trial=${encodeURIComponent(trial)}` },
          'All decisions of this trial',
        ),
      ),
      this.#nothing,
      this.#list.element,
    )
    this.#list.element.hidden = true
  }

  /** While it runs, again and again; once more when it has ended. */
  follow(running: boolean): void {
    if (this.#following === running) return
    const first = this.#following === null
    this.#following = running
    if (running && !first) return
    void this.#turn()
  }

  times(): number[] {
    return this.#events.map(({ time }) => Date.parse(time))
  }

  marks(): (Omit<Mark, 'time'> & { readonly iso: string })[] {
    return this.#events.map((event) => ({
      iso: event.time,
      kind: 'blocked',
      label: `blocked: ${event.protocol} ${targetText(event)} (${event.reason ?? ''})`,
    }))
  }

  async #turn(): Promise<void> {
    const { signal } = this.#page
    if (signal.aborted) return
    if (!document.hidden) await this.#load().catch(() => {})
    if (this.#following === true) setTimeout(() => void this.#turn(), everyMs)
  }

  async #load(): Promise<void> {
    const query = new URLSearchParams({ trial: this.#trial, action: 'deny', limit: String(shown) })
    const events: AuditEvent[] = []
    for await (const piece of lines(`/v1/audit/query?${query}`, { signal: this.#page.signal }))
      for (const text of piece) events.push(JSON.parse(text) as AuditEvent)
    // a line that only counts again what was told is no attempt of its own
    const attempts = events.filter(({ kind }) => kind !== 'close' && kind !== 'lifecycle')
    if (attempts.length === this.#events.length) return
    this.#events = attempts.toSorted((a, b) => (a.time < b.time ? -1 : 1))
    this.#nothing.hidden = attempts.length > 0
    this.#list.element.hidden = attempts.length === 0
    this.#list.element.style.height = `${Math.min(420, attempts.length * 28 + 2)}px`
    this.#list.update(this.#events)
    this.onChange(attempts.reduce((sum, event) => sum + event.count, 0))
  }
}

function row(
  event: AuditEvent,
  { onSeek, onStep }: { onSeek: (iso: string) => void; onStep: (iso: string) => void },
): HTMLElement {
  const go = (text: string, title: string, work: (iso: string) => void): HTMLElement =>
    h(
      'button',
      {
        type: 'button',
        class: 'link',
        title,
        tabindex: -1,
        on: {
          click: (clicked) => {
            clicked.stopPropagation()
            work(event.time)
          },
        },
      },
      text,
    )
  return h(
    'div',
    { class: 'blocked-row' },
    go(`▶ ${timeOfDay(event.time)}`, 'show in the recording', onSeek),
    go('step', 'show the step', onStep),
    h('span', {}, event.protocol),
    h('span', { class: 'mono' }, targetText(event)),
    h('span', { class: 'bad' }, event.reason ?? ''),
    h('span', { class: 'number' }, event.count > 1 ? `× ${count(event.count)}` : ''),
    h('span', { class: 'quiet' }, line(event.detail ?? '', 120)),
  )
}
