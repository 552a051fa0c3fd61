/** Dark and light: as the system has it, or as this browser was told. */
import { fill, h } from './dom.ts'

type Choice = 'auto' | 'dark' | 'light'
const choices: readonly Choice[] = ['auto', 'dark', 'light']
const key = 'closedbook-theme'
const system = matchMedia('(prefers-color-scheme: light)')

function chosen(): Choice {
  const kept = localStorage.getItem(key)
  return kept === 'dark' || kept === 'light' ? kept : 'auto'
}

function apply(): void {
  const choice = chosen()
  const scheme = choice === 'auto' ? (system.matches ? 'light' : 'dark') : choice
  document.documentElement.dataset['scheme'] = scheme
  document.dispatchEvent(new Event('themechange'))
}

export function startTheme(): void {
  apply()
  system.addEventListener('change', apply)
}

export function themeButton(): HTMLElement {
  const button = h('button', {
    type: 'button',
    title: 'colours: as the system, dark, light',
    on: { click: turn },
  })
  const draw = (): void =>
    fill(
      button,
      { auto: '◐', dark: '☾', light: '☀' }[chosen()],
      h('span', { class: 'visually-hidden' }, ` colours: ${chosen()}`),
    )
  function turn(): void {
    const next = choices[(choices.indexOf(chosen()) + 1) % choices.length] ?? 'auto'
    localStorage.setItem(key, next)
    apply()
    draw()
  }
  draw()
  return button
}
