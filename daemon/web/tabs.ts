/** Tabs as the browser's users know them: arrow keys move, one panel shows. */
import { h, setText } from './dom.ts'

export interface Tabs {
  readonly element: HTMLElement
  panel(key: string): HTMLElement
  count(key: string, value: number): void
}

export function tabs(
  given: readonly { readonly key: string; readonly title: string; readonly element: HTMLElement }[],
): Tabs {
  const counts = new Map<string, HTMLElement>()
  const buttons = given.map(({ key, title }) => {
    const number = h('span', { class: 'tab-count' })
    counts.set(key, number)
    return h(
      'button',
      {
        type: 'button',
        role: 'tab',
        id: `tab-${key}`,
        aria: { controls: `panel-${key}` },
        on: { click: () => choose(key) },
      },
      title,
      number,
    )
  })
  for (const { key, element } of given) {
    element.id = `panel-${key}`
    element.setAttribute('role', 'tabpanel')
    element.setAttribute('aria-labelledby', `tab-${key}`)
  }
  function choose(key: string): void {
    for (const [index, one] of given.entries()) {
      const chosen = one.key === key
      one.element.hidden = !chosen
      buttons[index]?.setAttribute('aria-selected', String(chosen))
      buttons[index]?.setAttribute('tabindex', chosen ? '0' : '-1')
    }
  }
  const move = (event: KeyboardEvent): void => {
    const at = buttons.findIndex((button) => button.getAttribute('aria-selected') === 'true')
    const by = event.key === 'ArrowRight' ? 1 : event.key === 'ArrowLeft' ? -1 : 0
    const to = buttons[(at + by + buttons.length) % buttons.length]
    if (by === 0 || to === undefined) return
    event.preventDefault()
    to.click()
    to.focus()
  }
  choose(given[0]?.key ?? '')
  return {
    element: h(
      'div',
      { class: 'tabs' },
      h(
        'div',
        {
          class: 'tab-row',
          role: 'tablist',
          on: { keydown: (event) => move(event as KeyboardEvent) },
        },
        ...buttons,
      ),
      ...given.map(({ element }) => element),
    ),
    panel: (key) => given.find((one) => one.key === key)?.element ?? h('div'),
    count(key, value) {
      const number = counts.get(key)
      if (number !== undefined) setText(number, value.toLocaleString('en-US'))
    },
  }
}
