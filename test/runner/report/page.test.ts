import { mkdirSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { pathToFileURL } from 'node:url'
import t from 'tap'
import type { Page } from 'playwright-core'
import { reportCsv } from '../../../runner/report/csv.ts'
import { reportPage } from '../../../runner/report/html/page.ts'
import { loadJobs } from '../../../runner/report/load.ts'
import { reportMarkdown } from '../../../runner/report/markdown.ts'
import { reportOf, type Report } from '../../../runner/report/report.ts'
import { openBrowser } from '../../support/browser.ts'
import { Scratch } from '../support/scratch.ts'
import { syntheticJob } from '../support/synthetic-job.ts'

/** What an agent would write into a message that a person reads. */
const hostile =
  `</script></style><script>document.title='owned'</script><img src="http://127.0.0.1:9/x" onerror="document.title='owned'">` +
  `<a href="javascript:alert(1)">x</a>'"\`\${1}\u202e\u001b[2J|*_\n\n# heading [link](http://127.0.0.1:9/)`

async function hostileReport(scratch: Scratch): Promise<Report> {
  const dir = path.join(scratch.path, 'j1')
  mkdirSync(dir)
  syntheticJob(dir, {
    tasks: 6,
    runs: 3,
    configurations: [
      { name: 'low', chance: 0.3 },
      { name: 'high', chance: 0.7 },
    ],
    change: (result, index) =>
      index === 1
        ? null
        : result.verdict === 'failed'
          ? { ...result, reason: { code: 'tests_failed', message: hostile } }
          : result,
  })
  return reportOf(await loadJobs([dir]))
}

const cell = (page: Page, column: number): Promise<string[]> =>
  page.$$eval(
    '#trials tbody tr:not([hidden])',
    (rows, at) => rows.map((row) => row.cells[at]?.textContent.trim() ?? ''),
    column,
  ) as Promise<string[]>

void t.test(
  'the page is whole, asks nobody, runs nothing of an agent and works by keyboard',
  async (t) => {
    await using scratch = await Scratch.make()
    const report = await hostileReport(scratch)
    const file = await scratch.write('report page.html', reportPage(report, { base: scratch.path }))
    await using browser = await openBrowser()
    const page = await browser.newPage({ colorScheme: 'dark' })
    const asked: string[] = []
    const troubles: string[] = []
    page.on('request', (request) => asked.push(request.url()))
    page.on('console', (message) => troubles.push(message.text()))
    page.on('pageerror', (error) => troubles.push(error.message))
    page.on('dialog', (dialog) => troubles.push(dialog.message()))
    await page.goto(pathToFileURL(file).href)
    t.strictSame(asked, [pathToFileURL(file).href], 'no request but for itself')
    t.strictSame(troubles, [])
    t.equal(await page.title(), 'synthetic · Closedbook report')
    t.equal(await page.locator('img, iframe, object, main script, link').count(), 0)
    t.match(await page.locator('main').textContent(), /document\.title='owned'/, 'shown as text')
    const alarm = await page.locator('.alarm').first().textContent()
    t.match(alarm, /NOT COMPLETE: 35 of 36/)

    // Tables: by keyboard alone, both ways, as numbers where they are numbers.
    const button = page.locator('#trials thead button', { hasText: 'out tokens' })
    await button.focus()
    await page.keyboard.press('Enter')
    const numbers = (await cell(page, 7)).map((text) => Number(text.replace(/[,-]/g, '')))
    t.strictSame(
      numbers,
      numbers.toSorted((a, b) => a - b),
    )
    t.equal(await page.locator('#trials th[aria-sort=ascending]').count(), 1)
    await page.keyboard.press('Space')
    t.equal(await page.locator('#trials th[aria-sort=descending]').count(), 1)
    await page.getByLabel('Filter').fill('task-03')
    await page.getByLabel('Verdict').selectOption('passed')
    const passed = report.trials.filter(
      ({ task, verdict }) => task.endsWith('task-03') && verdict === 'passed',
    )
    t.equal((await cell(page, 0)).length, passed.length)
    t.equal(await page.locator('#told').textContent(), `${passed.length} of 36 trials`)

    // Every link stays beside the page; every chart says in words what it shows.
    const links = await page.$$eval('main a', (all) =>
      all.map((one) => one.getAttribute('href') ?? ''),
    )
    t.ok(links.length > 60)
    t.strictSame(
      links.filter((link) => !link.startsWith('./j1/trials/')),
      [],
    )
    for (const words of await page.$$eval('svg[role=img] desc', (all) =>
      all.map((one) => one.textContent ?? ''),
    ))
      t.match(words, /low.*high|high.*low/s)
    const ground = (): Promise<unknown> =>
      page.evaluate('getComputedStyle(document.body).backgroundColor')
    const dark = await ground()
    await page.getByRole('button', { name: 'Light or dark' }).click()
    t.not(await ground(), dark)
    await page.emulateMedia({ media: 'print' })
    t.equal(await ground(), 'rgb(255, 255, 255)', 'paper is white')
    t.equal(await page.locator('nav').isVisible(), false)
    await page.setViewportSize({ width: 400, height: 800 })
    await page.emulateMedia({ media: 'screen' })
    t.ok(
      await page.evaluate('document.documentElement.scrollWidth <= 400'),
      'no scrolling sideways',
    )
  },
)

void t.test('without a browser: nothing of an agent is markup, in any form', async (t) => {
  await using scratch = await Scratch.make()
  const report = await hostileReport(scratch)
  const page = reportPage(report, { base: scratch.path })
  t.equal(page.match(/<script/g)?.length, 1)
  t.notMatch(page, /<img|<a href="javascript|\u202e/)
  t.notOk(page.includes('\u001b'))
  t.match(page, /&lt;\/script&gt;/)
  t.match(page, /default-src &#39;none&#39;/)
  const markdown = reportMarkdown(report)
  t.notMatch(markdown, /<script|^# heading|[^\\]\[link|\u202e/m)
  t.notOk(markdown.includes('\u001b'))
  t.match(markdown, /^> \*\*NOT COMPLETE: 35 of 36/m)
  const widths = markdown.split('\n').filter((line) => line.startsWith('| org/task-01 | low |'))
  t.ok(widths.length >= 3)
  for (const line of widths) t.equal(line.split(/(?<!\\)\|/).length, 13, line)
  const csv = reportCsv({
    ...report,
    trials: report.trials.map((row, index) =>
      index === 0
        ? { ...row, task: '=cmd|x', reason: { code: 'a"b,c', message: 'two\nlines' } }
        : row,
    ),
  })
  t.match(csv.split('\r\n')[1], /'=cmd\|x,.*,"a""b,c","two\nlines",/)
  t.equal(csv.split('\r\n').length, 36 + 2)
})

void t.test('a report of nothing scored is a page as well', async (t) => {
  await using scratch = await Scratch.make()
  const dir = path.join(scratch.path, 'j1')
  mkdirSync(dir)
  syntheticJob(dir, {
    tasks: 2,
    runs: 1,
    configurations: [{ name: 'one', chance: 1 }],
    change: () => null,
  })
  const report = reportOf(await loadJobs([dir]))
  const page = reportPage(report, { base: dir })
  t.match(page, /NOT COMPLETE: 0 of 2/)
  t.notMatch(page.slice(0, page.indexOf('<script')), /NaN|undefined|Infinity/)
  writeFileSync(path.join(dir, 'x.html'), page)
  t.notMatch(reportMarkdown(report), /NaN|undefined|Infinity/)
})
