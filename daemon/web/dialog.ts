/** Questions to a person, in the page's own dialogs: no program's text can pass for one, and Escape always says no. */
import { h, type Child } from './dom.ts'

export function ask(title: string, yes: string, ...content: readonly Child[]): Promise<boolean> {
  return new Promise((resolve) => {
    const dialog = h(
      'dialog',
      { class: 'dialog', aria: { label: title } },
      h('h2', {}, title),
      ...content,
      h(
        'div',
        { class: 'dialog-buttons' },
        h('button', { type: 'button', on: { click: () => dialog.close('no') } }, 'Cancel'),
        h(
          'button',
          { type: 'button', class: 'primary', on: { click: () => dialog.close('yes') } },
          yes,
        ),
      ),
    )
    dialog.addEventListener('close', () => {
      dialog.remove()
      resolve(dialog.returnValue === 'yes')
    })
    document.body.append(dialog)
    dialog.showModal()
  })
}

export function show(title: string, ...content: readonly Child[]): void {
  const dialog = h(
    'dialog',
    { class: 'dialog wide', aria: { label: title } },
    h('h2', {}, title),
    ...content,
    h(
      'div',
      { class: 'dialog-buttons' },
      h(
        'button',
        { type: 'button', class: 'primary', on: { click: () => dialog.close() } },
        'Close',
      ),
    ),
  )
  dialog.addEventListener('close', () => dialog.remove())
  dialog.addEventListener('click', (event) => {
    if (event.target === dialog) dialog.close()
  })
  document.body.append(dialog)
  dialog.showModal()
}

/** The address is shown whole, as the browser reads it. */
export async function askToFollow(url: URL): Promise<void> {
  const text = h('code', { class: 'address' }, url.href)
  const warning = h(
    'p',
    {},
    'The program in the sandbox made this link. It leads out of the dashboard:',
  )
  if (await ask('Follow a link of the agent?', 'Open in a new tab', warning, text))
    window.open(url.href, '_blank', 'noopener,noreferrer')
}
