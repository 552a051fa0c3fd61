/** A table in a frame; in a narrow terminal one that fits, and a line that says what it leaves out. */
import Table from 'cli-table3'
import { fitColumns, leftOutText, wrapLine } from './fit.ts'
import type { Paint } from './terminal.ts'

export interface Box {
  readonly columns: readonly { readonly name: string; readonly right?: boolean }[]
  /** Of text on one line, already in colour. */
  readonly rows: readonly (readonly string[])[]
  /** Names of columns, least important first. */
  readonly leaveOut?: readonly string[]
  /** No lines between rows. */
  readonly compact?: boolean
}

export interface BoxView {
  readonly paint: Paint
  /** Of the terminal; Infinity without one. */
  readonly width?: number
  /** Where what is left out is found. */
  readonly elsewhere?: string
}

export function boxText(
  box: Box,
  { paint, width = Infinity, elsewhere = '--json' }: BoxView,
): string {
  const natural = framed(box, paint)
  if (width === Infinity) return natural
  const top = natural.split('\n', 1)[0] ?? ''
  if (top.length <= width) return natural
  const cells = top.slice(1, -1).split('┬')
  const { keep, widths, leftOut } = fitColumns(
    box.columns.map(({ name, right }, index) => ({
      name,
      width: (cells[index]?.length ?? 0) - padding,
      text: right !== true,
    })),
    { width, leaveOut: box.leaveOut ?? [], frame: { each: padding + 1, once: 1 } },
  )
  const kept = <T>(all: readonly T[]): T[] => all.filter((_, index) => keep.includes(index))
  const fitted = framed(
    { ...box, columns: kept(box.columns), rows: box.rows.map(kept) },
    paint,
    widths,
  )
    // What is cut loses its end of colour, or half of its last character.
    .replace(/[\ud800-\udbff](?![\udc00-\udfff])/g, ' ')
    .replaceAll('…', fitReset(paint))
  if (leftOut.length === 0) return fitted
  const said = wrapLine(leftOutText(leftOut, elsewhere), width)
  return [fitted, ...said.split('\n').map((line) => paint('dim', line))].join('\n')
}

/** Blanks in a cell. */
const padding = 2

const fitReset = (paint: Paint): string => (paint('dim', '') === '' ? '…' : '…\u001b[0m')

function framed(
  { columns, rows, compact = false }: Box,
  paint: Paint,
  widths: readonly number[] = [],
): string {
  const table = new Table({
    head: columns.map(({ name }) => paint('bold', name)),
    colAligns: columns.map(({ right }) => (right === true ? 'right' : 'left')),
    // Colours are ours to choose, and none by default in a pipe.
    style: { head: [], border: [], compact },
    ...(widths.length > 0 && { colWidths: widths.map((width) => width + padding) }),
  })
  for (const row of rows) table.push([...row])
  return table.toString()
}
