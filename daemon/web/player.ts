/**
 * Plays a recording: speed, pauses cut short, seeking, and marks for steps and blocked attempts to go to. Space plays
 * and pauses, arrows go five seconds, comma and full stop from mark to mark.
 */
import { castSize, type Cast } from './cast.ts'
import { fill, h, s } from './dom.ts'
import { clock } from './format.ts'
import { line } from './hostile.ts'
import { SafeTerminal } from './terminal.ts'

export interface Mark {
  readonly time: number
  readonly label: string
  readonly kind: 'step' | 'blocked' | 'other'
}

export interface Player {
  readonly element: HTMLElement
  /** Goes there and stops. */
  seek(seconds: number): void
}

const speeds = ['0.5', '1', '2', '4', '8', '16']
const idleCapSeconds = 1.5

export function player(cast: Cast, marks: readonly Mark[], signal: AbortSignal): Player {
  const box = h('div', { class: 'term-box' })
  const term = new SafeTerminal(box, { cols: cast.cols, rows: cast.rows })
  let position = 0
  let next = 0
  let playing = false
  let last = 0
  let speed = 2
  let shortPauses = true
  let jump = 0

  const play = h(
    'button',
    { type: 'button', class: 'primary play', on: { click: () => toggle() } },
    '▶ Play',
  )
  const seekBar = h('input', {
    type: 'range',
    class: 'seek',
    min: '0',
    max: String(Math.max(0.01, cast.duration)),
    step: '0.01',
    value: '0',
    aria: { label: 'position in the recording' },
    on: { input: () => void goTo(Number(seekBar.value)) },
  })
  const time = h('span', { class: 'clock' }, `0:00 / ${clock(cast.duration)}`)
  const speedBox = h(
    'select',
    { aria: { label: 'speed' }, on: { change: () => (speed = Number(speedBox.value)) } },
    ...speeds.map((value) => h('option', { value, selected: value === '2' }, `${value}×`)),
  )
  const idleBox = h('input', {
    type: 'checkbox',
    checked: true,
    on: { change: () => (shortPauses = idleBox.checked) },
  })
  const current = h('span', { class: 'mark-now', role: 'status' })
  const element = h(
    'section',
    {
      class: 'term player',
      tabindex: 0,
      aria: { label: 'recording' },
      on: { keydown: (event) => key(event as KeyboardEvent) },
    },
    box,
    h(
      'div',
      { class: 'player-bar' },
      play,
      h('div', { class: 'seek-box' }, marksBar(), seekBar),
      time,
      speedBox,
      h('label', { class: 'check' }, idleBox, 'short pauses'),
    ),
    current,
  )

  function marksBar(): SVGElement {
    const at = (mark: Mark): number => (mark.time / Math.max(0.01, cast.duration)) * 1000
    return s(
      'svg',
      {
        viewBox: '0 0 1000 10',
        preserveAspectRatio: 'none',
        class: 'marks',
        'aria-hidden': 'true',
      },
      ...marks.map((mark) =>
        s('line', { class: `mark ${mark.kind}`, x1: at(mark), x2: at(mark), y1: 0, y2: 10 }),
      ),
    )
  }

  function key(event: KeyboardEvent): void {
    if (event.target instanceof HTMLSelectElement) return
    const to: Readonly<Record<string, () => void>> = {
      ' ': toggle,
      ArrowLeft: () => void goTo(position - 5),
      ArrowRight: () => void goTo(position + 5),
      ',': () => toMark(marks.findLast((mark) => mark.time < position - 0.05)),
      '.': () => toMark(marks.find((mark) => mark.time > position + 0.05)),
    }
    const work = to[event.key]
    if (work === undefined || (event.key === ' ' && event.target instanceof HTMLButtonElement))
      return
    event.preventDefault()
    work()
  }

  function toMark(mark: Mark | undefined): void {
    if (mark !== undefined) void goTo(mark.time)
  }

  function toggle(): void {
    playing = !playing
    if (playing && position >= cast.duration) void goTo(0)
    last = performance.now()
    show()
    if (playing) requestAnimationFrame(frame)
  }

  function frame(now: number): void {
    if (!playing || signal.aborted) return
    position += ((now - last) / 1000) * speed
    last = now
    const upcoming = cast.events[next]
    if (shortPauses && upcoming !== undefined && upcoming.time - position > idleCapSeconds * speed)
      position = upcoming.time - idleCapSeconds * speed
    void feed(position)
    if (position >= cast.duration) {
      position = cast.duration
      playing = false
    }
    show()
    if (playing) requestAnimationFrame(frame)
  }

  /** Everything up to a moment, from where the last one ended. */
  async function feed(until: number): Promise<void> {
    let text = ''
    for (
      let event = cast.events[next];
      event !== undefined && event.time <= until;
      event = cast.events[next]
    ) {
      next += 1
      if (event.code === 'o') text += event.data
      const size = event.code === 'r' ? castSize(event.data) : null
      if (size === null) continue
      void term.write(text)
      text = ''
      // after what came before it has been drawn
      await term.write('')
      term.resize(size.cols, size.rows)
    }
    if (text !== '') await term.write(text)
  }

  async function goTo(seconds: number): Promise<void> {
    const mine = ++jump
    position = Math.max(0, Math.min(cast.duration, seconds))
    const back = next > 0 && (cast.events[next - 1]?.time ?? 0) > position
    if (back) {
      next = 0
      term.term.reset()
      term.resize(cast.cols, cast.rows)
    }
    await feed(position)
    if (mine === jump) show()
  }

  function show(): void {
    fill(play, playing ? '❚❚ Pause' : '▶ Play')
    seekBar.value = String(position)
    fill(time, `${clock(position)} / ${clock(cast.duration)}`)
    const mark = marks.findLast(({ time: at }) => at <= position + 0.01)
    fill(
      current,
      mark === undefined
        ? null
        : h('span', { class: `mark-label ${mark.kind}` }, line(mark.label, 160)),
    )
  }

  signal.addEventListener('abort', () => {
    playing = false
    term.dispose()
  })
  // the end says most of what a recording comes to
  void goTo(cast.duration)
  return {
    element,
    seek(seconds) {
      playing = false
      void goTo(seconds)
      element.scrollIntoView({ block: 'nearest' })
    },
  }
}
