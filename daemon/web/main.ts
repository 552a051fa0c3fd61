/**
 * The dashboard: signs in by the ticket in the address's fragment, then shows the page that the path names. Links are
 * followed without loading anew; leaving a page ends all it started.
 */
import { json, signIn, whenSignedOut, ApiError, type Session } from './api.ts'
import { BoardStore, type Connection } from './board.ts'
import { fill, h } from './dom.ts'
import { show } from './dialog.ts'
import { auditPage } from './page-audit.ts'
import { hostsPage } from './page-hosts.ts'
import { jobPage } from './page-job.ts'
import { jobsPage } from './page-jobs.ts'
import { anyTrialPage, trialPage } from './page-trial.ts'
import type { Page } from './page.ts'
import { signInPage } from './sign-in.ts'
import { startTheme, themeButton } from './theme.ts'

const routes: readonly (readonly [pattern: string, page: (page: Page) => void | Promise<void>])[] =
  [
    ['/', jobsPage],
    ['/jobs', jobsPage],
    ['/jobs/:job', jobPage],
    ['/jobs/:job/trials/:trial', trialPage],
    ['/trials/:trial', anyTrialPage],
    ['/hosts', hostsPage],
    ['/audit', auditPage],
  ]

const app = document.getElementById('app') ?? document.body
const board = new BoardStore()
let left = new AbortController()

function match(pattern: string, path: string): Record<string, string> | null {
  const [wanted, given] = [pattern.split('/'), path.replace(/(.)\/$/, '$1').split('/')]
  if (wanted.length !== given.length) return null
  const params: Record<string, string> = {}
  for (const [index, part] of wanted.entries()) {
    const value = given[index] ?? ''
    if (part.startsWith(':')) params[part.slice(1)] = decodeURIComponent(value)
    else if (part !== value) return null
  }
  return params
}

function open(session: Session, main: HTMLElement): void {
  left.abort()
  left = new AbortController()
  const { signal } = left
  const root = h('div', { class: 'page' })
  fill(main, root)
  for (const link of document.querySelectorAll('.nav a')) {
    const at = link.getAttribute('href') ?? ''
    const here =
      location.pathname === at || (at === '/jobs' && /^\/($|jobs|trials)/.test(location.pathname))
    link.setAttribute('aria-current', here ? 'page' : 'false')
  }
  const fail = (error: unknown): void => {
    if (signal.aborted) return
    if (error instanceof ApiError && error.status === 401) return
    fill(
      root,
      h(
        'div',
        { class: 'failure', role: 'alert' },
        h('h1', {}, 'This can’t be shown'),
        h('p', {}, (error as Error).message),
      ),
    )
  }
  for (const [pattern, page] of routes) {
    const params = match(pattern, location.pathname)
    if (params === null) continue
    const title = (text: string): void => {
      document.title = `${text} · Closedbook`
    }
    try {
      const given = {
        root,
        params,
        query: new URLSearchParams(location.search),
        signal,
        board,
        session,
        title,
        fail,
      }
      Promise.resolve(page(given)).catch(fail)
    } catch (error) {
      fail(error)
    }
    return
  }
  fail(new Error(`there is no page ${location.pathname}`))
}

function shell(session: Session): void {
  const main = h('main', { id: 'main', tabindex: -1 })
  const dot = h('span', { class: 'connection', role: 'status', title: 'connection to the daemon' })
  const connection = (state: Connection): void => {
    dot.dataset['state'] = state
    fill(dot, state)
  }
  connection('connecting')
  fill(
    app,
    h('a', { class: 'skip', href: '#main' }, 'Skip to the page'),
    h(
      'header',
      { class: 'top' },
      h(
        'a',
        { class: 'brand', href: '/jobs' },
        h('span', { class: 'brand-mark', aria: { hidden: true } }),
        'Closedbook',
      ),
      h(
        'nav',
        { class: 'nav', aria: { label: 'pages' } },
        h('a', { href: '/jobs' }, 'Jobs'),
        h('a', { href: '/hosts' }, 'Host'),
        h('a', { href: '/audit' }, 'Audit'),
      ),
      h('span', { class: 'spring' }),
      dot,
      h('span', { class: 'who', title: `signed in as ${session.name}` }, session.role),
      themeButton(),
      h(
        'button',
        { type: 'button', title: 'keys (?)', aria: { label: 'keys' }, on: { click: showKeys } },
        '?',
      ),
      h('button', { type: 'button', on: { click: () => void signOut() } }, 'Sign out'),
    ),
    main,
  )
  const go = (path: string): void => {
    history.pushState(null, '', path)
    open(session, main)
    main.focus()
    scrollTo(0, 0)
  }
  document.addEventListener('click', (event) => {
    const link = event.target instanceof Element ? event.target.closest('a') : null
    const path = link?.getAttribute('href') ?? ''
    const plain = event.button === 0 && !event.metaKey && !event.ctrlKey && !event.shiftKey
    if (!path.startsWith('/') || !plain) return
    event.preventDefault()
    go(path)
  })
  addEventListener('popstate', () => open(session, main))
  document.addEventListener('keydown', (event) => keys(event, go))
  board.start(connection)
  open(session, main)
}

let before = ''
function keys(event: KeyboardEvent, go: (path: string) => void): void {
  const { target } = event
  const typing =
    target instanceof HTMLInputElement ||
    target instanceof HTMLSelectElement ||
    target instanceof HTMLTextAreaElement
  if (typing || event.ctrlKey || event.metaKey || event.altKey) return
  const pages: Readonly<Record<string, string>> = { j: '/jobs', h: '/hosts', a: '/audit' }
  const page = before === 'g' ? pages[event.key] : undefined
  before = event.key
  if (page !== undefined) return go(page)
  if (event.key === '?') return showKeys()
  if (event.key !== '/') return
  const field = document.querySelector<HTMLInputElement>(
    'main input[type="search"], main input[type="text"]',
  )
  if (field === null) return
  event.preventDefault()
  field.focus()
}

function showKeys(): void {
  const rows = [
    ['g j · g h · g a', 'jobs, host, audit'],
    ['/', 'filter or search'],
    ['arrow keys', 'walk in the grid of trials, in lists and in tabs'],
    ['space', 'in a recording: play, pause'],
    ['← →', 'in a recording: five seconds'],
    [', .', 'in a recording: the mark before, the next'],
  ] as const
  show(
    'Keys',
    h(
      'dl',
      { class: 'keys' },
      ...rows.flatMap(([key, what]) => [h('dt', {}, h('kbd', {}, key)), h('dd', {}, what)]),
    ),
  )
}

async function signOut(): Promise<void> {
  await json('/v1/session', { method: 'DELETE' }).catch(() => {})
  location.assign('/')
}

async function start(): Promise<void> {
  startTheme()
  const ticket = new URLSearchParams(location.hash.slice(1)).get('ticket')
  // it is spent at once; nobody shall find it in the history
  if (ticket !== null) history.replaceState(null, '', location.pathname + location.search)
  const session = await (ticket === null
    ? json<Session>('/v1/session', { quiet: true })
    : signIn({ ticket }))
  whenSignedOut(() => {
    left.abort()
    board.stop()
    signInPage(app, 'This session has ended.', () => location.reload())
  })
  shell(session)
}

try {
  await start()
} catch (error) {
  const why =
    error instanceof ApiError && error.status === 401 && error.code !== 'unauthenticated'
      ? error.message
      : ''
  const ticketFailed =
    error instanceof ApiError && /ticket/.test(error.message) ? error.message : why
  signInPage(app, ticketFailed, () => location.reload())
}
