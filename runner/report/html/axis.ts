/** Axes and grid lines of the charts, and the colours and shapes by which configurations are told apart. */
import { symbol, symbolCircle, symbolDiamond, symbolSquare, symbolTriangle } from 'd3-shape'
import { html, type Markup } from './markup.ts'

export interface Scale {
  (value: number): number
  ticks(count: number): number[]
}

export function bottomAxis(
  scale: Scale,
  at: {
    readonly left: number
    readonly right: number
    readonly top: number
    readonly bottom: number
  },
  { label, text, count = 7 }: { label: string; text: (value: number) => string; count?: number },
): Markup {
  const { left, right, top, bottom } = at
  const ticks = scale.ticks(count).map((value) => {
    const x = scale(value).toFixed(1)
    return html`<line class="axis" x1="${x}" x2="${x}" y1="${top}" y2="${bottom}" /><text
        class="soft"
        x="${x}"
        y="${bottom + 17}"
        text-anchor="middle"
        >${text(value)}</text
      >`
  })
  return html`${ticks}<text
      class="soft"
      x="${(left + right) / 2}"
      y="${bottom + 37}"
      text-anchor="middle"
      >${label}</text
    >`
}

export function leftAxis(
  scale: Scale,
  at: {
    readonly left: number
    readonly right: number
    readonly top: number
    readonly bottom: number
  },
  { label, text, count = 6 }: { label: string; text: (value: number) => string; count?: number },
): Markup {
  const { left, right, top, bottom } = at
  const ticks = scale.ticks(count).map((value) => {
    const y = scale(value)
    return html`<line
        class="axis"
        x1="${left}"
        x2="${right}"
        y1="${y.toFixed(1)}"
        y2="${y.toFixed(1)}"
      /><text class="soft" x="${left - 8}" y="${(y + 4).toFixed(1)}" text-anchor="end"
        >${text(value)}</text
      >`
  })
  const middle = (top + bottom) / 2
  return html`${ticks}<text
      class="soft"
      transform="translate(14 ${middle}) rotate(-90)"
      text-anchor="middle"
      >${label}</text
    >`
}

const shapes = [symbolCircle, symbolSquare, symbolTriangle, symbolDiamond]

/** Eight colours times four shapes. */
export const colorOf = (index: number): number => index % 8

export function marker(index: number, x: number, y: number, size = 90): Markup {
  const shape = shapes[index % shapes.length] ?? symbolCircle
  return html`<path
    class="f${colorOf(index)}"
    d="${symbol(shape, size)() ?? ''}"
    transform="translate(${x.toFixed(1)} ${y.toFixed(1)})"
  />`
}

export const legend = (names: readonly string[]): Markup =>
  html`<ul class="legend">
    ${names.map((name, index) => html`<li><svg viewBox="-7 -7 14 14" aria-hidden="true">${marker(index, 0, 0, 80)}</svg>${name}</li>`)}
  </ul>`

export interface ChartFrame {
  readonly id: string
  readonly title: string
  /** What there is to see, for who can't. */
  readonly description: string
  readonly caption: string
  readonly width: number
  readonly height: number
}

export const chart = (
  frame: ChartFrame,
  body: Markup | readonly Markup[],
  before?: Markup,
): Markup =>
  html`<figure>
    ${before}<svg
      role="img"
      aria-labelledby="${frame.id}-t ${frame.id}-d"
      viewBox="0 0 ${frame.width} ${frame.height}"
      xmlns="http://www.w3.org/2000/svg"
    >
      <title id="${frame.id}-t">${frame.title}</title>
      <desc id="${frame.id}-d">${frame.description}</desc>
      ${body}
    </svg>
    <figcaption>${frame.caption}</figcaption>
  </figure>`

/** A name that fits beside its row. */
export const shortName = (name: string, length: number): string =>
  name.length <= length ? name : `${name.slice(0, length - 1)}…`
