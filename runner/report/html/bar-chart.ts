/** Counts by reason as bars, one row a reason, one bar a configuration. */
import { max } from 'd3-array'
import { scaleBand, scaleLinear } from 'd3-scale'
import { countText } from '../terminal.ts'
import { bottomAxis, chart, colorOf, legend, shortName } from './axis.ts'
import { html, type Markup } from './markup.ts'

export interface Bar {
  readonly reason: string
  readonly configuration: string
  readonly count: number
}

const maxReasons = 14

export function barChart(
  bars: readonly Bar[],
  configurations: readonly string[],
  { id, title, label }: { readonly id: string; readonly title: string; readonly label: string },
): Markup | null {
  const sums = new Map<string, number>()
  for (const { reason, count } of bars) sums.set(reason, (sums.get(reason) ?? 0) + count)
  const reasons = [...sums]
    .toSorted(([, a], [, b]) => b - a)
    .slice(0, maxReasons)
    .map(([reason]) => reason)
  const most = max(bars, ({ count }) => count)
  if (most === undefined || most === 0) return null
  const thick = Math.max(7, Math.min(16, 40 / configurations.length))
  const row = thick * configurations.length + 12
  const frame = { left: 230, right: 940, top: 6, bottom: 6 + row * reasons.length }
  const y = scaleBand(reasons, [frame.top, frame.bottom]).paddingInner(0.12)
  const x = scaleLinear([0, most], [frame.left, frame.right]).nice()
  const rows = reasons.map((reason) => {
    const top = y(reason) ?? 0
    const own = configurations.map((name, index) => {
      const count = bars
        .filter((bar) => bar.reason === reason && bar.configuration === name)
        .reduce((sum, bar) => sum + bar.count, 0)
      if (count === 0) return null
      const at = top + 4 + index * thick
      return html`<rect
          class="f${colorOf(index)}"
          x="${frame.left}"
          width="${Math.max(1, x(count) - frame.left).toFixed(1)}"
          y="${at.toFixed(1)}"
          height="${(thick - 2).toFixed(1)}"
        /><text class="soft" x="${(x(count) + 6).toFixed(1)}" y="${(at + thick - 3).toFixed(1)}"
          >${countText(count)}</text
        >`
    })
    return html`<text
        x="${frame.left - 12}"
        y="${(top + y.bandwidth() / 2 + 4).toFixed(1)}"
        text-anchor="end"
        >${shortName(reason, 30)}</text
      >${own}`
  })
  const whole = most < 8 ? most : 7
  return chart(
    {
      id,
      title,
      description: bars
        .slice(0, 40)
        .map(({ reason, configuration, count }) => `${configuration}, ${reason}: ${count}`)
        .join('; '),
      caption:
        sums.size > reasons.length ? `The ${reasons.length} most frequent of ${sums.size}.` : '',
      width: 1000,
      height: frame.bottom + 46,
    },
    [bottomAxis(x, frame, { label, text: countText, count: whole }), ...rows],
    configurations.length > 1 ? legend(configurations) : undefined,
  )
}
