/** One test as it was reported, with bounded text, and the error of a report that can't be read. */

export type ReportedOutcome = 'passed' | 'failed' | 'error' | 'skipped'

export interface ReportedTest {
  readonly id: string
  readonly outcome: ReportedOutcome
  readonly durationMs: number | null
  readonly message: string | null
}

/** The message says what is wrong with the report, for people. */
export class ReportError extends Error {
  override readonly name = 'ReportError'
}

const maxIdChars = 1000
const maxMessageChars = 2000

export const idText = (text: string): string =>
  text.length <= maxIdChars ? text : `${text.slice(0, maxIdChars)}…`

export function messageText(text: string): string | null {
  const trimmed = text.trim()
  if (trimmed === '') return null
  return trimmed.length <= maxMessageChars ? trimmed : `${trimmed.slice(0, maxMessageChars)}…`
}

export const seconds = (value: unknown): number | null => {
  const number = typeof value === 'string' && value !== '' ? Number(value) : Number.NaN
  return Number.isFinite(number) && number >= 0 ? number * 1000 : null
}
