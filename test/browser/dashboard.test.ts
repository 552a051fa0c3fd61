/**
 * The dashboard in a real Chromium, on a real daemon with a real trial whose agent is hostile: pages show what happened,
 * a terminal lives, and nothing that the agent wrote is more than text.
 */
import { fileURLToPath } from 'node:url'
import type { Locator, Page } from 'playwright-core'
import t, { type Test } from 'tap'
import { z } from 'zod'
import { imageTags } from '../../images/build.ts'
import { Scratch } from '../runner/support/scratch.ts'
import { TestDaemon } from '../support/daemon.ts'
import { testEngine } from '../support/engine.ts'
import { openBrowser, signIn, until, type Seen } from './browser.ts'

const { socketPath, dispose } = await testEngine()
t.teardown(dispose)
const tally = fileURLToPath(new URL('../fixtures/tasks/tally', import.meta.url))

const links = String.raw`\033]8;;https://evil.example/steal\033\\follow me\033]8;;\033\\ \033]8;;javascript:alert(4)\033\\or me\033]8;;\033\\`

/** Everything that a terminal or a page could be talked into. */
const hostile = String.raw`#!/bin/sh
printf '<img src=x onerror=alert(1)><script>alert(2)</script>\n'
printf '\033]0;</title><script>alert(3)</script>\007'
printf '\033]52;c;aGVsbG8=\007'
printf '${links}\n'
printf '\033[c\033[6n\033[>q\033]11;?\007\033[14t'
curl -sS https://evil.example/ || true
cd /workspace/tally
printf '# <b onmouseover=alert(5)>\n' >> tally.py
printf 'x' > '"><img src=x onerror=alert(6)>.py'
echo the-end-of-it
`

const daemon = await TestDaemon.open(socketPath, { server: { listen: '127.0.0.1:0' } })
t.teardown(() => daemon[Symbol.asyncDispose]())
const browser = await openBrowser()
t.teardown(() => browser.close())
await using scratch = await Scratch.make()
const script = await scratch.write('hostile.sh', hostile)
const ran = z
  .object({
    job: z.string(),
    trials: z.array(z.object({ trial: z.string(), verdict: z.string() })),
  })
  .parse(await daemon.json(['run', '--task', tally, '--harness', `script:${script}`]))
const trial = ran.trials[0]?.trial ?? ''

/** No element that only markup from text could have made, and no attribute that runs. */
const injected = `document.querySelectorAll('#app :is(img, script, iframe, object, embed, link, b, [onerror], [onmouseover], a[href^="javascript:"], a[href^="http"])').length`

async function harmless(t: Test, page: Page, seen: Seen): Promise<void> {
  t.equal(await page.evaluate(injected), 0, `${page.url()}: nothing was made from text`)
  t.same(seen.foreign, [], 'no request leads elsewhere')
  t.same(seen.troubles, [], 'no dialog, no error, no complaint')
  t.match(await page.title(), /· Closedbook$/)
  t.notMatch(await page.title(), /script/)
}

