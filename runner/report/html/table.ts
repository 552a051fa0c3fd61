/** A table of the report as HTML: sortable by its heads, by mouse or keyboard; the first column heads its row. */
import type { Cell, ReportTable } from '../tables.ts'
import { html, hrefTo, type Markup } from './markup.ts'

export interface TableView {
  readonly base: string
  readonly id?: string
  /** Attributes of each row, by its index. */
  readonly rowVerdict?: (index: number) => string
}

export function tableMarkup({ title, columns, rows }: ReportTable, view: TableView): Markup {
  const head = columns.map(
    ({ name, right }) =>
      html`<th scope="col" aria-sort="none" ${classOf(right === true ? 'right' : '')}>
        <button type="button">${name}</button>
      </th>`,
  )
  const body = rows.map((cells, index) => {
    const verdict = view.rowVerdict?.(index)
    return html`<tr${verdict === undefined ? '' : html` data-verdict="${verdict}"`}>${cells.map((cell, at) => cellMarkup(cell, at, columns[at]?.right === true, view))}</tr>
`
  })
  return html`<div class="scroll" role="region" aria-label="${title}" tabindex="0"><table${view.id === undefined ? '' : html` id="${view.id}"`}>
<caption>${title}</caption><thead><tr>${head}</tr></thead><tbody>
${body}</tbody></table></div>`
}

function cellMarkup(cell: Cell, at: number, right: boolean, { base }: TableView): Markup {
  const long = cell.text.length > 60
  const classes = [right ? 'right' : '', cell.tone ?? '', long ? 'long' : ''].filter(
    (one) => one !== '',
  )
  const sort = cell.sort === undefined ? '' : html` data-sort="${cell.sort}"`
  const text =
    cell.file === undefined
      ? cell.text
      : html`<a href="${hrefTo(cell.file, base)}">${cell.text}</a>`
  return at === 0
    ? html`<th scope="row" ${classOf(classes.join(' '))}${sort}>${text}</th>`
    : html`<td${classOf(classes.join(' '))}${sort}>${text}</td>`
}

const classOf = (classes: string): Markup | string =>
  classes === '' ? '' : html` class="${classes}"`
