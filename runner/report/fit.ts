/**
 * What fits in a terminal. A table that is wider than its terminal first leaves out columns, in the order that the table
 * gives; a text column takes up to two fifths of the terminal before others go for it. Then the widest text is cut, and
 * numbers only when nothing else is left to cut. The first column always stays. Widths are cells of a terminal. Pure;
 * what goes to a pipe or a file has no width, and nothing is done to it.
 */
import { stripVTControlCharacters } from 'node:util'
import { cut } from './terminal.ts'

export interface FitColumn {
  readonly name: string
  /** Of its widest cell. */
  readonly width: number
  /** May be cut and still be read; a number may not. */
  readonly text: boolean
}

export interface FitSpec {
  /** Of the terminal. */
  readonly width: number
  /** Names of columns, least important first. */
  readonly leaveOut: readonly string[]
  /** Cells around columns: for each of them, and once. */
  readonly frame: { readonly each: number; readonly once: number }
}

export interface Fit {
  /** Indexes of the columns that stay. */
  readonly keep: readonly number[]
  /** Of those. */
  readonly widths: readonly number[]
  readonly leftOut: readonly string[]
}

/** Below it, output is as for it: a terminal that says less says nothing of use. */
const leastWidth = 40
const readableShare = 0.4
const leastText = 8
const leastCell = 3

/** Infinity where there is no terminal, or it doesn't say. */
export const terminalWidth = (stream: {
  readonly isTTY?: boolean
  readonly columns?: number
}): number =>
  stream.isTTY === true && (stream.columns ?? 0) > 0
    ? Math.max(leastWidth, stream.columns ?? 0)
    : Infinity

export function fitColumns(columns: readonly FitColumn[], spec: FitSpec): Fit {
  const { width, frame } = spec
  const most = Math.floor(width * readableShare)
  let kept = columns.map((column, index) => ({ ...column, index }))
  const takes = (of: (column: FitColumn) => number): number =>
    kept.reduce((sum, column) => sum + of(column) + frame.each, frame.once)
  const wanted = (column: FitColumn): number =>
    column.text ? Math.min(column.width, most) : column.width
  for (const name of spec.leaveOut) {
    if (takes(wanted) <= width) break
    kept = kept.filter((column) => column.index === 0 || column.name !== name)
  }
  while (kept.length > 1 && takes((column) => Math.min(column.width, leastCell)) > width) kept.pop()
  const staying = new Set(kept.map(({ index }) => index))
  return {
    keep: [...staying],
    widths: shrink(kept, width - takes(() => 0)),
    leftOut: columns.filter((_, index) => !staying.has(index)).map(({ name }) => name),
  }
}

/** Widths that together take no more than `room`: always the widest gives. */
function shrink(columns: readonly FitColumn[], room: number): number[] {
  const widths = columns.map(({ width }) => width)
  const widest = (may: (column: FitColumn, width: number) => boolean): number =>
    columns.reduce((found, column, index) => {
      const width = widths[index] ?? 0
      return may(column, width) && width > (widths[found] ?? 0) ? index : found
    }, -1)
  for (let over = widths.reduce((sum, one) => sum + one, 0) - room; over > 0; over -= 1) {
    const text = widest((column, width) => column.text && width > leastText)
    const index = text >= 0 ? text : widest((_, width) => width > leastCell)
    if (index < 0) break
    widths[index] = (widths[index] ?? 0) - 1
  }
  return widths
}

export const leftOutText = (names: readonly string[], elsewhere: string): string =>
  `left out: ${names.join(' · ')}; ${elsewhere} or a wider terminal has them`

const shownLength = (text: string): number => stripVTControlCharacters(text).length

/**
 * Prose broken between words, but not before a unit; what has no blank, as a path, stays whole to be copied. Colours may
 * span the break.
 */
export function wrapLine(text: string, width: number): string {
  if (shownLength(text) <= width) return text
  const indent = `${/^ */.exec(text)?.[0] ?? ''}  `
  const lines: string[] = []
  let line = ''
  for (const word of text.split(/(?<=\S +)(?=\S)(?!(?:ms|s|min|h|%)(?:\W|$))/)) {
    if (line.trim() !== '' && shownLength((line + word).trimEnd()) > width) {
      lines.push(line.trimEnd())
      line = indent
    }
    line += word
  }
  return [...lines, line].join('\n')
}

/** Rows without a frame, their cells two blanks apart; an empty cell takes no place. */
export function fitLines(
  rows: readonly (readonly string[])[],
  {
    columns,
    ...spec
  }: Pick<FitSpec, 'width' | 'leaveOut'> & {
    readonly columns: readonly Omit<FitColumn, 'width'>[]
  },
): { readonly lines: readonly string[]; readonly leftOut: readonly string[] } {
  const whole = rows.map((row) => row.filter((cell) => cell !== '').join('  '))
  if (whole.every((line) => line.length <= spec.width)) return { lines: whole, leftOut: [] }
  const measured = columns.map((column, index) => ({
    ...column,
    width: rows.reduce((most, row) => Math.max(most, row[index]?.length ?? 0), 0),
  }))
  const { keep, widths, leftOut } = fitColumns(measured, {
    ...spec,
    frame: { each: 2, once: -2 },
  })
  return {
    lines: rows.map((row) =>
      keep
        .map((index, at) => cut(row[index] ?? '', widths[at] ?? 0))
        .filter((cell) => cell !== '')
        .join('  '),
    ),
    // a column that no row fills is missed by nobody
    leftOut: leftOut.filter((name) =>
      measured.some((column) => column.name === name && column.width > 0),
    ),
  }
}