void t.test(
  'jobs, a job and a trial are shown as they are, in dark and light, by keyboard',
  async (t) => {
    for (const scheme of ['dark', 'light'] as const) {
      const { page, url, seen, context } = await signIn(browser, daemon, { scheme })
      t.equal(page.url(), `${url}/`, 'the ticket is gone from the address')
      await page
        .getByRole('link', { name: /tally|script|hostile/ })
        .first()
        .click()
      await page.waitForSelector('.trial-grid .cell.failed')
      t.match(await page.textContent('.tiles'), /pass@1/)
      await page.waitForSelector('.plot .dot.failed')
      await harmless(t, page, seen)
      await page.focus('.trial-grid .cell')
      await page.keyboard.press('Enter')
      await page.waitForSelector('li.step, .player')
      t.match(page.url(), new RegExp(`/jobs/${ran.job}/trials/${trial}$`))
      t.match(await page.textContent('h1'), /fixture\/tally.*failed/)
      await page.waitForSelector('.blocked-row')
      t.match(await page.textContent('.panel.blocked'), /evil\.example/)
      t.match(
        await page.textContent('.steps'),
        /<img src=x onerror=alert\(1\)>/,
        'it is shown as the text that it is',
      )
      await harmless(t, page, seen)
      await page.focus('#tab-blocked')
      await page.keyboard.press('ArrowRight')
      await page.waitForSelector('.diff-file')
      t.match(await page.textContent('.diff'), /<b onmouseover=alert\(5\)>/)
      await page.keyboard.press('ArrowRight')
      await page.waitForSelector('.badge.test-failed')
      await page.keyboard.press('ArrowRight')
      await page.getByText('patch.diff').click()
      await page.waitForSelector('.file')
      await page.keyboard.press('Escape')
      await harmless(t, page, seen)
      await page.keyboard.press('g')
      await page.keyboard.press('h')
      await page.waitForSelector('.tile .bar')
      await page.goto(`${url}/audit?trial=${trial}&action=deny`)
      await page.waitForSelector('.audit-row')
      await page.focus('.virtual')
      await page.keyboard.press('End')
      await page.keyboard.press('Enter')
      t.match(await page.textContent('dialog'), /"action": "deny"/)
      await harmless(t, page, seen)
      await context.close()
    }
  },
)

void t.test('a blocked attempt leads to its moment in the recording', async (t) => {
  const { page, url, seen, context } = await signIn(browser, daemon)
  await page.goto(`${url}/jobs/${ran.job}/trials/${trial}`)
  await page.waitForSelector('.player')
  await page.waitForSelector('.blocked-row')
  await page.waitForSelector('.mark.blocked', { state: 'attached' })
  await page.getByRole('button', { name: /^▶ \d/ }).first().click()
  await page.waitForSelector('.mark-label')
  const at = Number(await page.inputValue('.seek'))
  t.ok(at >= 0 && at <= Number(await page.getAttribute('.seek', 'max')))
  await page.focus('.player')
  await page.keyboard.press('ArrowLeft')
  await page.keyboard.press(' ')
  await until(
    page,
    `document.querySelector('.play').textContent.includes('Pause') || document.querySelector('.seek').value === document.querySelector('.seek').max`,
  )
  await harmless(t, page, seen)
  await context.close()
})

void t.test(
  'a running session lives in the page, and is typed into only by those who may',
  async (t) => {
    const image = (await daemon.client.inspectImage(imageTags.base)).id
    const lease = await daemon.client.openLease({ image, trial: 'tlivelivelive', owner: 'test' })
    // again and again: what a screen shows is given to late viewers, titles and links are not
    const titles = String.raw`(while sleep 0.3; do printf '\r\033]0;</title><script>alert(3)</script>\007${links}'; done) &`
    const argv = [
      'sh',
      '-c',
      `${hostile}\n${titles}\nwhile read -r line; do echo "got $line"; done`,
    ]
    const pty = await daemon.client.openPty(lease.lease, { argv, role: 'agent' })
    const { page, url, seen, context } = await signIn(browser, daemon)
    await page.goto(`${url}/trials/tlivelivelive`)
    await until(
      page,
      `document.querySelector('.xterm-rows')?.textContent.includes('the-end-of-it')`,
    )
    t.match(await page.textContent('.term-state'), /live, looking on/)
    await until(page, `document.querySelector('.term-title').textContent !== ''`)
    t.match(
      await page.textContent('.term-title'),
      /<\/title><script>/,
      'a title is text beside the terminal',
    )
    t.equal(
      await page.isVisible('.term-bar button'),
      false,
      'who may only look is not offered to type',
    )
    await page.click('.xterm')
    await page.keyboard.type('never\n')
    await harmless(t, page, seen)
    await clickCell(page, 'follow me')
    await page.waitForSelector('dialog .address')
    t.equal(await page.textContent('dialog .address'), 'https://evil.example/steal')
    t.equal(context.pages().length, 1, 'no link is followed without a question')
    await page.keyboard.press('Escape')
    await clickCell(page, 'or me')
    t.equal(await page.locator('dialog').count(), 0, 'a link that is no address of the web is none')
    await context.close()

    const typist = await signIn(browser, daemon, { role: 'run' })
    await typist.page.goto(`${url}/trials/tlivelivelive`)
    await typist.page.getByRole('button', { name: 'Take control' }).click()
    t.match(await typist.page.textContent('dialog'), /counts as assisted, for ever/)
    await typist.page.getByRole('button', { name: 'Take control', exact: true }).click()
    await typist.page.waitForSelector('.term.controlling')
    await typist.page.keyboard.type('hello\n')
    await until(
      typist.page,
      `document.querySelector('.xterm-rows').textContent.includes('got hello')`,
    )
    t.notMatch(
      await typist.page.textContent('.xterm-rows'),
      /never/,
      'what a viewer typed went nowhere, and no answer to a question did',
    )
    t.match((await daemon.client.lease(lease.lease)).assisted, true)
    await harmless(t, typist.page, typist.seen)
    t.equal((await daemon.client.ptys('tlivelivelive'))[0]?.pty, pty.pty)
    await daemon.client.closeLease(lease.lease, 'over')
    await typist.page.waitForSelector('.player', { timeout: 20_000 })
    await typist.context.close()
  },
)

