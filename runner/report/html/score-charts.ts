/** pass@1 of each configuration with both intervals, and against what a trial cost. */
import { extent } from 'd3-array'
import { scaleLinear, scaleLog } from 'd3-scale'
import type { ConfigurationReport } from '../report.ts'
import { dollars } from '../terminal.ts'
import { rangeText, rateText } from '../words.ts'
import { bottomAxis, chart, colorOf, leftAxis, legend, marker, shortName } from './axis.ts'
import { html, type Markup } from './markup.ts'

const wholePercent = (share: number): string => `${Math.round(share * 100)} %`

export function rateChart(all: readonly ConfigurationReport[]): Markup {
  const row = 40
  const frame = { left: 200, right: 940, top: 10, bottom: 10 + all.length * row }
  const x = scaleLinear([0, 1], [frame.left, frame.right])
  const rows = all.map(({ name, rate }, index) => {
    const y = frame.top + row * (index + 0.5)
    const color = colorOf(index)
    const line = (low: number, high: number, style: string, at: number): Markup =>
      html`<line
        class="s${color} ${style}"
        x1="${x(low).toFixed(1)}"
        x2="${x(high).toFixed(1)}"
        y1="${at}"
        y2="${at}"
      />`
    const bars = [
      rate.byTask === null ? null : line(rate.byTask.low, rate.byTask.high, 'thick', y),
      rate.overRuns === null ? null : line(rate.overRuns.low, rate.overRuns.high, 'thin', y),
      rate.bounds === null
        ? null
        : html`<rect
            class="box f${color} s${color}"
            x="${x(rate.bounds.lower).toFixed(1)}"
            width="${Math.max(2, x(rate.bounds.upper) - x(rate.bounds.lower)).toFixed(1)}"
            y="${y - 8}"
            height="16"
            stroke-dasharray="4 3"
          />`,
    ]
    const point = rate.passAt1 === null ? null : marker(index, x(rate.passAt1), y)
    return html`<text x="${frame.left - 12}" y="${y + 4}" text-anchor="end"
        >${shortName(name, 27)}</text
      >${bars}${point}`
  })
  return chart(
    {
      id: 'rates',
      title: 'pass@1 of each configuration with 95 % intervals',
      description: all
        .map(
          ({ name, rate }) =>
            `${name}: ${rateText(rate)}, over runs ${rangeText(rate.overRuns)}, clustered by task ${rangeText(rate.byTask)}`,
        )
        .join('; '),
      caption:
        'Thick line: 95 % interval clustered by task (t, m - 1 degrees of freedom). Thin line: 95 % interval over the runs’ pass rates (t, n - 1). Dashed box: bounds, where trials lack a score.',
      width: 1000,
      height: frame.bottom + 46,
    },
    [bottomAxis(x, frame, { label: 'pass@1', text: wholePercent, count: 10 }), ...rows],
  )
}

export function costChart(all: readonly ConfigurationReport[]): Markup | null {
  const shown = all.flatMap((one, index) => {
    const mean = one.costUsd.perScoredTrial
    const score = one.rate.passAt1 ?? one.rate.bounds?.lower
    return mean === null || score === undefined ? [] : [{ one, index, mean, score }]
  })
  const [least, most] = extent(shown, ({ mean }) => mean)
  if (least === undefined || most === undefined || most <= 0) return null
  const frame = { left: 70, right: 960, top: 16, bottom: 400 }
  const logarithmic = least > 0 && most / least > 30
  const reach = (part: 'low' | 'high'): number[] =>
    shown.flatMap(({ one }) => one.costUsd.interval?.[part] ?? [])
  const highest = Math.max(most, ...reach('high'))
  const x = logarithmic
    ? scaleLog(
        [Math.min(least, ...reach('low').filter((low) => low > 0)) * 0.8, highest * 1.25],
        [frame.left, frame.right],
      )
    : scaleLinear([0, highest * 1.1], [frame.left, frame.right]).nice()
  const y = scaleLinear([0, 1], [frame.bottom, frame.top])
  const [from, until] = x.domain()
  const inside = (value: number): number => Math.min(until ?? value, Math.max(from ?? value, value))
  const points = shown.map(({ one, index, mean, score }) => {
    const { byTask, bounds } = one.rate
    const cost = one.costUsd.interval
    const [low, high] = byTask === null ? [bounds?.lower, bounds?.upper] : [byTask.low, byTask.high]
    const color = colorOf(index)
    const name = shortName(one.name, 30)
    const nearRight = x(mean) > frame.right - 180
    return html`${
        low === undefined || high === undefined
          ? null
          : html`<line
              class="s${color} thin"
              x1="${x(mean).toFixed(1)}"
              x2="${x(mean).toFixed(1)}"
              y1="${y(low).toFixed(1)}"
              y2="${y(high).toFixed(1)}"
              ${byTask === null ? html` stroke-dasharray="4 3"` : ''}
            />`
      }${
        cost === null
          ? null
          : html`<line
              class="s${color} thin"
              x1="${x(inside(cost.low)).toFixed(1)}"
              x2="${x(inside(cost.high)).toFixed(1)}"
              y1="${y(score).toFixed(1)}"
              y2="${y(score).toFixed(1)}"
            />`
      }${marker(index, x(mean), y(score), 120)}<text
        x="${(x(mean) + (nearRight ? -11 : 11)).toFixed(1)}"
        y="${(y(score) - 9).toFixed(1)}"
        ${nearRight ? html` text-anchor="end"` : ''}
        >${name}${one.estimate ? ' (cost estimated)' : ''}</text
      >`
  })
  const estimated = all.some(({ estimate }) => estimate)
  return chart(
    {
      id: 'cost',
      title: 'pass@1 against the mean cost of a trial',
      description: shown
        .map(({ one, mean }) => `${one.name}: ${rateText(one.rate)} at ${dollars(mean)} a trial`)
        .join('; '),
      caption: `Lines: 95 % intervals clustered by task, of pass@1 and of the mean cost of a scored trial${logarithmic ? ' (logarithmic axis)' : ''}.${estimated ? ' Costs marked as estimated were paid to nobody.' : ''}`,
      width: 1000,
      height: frame.bottom + 46,
    },
    [
      leftAxis(y, frame, { label: 'pass@1', text: wholePercent }),
      bottomAxis(x, frame, {
        label: 'mean cost of a trial',
        text: shortDollars,
        count: logarithmic ? 4 : 7,
      }),
      ...points,
    ],
    legend(all.map(({ name }) => name)),
  )
}

const shortDollars = (usd: number): string =>
  `$${usd >= 10 || Number.isInteger(usd) ? usd.toFixed(0) : Number(usd.toPrecision(2))}`
