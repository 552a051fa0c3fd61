/**
 * A long list of rows of one height, of which only those in sight are elements. Arrow keys, Page Up, Page Down, Home and
 * End move; Enter opens.
 */
import { h } from './dom.ts'

const rowHeight = 28
const beyond = 12
/** Browsers lose count of taller elements. */
const tallest = 15_000_000

export interface VirtualList<T> {
  readonly element: HTMLElement
  update(rows: readonly T[]): void
}

export function virtualList<T>(options: {
  readonly label: string
  /** Stays at the top. */
  readonly head?: HTMLElement
  readonly draw: (row: T, index: number) => HTMLElement
  readonly open?: (row: T) => void
}): VirtualList<T> {
  let rows: readonly T[] = []
  let current = 0
  let drawn = ''
  const inner = h('div', { class: 'virtual-inner', role: 'presentation' })
  const element = h(
    'div',
    { class: 'virtual', tabindex: 0, role: 'listbox', aria: { label: options.label } },
    options.head,
    inner,
  )

  const draw = (force: boolean): void => {
    const first = Math.max(0, Math.floor(element.scrollTop / rowHeight) - beyond)
    const last = Math.min(
      rows.length,
      Math.ceil((element.scrollTop + element.clientHeight) / rowHeight) + beyond,
    )
    const range = `${first}-${last}-${current}`
    if (!force && range === drawn) return
    drawn = range
    inner.replaceChildren()
    for (let index = first; index < last; index += 1) {
      const row = rows[index]
      if (row === undefined) continue
      const line = options.draw(row, index)
      line.classList.add('virtual-row')
      line.setAttribute('role', 'option')
      line.id = `row-${index}`
      line.setAttribute('aria-selected', String(index === current))
      line.setAttribute('aria-posinset', String(index + 1))
      line.setAttribute('aria-setsize', String(rows.length))
      line.style.top = `${index * rowHeight}px`
      line.addEventListener('click', () => {
        current = index
        draw(true)
        options.open?.(row)
      })
      inner.append(line)
    }
    element.setAttribute('aria-activedescendant', `row-${current}`)
  }

  const moveTo = (index: number): void => {
    current = Math.max(0, Math.min(rows.length - 1, index))
    const top = current * rowHeight
    const headHeight = options.head?.offsetHeight ?? 0
    const room = element.clientHeight - headHeight
    if (top < element.scrollTop) element.scrollTop = top
    else if (top + rowHeight > element.scrollTop + room) element.scrollTop = top + rowHeight - room
    draw(true)
  }

  element.addEventListener('scroll', () => requestAnimationFrame(() => draw(false)))
  element.addEventListener('keydown', (event) => {
    const page = Math.max(1, Math.floor(element.clientHeight / rowHeight) - 1)
    const steps: Readonly<Record<string, number>> = {
      ArrowDown: current + 1,
      ArrowUp: current - 1,
      PageDown: current + page,
      PageUp: current - page,
      Home: 0,
      End: rows.length - 1,
    }
    const to = steps[event.key]
    const row = rows[current]
    if (to !== undefined) moveTo(to)
    else if (event.key === 'Enter' && row !== undefined) options.open?.(row)
    else return
    event.preventDefault()
  })
  new ResizeObserver(() => draw(true)).observe(element)

  return {
    element,
    update(next) {
      rows = next
      inner.style.height = `${Math.min(tallest, rows.length * rowHeight)}px`
      current = Math.min(current, Math.max(0, rows.length - 1))
      draw(true)
    },
  }
}
