/** Plots as SVG: score against what it cost, and each trial by its cost. Scales and ticks by d3; points are links. */
import { max } from 'd3-array'
import { scaleLinear } from 'd3-scale'
import { area, curveStepAfter } from 'd3-shape'
import { h, s, type Child } from './dom.ts'
import type { Standing } from './state.ts'
import { signs } from './state.ts'

export interface Point {
  readonly x: number
  /** 0 to 1. */
  readonly y: number
  readonly low: number | null
  readonly high: number | null
  readonly label: string
  readonly note: string
  /** Not every trial is scored yet. */
  readonly open: boolean
}

export interface Axis {
  readonly title: string
  readonly text: (value: number) => string
}

const width = 480
const margin = { top: 16, right: 24, bottom: 44, left: 52 }

export function scorePlot(points: readonly Point[], axis: Axis): SVGElement {
  const height = 300
  const x = scaleLinear()
    .domain([0, (max(points, (point) => point.x) ?? 1) * 1.15 || 1])
    .nice()
    .range([margin.left, width - margin.right])
  const y = scaleLinear([0, 1], [height - margin.bottom, margin.top])
  const marks = points.flatMap((point, index) => {
    const [cx, cy] = [x(point.x), y(point.y)]
    const right = cx < width * 0.72
    const colour = `series-${index % 8}`
    return [
      point.low !== null &&
        point.high !== null &&
        s('path', {
          class: `whisker ${colour}`,
          d: `M${cx} ${y(point.low)}V${y(point.high)}M${cx - 4} ${y(point.low)}h8M${cx - 4} ${y(point.high)}h8`,
        }),
      s(
        'circle',
        { class: `point ${colour} ${point.open ? 'open' : ''}`, cx, cy, r: 6 },
        s('title', {}, point.note),
      ),
      s(
        'text',
        {
          class: 'point-label',
          x: cx + (right ? 11 : -11),
          y: cy + 4,
          'text-anchor': right ? 'start' : 'end',
        },
        point.label,
      ),
    ]
  })
  return s(
    'svg',
    {
      viewBox: `0 0 ${width} ${height}`,
      class: 'plot',
      role: 'img',
      'aria-label': `pass rate against ${axis.title}`,
    },
    ...y.ticks(5).flatMap((tick) => [
      s('line', {
        class: 'grid',
        x1: margin.left,
        x2: width - margin.right,
        y1: y(tick),
        y2: y(tick),
      }),
      s(
        'text',
        { class: 'tick', x: margin.left - 8, y: y(tick) + 4, 'text-anchor': 'end' },
        `${Math.round(tick * 100)} %`,
      ),
    ]),
    ...bottom(x, height, axis),
    ...marks,
  )
}

export interface Dot {
  readonly x: number
  readonly row: number
  readonly standing: Standing
  readonly href: string
  readonly note: string
}

/** A row for each configuration; where dots would hide each other they step aside. */
export function dotPlot(dots: readonly Dot[], rows: readonly string[], axis: Axis): SVGElement {
  // many are drawn small and without their signs
  const many = dots.length > 60
  const radius = many ? 3.2 : 5.5
  const step = radius * 2 + 0.8
  const x = scaleLinear()
    .domain([0, (max(dots, (dot) => dot.x) ?? 1) || 1])
    .nice()
    .range([margin.left, width - margin.right])
  const taken = new Map<string, number>()
  const placed = dots.map((dot) => {
    const cx = x(dot.x)
    const place = `${dot.row} ${Math.round(cx / step)}`
    const before = taken.get(place) ?? 0
    taken.set(place, before + 1)
    return { dot, cx, aside: Math.ceil(before / 2) * step * (before % 2 === 1 ? -1 : 1) }
  })
  const most = max(placed, ({ aside }) => Math.abs(aside)) ?? 0
  const rowHeight = Math.max(many ? 60 : 46, 2 * (most + radius) + 20)
  const height = margin.top + rows.length * rowHeight + margin.bottom
  const middle = (row: number): number => margin.top + row * rowHeight + (rowHeight + 14) / 2
  const marks = placed.map(({ dot, cx, aside }) => {
    const cy = middle(dot.row) + aside
    return s(
      'a',
      { href: dot.href, class: `dot ${dot.standing}`, 'aria-label': dot.note },
      s('circle', { cx, cy, r: radius }),
      many ? null : s('text', { x: cx, y: cy + 3, 'text-anchor': 'middle' }, signs[dot.standing]),
      s('title', {}, dot.note),
    )
  })
  return s(
    'svg',
    {
      viewBox: `0 0 ${width} ${height}`,
      class: 'plot',
      role: 'group',
      'aria-label': `trials by ${axis.title}`,
    },
    ...rows.flatMap((name, row) => [
      s('line', {
        class: 'grid',
        x1: margin.left,
        x2: width - margin.right,
        y1: middle(row),
        y2: middle(row),
      }),
      s('text', { class: 'row-label', x: margin.left, y: margin.top + row * rowHeight + 9 }, name),
    ]),
    ...bottom(x, height, axis),
    ...marks,
  )
}

type Scale = ReturnType<typeof scaleLinear<number>>

function bottom(x: Scale, height: number, axis: Axis): Child[] {
  const base = height - margin.bottom
  return [
    s('line', { class: 'axis', x1: margin.left, x2: width - margin.right, y1: base, y2: base }),
    ...x
      .ticks(6)
      .flatMap((tick) => [
        s('line', { class: 'axis', x1: x(tick), x2: x(tick), y1: base, y2: base + 4 }),
        s(
          'text',
          { class: 'tick', x: x(tick), y: base + 17, 'text-anchor': 'middle' },
          axis.text(tick),
        ),
      ]),
    s(
      'text',
      {
        class: 'axis-title',
        x: (margin.left + width - margin.right) / 2,
        y: height - 8,
        'text-anchor': 'middle',
      },
      axis.title,
    ),
  ]
}

export interface Growth {
  /** Seconds since the start. */
  readonly at: number
  readonly value: number
}

/** A small one that fills its place: how a sum has grown, with marks for what was blocked. */
export function growthPlot(
  series: readonly Growth[],
  options: {
    readonly title: string
    readonly text: (value: number) => string
    readonly marks: readonly number[]
    readonly end: number
  },
): HTMLElement {
  const [wide, high] = [300, 64]
  const last = series.at(-1)?.value ?? 0
  const x = scaleLinear([0, Math.max(1, options.end)], [0, wide])
  const y = scaleLinear([0, last * 1.1 || 1], [high, 4])
  const points = [{ at: 0, value: 0 }, ...series, { at: options.end, value: last }]
  const shape = area<Growth>(
    (point) => x(point.at),
    high,
    (point) => y(point.value),
  ).curve(curveStepAfter)
  return h(
    'figure',
    { class: 'growth' },
    h('figcaption', {}, h('span', {}, options.title), h('strong', {}, options.text(last))),
    s(
      'svg',
      {
        viewBox: `0 0 ${wide} ${high}`,
        preserveAspectRatio: 'none',
        role: 'img',
        'aria-label': `${options.title}: ${options.text(last)}`,
      },
      s('path', { class: 'growth-area', d: shape(points) ?? '' }),
      ...options.marks.map((at) =>
        s('line', { class: 'growth-mark', x1: x(at), x2: x(at), y1: 0, y2: high }),
      ),
    ),
  )
}
