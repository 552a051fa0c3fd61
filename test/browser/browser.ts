/**
 * A real Chromium on a real daemon: signed in by a ticket, every request noted, and nothing let through that leads
 * elsewhere. What a page says to its console or throws is kept, for no page of ours has any reason to.
 */
import { setTimeout as delay } from 'node:timers/promises'
import { chromium, type Browser, type BrowserContext, type Page } from 'playwright-core'
import { createTicket } from '../../daemon/protocol/auth-client.ts'
import type { Role } from '../../daemon/protocol/auth.ts'
import { which } from '../../runner/bin/setup.mjs'
import type { TestDaemon } from '../support/daemon.ts'

export interface Seen {
  /** Addresses of requests that went elsewhere. */
  readonly foreign: string[]
  /** Errors of pages, complaints of the console, dialogs. */
  readonly troubles: string[]
}

export async function openBrowser(): Promise<Browser> {
  const executablePath = which('chromium') ?? which('chromium-browser')
  if (executablePath === undefined)
    throw new Error('there is no chromium; `npm test` installs it, or: apt-get install chromium')
  return chromium.launch({
    executablePath,
    args: [
      '--no-sandbox',
      '--disable-gpu',
      '--disable-dev-shm-usage',
      '--disable-background-networking',
      '--disable-component-update',
      '--disable-sync',
      '--no-first-run',
      // names that a hostile text might bring up are looked up nowhere
      '--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost',
    ],
  })
}

export async function urlOf(daemon: TestDaemon): Promise<string> {
  const { url } = await daemon.client.health()
  if (url === null) throw new Error('the daemon listens nowhere')
  return url
}

export interface SignedIn {
  readonly context: BrowserContext
  readonly page: Page
  readonly url: string
  readonly seen: Seen
}

export async function signIn(
  browser: Browser,
  daemon: TestDaemon,
  { role = 'view', scheme = 'dark' }: { role?: Role; scheme?: 'dark' | 'light' } = {},
): Promise<SignedIn> {
  const url = await urlOf(daemon)
  const context = await browser.newContext({
    colorScheme: scheme,
    viewport: { width: 1400, height: 900 },
  })
  const seen: Seen = { foreign: [], troubles: [] }
  const page = await context.newPage()
  page.setDefaultTimeout(20_000)
  context.on('request', (request) => {
    if (!request.url().startsWith(`${url}/`) && !request.url().startsWith('data:'))
      seen.foreign.push(request.url())
  })
  page.on('websocket', (socket) => {
    if (!socket.url().startsWith(url.replace('http', 'ws'))) seen.foreign.push(socket.url())
  })
  page.on('pageerror', (error) => seen.troubles.push(`error: ${error.message}`))
  page.on('console', (message) => {
    if (message.type() === 'error') seen.troubles.push(`console: ${message.text()}`)
  })
  page.on('dialog', (dialog) => {
    seen.troubles.push(`dialog: ${dialog.message()}`)
    void dialog.dismiss()
  })
  const { ticket } = await createTicket(daemon.client, { path: '/', role })
  await page.goto(`${url}/#ticket=${ticket}`)
  await page.waitForSelector('.top')
  return { context, page, url, seen }
}

/** Playwright's own waiting for an expression is evaluated in the page, where the page's policy forbids it. */
export async function until(page: Page, expression: string): Promise<void> {
  for (
    const deadline = Date.now() + 20_000;
    (await page.evaluate(expression)) !== true;
    await delay(50)
  )
    if (Date.now() > deadline) throw new Error(`it did not come to be within 20 s: ${expression}`)
}
