/** Figures in words, the same in every form of a report. An estimate carries its mark wherever it stands. */
import type { SuiteCounts } from '../result.ts'
import type { Interval, PassRate } from '../statistics.ts'
import type { TrialRow } from './report.ts'
import { countText, dollars, durationText } from './terminal.ts'

export const percent = (share: number): string => `${(share * 100).toFixed(1)} %`

/** `58.3 %`; while trials lack a score, `40.0 to 60.0 % (bounds)`. */
export function rateText({ passAt1, bounds }: PassRate): string {
  if (passAt1 !== null) return percent(passAt1)
  if (bounds === null) return '-'
  return `${(bounds.lower * 100).toFixed(1)} to ${percent(bounds.upper)} (bounds)`
}

export const rangeText = (interval: Interval | null): string =>
  interval === null ? '-' : `${(interval.low * 100).toFixed(1)} to ${percent(interval.high)}`

export const intervalText = ({ low, high, degreesOfFreedom }: Interval): string =>
  `${percent(low)} to ${percent(high)}, ${degreesOfFreedom} degree${degreesOfFreedom === 1 ? '' : 's'} of freedom,`

export const costText = (usd: number | null, estimate: boolean): string =>
  usd === null ? '-' : `${estimate ? '~' : ''}${dollars(usd)}${estimate ? ' (estimate)' : ''}`

export const countOr = (count: number | null): string =>
  count === null ? '-' : countText(count >= 100 ? Math.round(count) : Math.round(count * 10) / 10)

export const durationOr = (ms: number | null): string => (ms === null ? '-' : durationText(ms))

/** `7/11`; `not run` where the suite exists and never ran; `-` where the task has none. */
export function suiteText(suite: SuiteCounts | null): string {
  if (suite === null || suite.command === null) return '-'
  if (suite.exit === null) return 'not run'
  return `${suite.passed}/${suite.planned}`
}

export function verdictWords({ verdict, blame, unusable, assisted }: TrialRow): string {
  if (verdict === null) return unusable === null ? 'no result' : 'unusable result'
  if (verdict === 'void') return `void (${assisted ? 'assisted' : (blame ?? 'unknown')})`
  return verdict
}
