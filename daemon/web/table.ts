/**
 * A table that is kept up to date row by row: a cell is made anew only when what it shows has changed, so that focus,
 * selection and links stay where they are. Headings sort.
 */
import { fill, h, type Child } from './dom.ts'

export interface Column<T> {
  readonly key: string
  readonly title: string
  readonly note?: string
  /** What is sorted by, and what tells whether the cell has changed. */
  readonly value: (row: T) => string | number | null
  readonly show?: (row: T) => Child | readonly Child[]
  readonly number?: boolean
}

export interface TableOptions<T> {
  readonly key: (row: T) => string
  readonly columns: readonly Column<T>[]
  readonly label: string
  readonly empty: string
  readonly sort?: { readonly key: string; readonly down: boolean }
}

export interface Table<T> {
  readonly element: HTMLElement
  update(rows: readonly T[]): void
}

export function table<T>({ key, columns, label, empty, sort }: TableOptions<T>): Table<T> {
  let order = sort ?? null
  let rows: readonly T[] = []
  const known = new Map<string, { tr: HTMLTableRowElement; shown: string[] }>()
  const headings = columns.map((column) => heading(column))
  const body = h('tbody')
  const nothing = h('p', { class: 'empty' }, empty)
  const element = h(
    'div',
    { class: 'table-box', tabindex: 0, role: 'region', aria: { label } },
    h('table', {}, h('thead', {}, h('tr', {}, ...headings)), body),
    nothing,
  )

  function heading(column: Column<T>): HTMLTableCellElement {
    const button = h(
      'button',
      {
        type: 'button',
        class: 'sort',
        ...(column.note === undefined ? {} : { title: column.note }),
        on: {
          click: () => {
            const down = order?.key === column.key ? !order.down : column.number === true
            order = { key: column.key, down }
            draw()
          },
        },
      },
      column.title,
    )
    return h('th', { scope: 'col', class: column.number === true ? 'number' : '' }, button)
  }

  function draw(): void {
    for (const [index, column] of columns.entries()) {
      const active = order?.key === column.key
      headings[index]?.setAttribute(
        'aria-sort',
        active ? (order?.down === true ? 'descending' : 'ascending') : 'none',
      )
    }
    const sorted = sortedRows()
    const present = new Set<string>()
    const wanted = sorted.map((row) => {
      const id = key(row)
      present.add(id)
      return rowOf(id, row)
    })
    for (const id of known.keys()) if (!present.has(id)) known.delete(id)
    for (const [index, tr] of wanted.entries())
      if (body.children[index] !== tr) body.insertBefore(tr, body.children[index] ?? null)
    while (body.children.length > wanted.length) body.lastElementChild?.remove()
    nothing.hidden = wanted.length > 0
  }

  function sortedRows(): readonly T[] {
    const column = columns.find((one) => one.key === order?.key)
    if (column === undefined) return rows
    const sign = order?.down === true ? -1 : 1
    return rows.toSorted((a, b) => sign * compare(column.value(a), column.value(b)))
  }

  function rowOf(id: string, row: T): HTMLTableRowElement {
    const entry = known.get(id) ?? {
      tr: h(
        'tr',
        {},
        ...columns.map(({ number }) => h('td', { class: number === true ? 'number' : '' })),
      ),
      shown: [],
    }
    known.set(id, entry)
    for (const [index, column] of columns.entries()) {
      const value = column.value(row)
      const now = JSON.stringify(value)
      if (entry.shown[index] === now) continue
      entry.shown[index] = now
      const cell = entry.tr.children[index]
      const shown = column.show === undefined ? (value ?? '–') : column.show(row)
      if (cell !== undefined) fill(cell, ...(Array.isArray(shown) ? shown : [shown as Child]))
    }
    return entry.tr
  }

  return {
    element,
    update(next) {
      rows = next
      draw()
    },
  }
}

/** What there is not comes last. */
function compare(a: string | number | null, b: string | number | null): number {
  if (a === null || b === null) return a === b ? 0 : a === null ? 1 : -1
  if (typeof a === 'number' && typeof b === 'number') return a - b
  return String(a).localeCompare(String(b), 'en', { numeric: true })
}
