/** How an amount is spread over the trials of each configuration: a box of quartiles, and a dot for each trial. */
import { extent, quantileSorted } from 'd3-array'
import { scaleLinear, scaleLog } from 'd3-scale'
import type { Report, TrialRow } from '../report.ts'
import { rowScored } from '../report.ts'
import { bottomAxis, chart, colorOf, shortName } from './axis.ts'
import { html, type Markup } from './markup.ts'

/** More dots than this say nothing more. */
const maxDots = 300

export interface SpreadSpec {
  readonly id: string
  readonly title: string
  readonly label: string
  readonly value: (row: TrialRow) => number | null
  readonly text: (value: number) => string
}

export function spreadChart(
  report: Report,
  { id, title, label, value, text }: SpreadSpec,
): Markup | null {
  const series = report.configurations.map(({ name }, index) => {
    const own = report.trials.flatMap((row) => {
      const amount = value(row)
      return row.configuration === name && rowScored(row) && amount !== null
        ? [{ amount, passed: row.verdict === 'passed' }]
        : []
    })
    return { name, index, own: own.toSorted((a, b) => a.amount - b.amount) }
  })
  const [least, most] = extent(series.flatMap(({ own }) => own.map(({ amount }) => amount)))
  if (least === undefined || most === undefined || most <= 0) return null
  const row = 76
  const frame = { left: 200, right: 940, top: 10, bottom: 10 + series.length * row }
  const logarithmic = least > 0 && most / least > 20
  const x = logarithmic
    ? scaleLog([least * 0.85, most * 1.15], [frame.left, frame.right])
    : scaleLinear([0, most * 1.05], [frame.left, frame.right]).nice()
  const rows = series.map(({ name, index, own }) => {
    const y = frame.top + row * (index + 0.5)
    const amounts = own.map(({ amount }) => amount)
    const at = (part: number): number => quantileSorted(amounts, part) ?? 0
    const color = colorOf(index)
    const step = Math.max(1, Math.ceil(own.length / maxDots))
    const dots = own
      .filter((_, place) => place % step === 0)
      .map(({ amount, passed }, place) => {
        const lane = y + 9 + ((place * 7) % 5) * 4.5
        return html`<circle
          class="${passed ? `dot f${color}` : `hollow s${color}`}"
          cx="${x(amount).toFixed(1)}"
          cy="${lane.toFixed(1)}"
          r="2.6"
        />`
      })
    const box =
      own.length < 2
        ? null
        : html`<line
              class="s${color} thin"
              x1="${x(at(0)).toFixed(1)}"
              x2="${x(at(1)).toFixed(1)}"
              y1="${y - 14}"
              y2="${y - 14}"
            /><rect
              class="box f${color} s${color}"
              x="${x(at(0.25)).toFixed(1)}"
              width="${Math.max(1, x(at(0.75)) - x(at(0.25))).toFixed(1)}"
              y="${y - 23}"
              height="18"
            /><line
              class="s${color}"
              stroke-width="2.5"
              x1="${x(at(0.5)).toFixed(1)}"
              x2="${x(at(0.5)).toFixed(1)}"
              y1="${y - 23}"
              y2="${y - 5}"
            />`
    return html`<text x="${frame.left - 12}" y="${y + 1}" text-anchor="end"
        >${shortName(name, 27)}</text
      ><text class="soft" x="${frame.left - 12}" y="${y + 17}" text-anchor="end"
        >${own.length === 0 ? 'no scored trial' : `median ${text(at(0.5))}`}</text
      >${box}${dots}`
  })
  return chart(
    {
      id,
      title,
      description: series
        .filter(({ own }) => own.length > 0)
        .map(({ name, own }) => {
          const amounts = own.map(({ amount }) => amount)
          const at = (part: number): string => text(quantileSorted(amounts, part) ?? 0)
          return `${name}: ${own.length} trials, quartiles ${at(0.25)}, ${at(0.5)}, ${at(0.75)}, from ${at(0)} to ${at(1)}`
        })
        .join('; '),
      caption: `Of scored trials. Box: quartiles and median; line: least to most; filled dot: passed, ring: failed${logarithmic ? '; logarithmic axis' : ''}.`,
      width: 1000,
      height: frame.bottom + 46,
    },
    [bottomAxis(x, frame, { label, text, count: logarithmic ? 5 : 7 }), ...rows],
  )
}
