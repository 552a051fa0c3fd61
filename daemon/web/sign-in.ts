/** For those without a session: how to get one, and a field for a token. */
import { signIn } from './api.ts'
import { fill, h } from './dom.ts'

export function signInPage(app: HTMLElement, why: string, done: () => void): void {
  document.title = 'Sign in · Closedbook'
  const field = h('input', {
    type: 'password',
    name: 'token',
    autocomplete: 'off',
    spellcheck: 'false',
    placeholder: 'cbt_…',
    aria: { label: 'token' },
  })
  const status = h('p', { role: 'alert', class: 'bad' }, why)
  const submit = async (): Promise<void> => {
    try {
      await signIn({ token: field.value.trim() })
      done()
    } catch (error) {
      fill(status, (error as Error).message)
    }
  }
  fill(
    app,
    h(
      'main',
      { class: 'sign-in' },
      h(
        'div',
        { class: 'sign-in-card' },
        h('span', { class: 'brand-mark big', aria: { hidden: true } }),
        h('h1', {}, 'Closedbook'),
        status,
        h('p', {}, 'On the host of the daemon, '),
        h('pre', {}, 'closedbook dashboard'),
        h('p', {}, 'prints an address that signs you in once. Or paste a token:'),
        h(
          'form',
          {
            on: {
              submit: (event) => {
                event.preventDefault()
                void submit()
              },
            },
          },
          field,
          h('button', { type: 'submit', class: 'primary' }, 'Sign in'),
        ),
      ),
    ),
  )
  field.focus()
}