void t.test('a job whose runner was killed does not look as if it ran', async (t) => {
  const published = (await daemon.client.call('GET', `/v1/board/job/${ran.job}`)) as object
  const one = (await daemon.client.call('GET', `/v1/board/trial/${ran.job}.${trial}`)) as object
  const put = async (at: string, body: object): Promise<void> =>
    void (await daemon.client.call('PUT', `/v1/board/${at}`, { body }))
  const running = { job: 'jobofadeadrunner', state: 'running' }
  await put('job/jobofadeadrunner', { ...published, ...running, name: 'left alone' })
  await put(`trial/jobofadeadrunner.${trial}`, { ...one, ...running, verdict: null })
  await put('alive/jobofadeadrunner', { job: 'jobofadeadrunner', host: 'gone' })
  const { page, url, seen, context } = await signIn(browser, daemon)
  await page.clock.install()
  await page.goto(`${url}/`)
  await page.waitForSelector('.badge.job-running')
  await page.clock.fastForward(100_000)
  t.equal(await page.locator('.badge.job-silent').count(), 0, 'signs of life may be late')
  await page.clock.fastForward(100_000)
  await page.waitForSelector('.badge.job-silent')
  t.match(await page.textContent('.badge.job-silent'), /^not heard of since \d{4}-/)
  t.equal(await page.locator('.badge.job-running').count(), 0)
  t.equal(await page.locator('.badge.job-ended').count(), 1, 'one that has ended needs no sign')
  // what a page loads tells it the daemon's clock, which has not gone on
  await page.getByRole('link', { name: 'left alone' }).click()
  await page.waitForSelector('h1 .badge.job-running')
  await page.clock.fastForward(200_000)
  await page.waitForSelector('h1 .badge.job-silent')
  await page.locator('.trial-grid .cell').first().click()
  await page.waitForSelector('h1 .badge.running')
  await page.clock.fastForward(200_000)
  await page.waitForSelector('.reason-line.void')
  t.match(await page.textContent('.reason-line.void'), /Not heard of since.*closedbook resume/)
  await harmless(t, page, seen)
  await context.close()
})

/** Cells of a terminal are under a layer that takes the mouse. */
async function clickCell(page: Page, text: string): Promise<void> {
  let box: Awaited<ReturnType<Locator['boundingBox']>> = null
  // a row that is drawn anew is in no place for a moment
  for (const deadline = Date.now() + 10_000; box === null && Date.now() < deadline;)
    box = await page.getByText(text).last().boundingBox()
  if (box === null) throw new Error(`${text} is not in sight`)
  await page.mouse.move(box.x + box.width / 2, box.y + box.height / 2, { steps: 3 })
  await page.mouse.click(box.x + box.width / 2, box.y + box.height / 2)
}
