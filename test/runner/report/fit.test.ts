import { mkdirSync } from 'node:fs'
import path from 'node:path'
import { stripVTControlCharacters } from 'node:util'
import t from 'tap'
import { boxText } from '../../../runner/report/box.ts'
import { fitColumns, fitLines, terminalWidth, wrapLine } from '../../../runner/report/fit.ts'
import { loadJobs } from '../../../runner/report/load.ts'
import { renderReport } from '../../../runner/report/render.ts'
import { reportOf, type Report } from '../../../runner/report/report.ts'
import { painter } from '../../../runner/report/terminal.ts'
import { Terminal } from '../../support/terminal.ts'
import { Scratch } from '../support/scratch.ts'
import { syntheticJob } from '../support/synthetic-job.ts'

const widths = [40, 60, 80, 100, 200] as const

const makeJob = (jobs: string, configurations: readonly string[]): string => {
  const dir = path.join(jobs, 'j20250102-030405-abcd')
  mkdirSync(dir, { recursive: true })
  syntheticJob(dir, {
    tasks: 4,
    runs: 2,
    configurations: configurations.map((name) => ({ name, chance: 0.5 })),
    change: (result, index) => (index === 0 ? null : result),
  })
  return dir
}

const reported = async (...configurations: string[]): Promise<Report> => {
  await using scratch = await Scratch.make()
  return reportOf(await loadJobs([makeJob(scratch.path, configurations)]))
}

/** Faults of the boxes in a text: a line of another width, a border that doesn't meet its cells. */
function brokenBoxes(text: string): string[] {
  let bars: number[] = []
  const at = (line: string, chars: RegExp): number[] =>
    [...line.matchAll(chars)].map(({ index }) => index)
  return text.split('\n').filter((line) => {
    if (line.startsWith('┌')) bars = at(line, /[┌┬┐]/g)
    const own = line.startsWith('┌')
      ? /^┌[─┬]+┐$/.test(line)
      : line.startsWith('└')
        ? /^└[─┴]+┘$/.test(line)
        : line.startsWith('├')
          ? /^├[─┼]+┤$/.test(line)
          : line.startsWith('│')
            ? line.endsWith('│')
            : null
    if (own === null) return /[─│┌┐└┘├┤┬┴┼]/.test(line)
    return !own || at(line, /[┌┬┐│├┼┤└┴┘]/g).join() !== bars.join()
  })
}

const heads = (text: string): string[] =>
  (text.split('\n')[1] ?? '')
    .split('│')
    .map((cell) => cell.trim())
    .filter((cell) => cell !== '')

void t.test(
  'a report fits a terminal of any width from 40, and its boxes stay whole',
  async (t) => {
    for (const names of [
      ['one'],
      ['one', 'two'],
      Array.from({ length: 20 }, (_, n) => `one-${n}`),
    ]) {
      const report = await reported(...names)
      const view = { color: false, full: true, all: true }
      const whole = renderReport(report, view)
      t.strictSame(brokenBoxes(whole), [])
      t.ok(whole.split('\n').some((line) => line.length > 100))
      for (let width = 40; width <= 200; width += names.length > 2 ? 40 : 4) {
        const text = renderReport(report, { ...view, width })
        t.strictSame(
          text.split('\n').filter((line) => line.length > width),
          [],
          `${names.length} configurations at ${width}`,
        )
        t.strictSame(brokenBoxes(text), [], `${names.length} configurations at ${width}`)
        t.ok(['task', 'verdict'].every((name) => heads(text).includes(name)))
        t.equal(
          stripVTControlCharacters(renderReport(report, { ...view, width, color: true })),
          text,
          'colour changes nothing but colour',
        )
      }
      t.equal(renderReport(report, { ...view, width: 5000 }), whole, 'wide enough is as without')
    }
  },
)

void t.test('what tells trials apart stays longest, and what is left out is said', async (t) => {
  const shown = async (...names: string[]) => {
    const report = await reported(...names)
    return widths.map((width) => heads(renderReport(report, { color: false, width })).join(' '))
  }
  t.strictSame(await shown('one'), [
    'task run verdict',
    'task run verdict functional cost',
    'task run verdict functional regression cost blocked',
    'task run verdict functional regression cost out tokens steps blocked',
    'task configuration run verdict functional regression cost out tokens steps wall time blocked',
  ])
  t.match((await shown('one', 'two'))[1], /^task configuration run verdict/)
  t.match((await shown('a-long-name-of-one', 'two'))[0], /^task configurat… verdict$/)
  const text = renderReport(await reported('one'), { color: false, width: 80 })
  t.match(
    text,
    /┘\nleft out: configuration · out tokens · steps · wall time; closedbook report\n {2}--format csv or a wider terminal has them\n/,
  )
  t.notMatch(renderReport(await reported('one'), { color: false, width: 200 }), /left out/)
  t.end()
})

void t.test('text is cut before numbers are, the widest first, wide characters too', (t) => {
  const columns = [
    { name: 'name', width: 50, text: true },
    { name: 'why', width: 20, text: true },
    { name: 'count', width: 9, text: false },
  ]
  const frame = { each: 3, once: 1 }
  const fit = (width: number, ...leaveOut: string[]) =>
    fitColumns(columns, { width, leaveOut, frame })
  t.strictSame(fit(89, 'why'), { keep: [0, 1, 2], widths: [50, 20, 9], leftOut: [] })
  t.strictSame(fit(80, 'why'), { keep: [0, 1, 2], widths: [41, 20, 9], leftOut: [] })
  t.strictSame(fit(50, 'why'), { keep: [0, 2], widths: [34, 9], leftOut: ['why'] })
  t.strictSame(fit(50), { keep: [0, 1, 2], widths: [15, 16, 9], leftOut: [] })
  t.strictSame(fit(40, 'name', 'why').keep, [0, 2], 'the first stays')
  const rows = [
    ['名前'.repeat(20), 'x', '1'],
    ['\u{1f600}'.repeat(40), 'a\u0301'.repeat(30), '22'],
    ['e\u0301'.repeat(40), '', '333'],
  ]
  const box = { columns: columns.map(({ name, text }) => ({ name, right: !text })), rows }
  for (const width of widths) {
    const text = boxText(box, { paint: painter(false), width })
    t.ok(text.isWellFormed())
    t.strictSame(
      text.split('\n').filter((line) => cells(line) > width),
      [],
    )
    t.equal(new Set(text.split('\n').map(cells)).size, 1, `whole at ${width}`)
    t.match(text, /│ +333 │/)
  }
  t.end()
})

/** That a terminal gives to these characters. */
const cells = (line: string): number =>
  Array.from(line).reduce(
    (sum, char) => sum + (char === '\u0301' ? 0 : /[名前\u{1f600}]/u.test(char) ? 2 : 1),
    0,
  )

void t.test('lines without a frame are fitted likewise, prose is broken between words', (t) => {
  const columns = ['id', 'task', 'run', 'host'].map((name) => ({ name, text: name === 'task' }))
  const rows = [
    ['t1', 'org/a-task-of-quite-a-long-name', 'run 1', ''],
    ['t2', 'org/b', 'run 1', 'on host'],
  ]
  const fit = (width: number) => fitLines(rows, { columns, leaveOut: ['host', 'run'], width })
  t.strictSame(fit(80), {
    lines: ['t1  org/a-task-of-quite-a-long-name  run 1', 't2  org/b  run 1  on host'],
    leftOut: [],
  })
  t.strictSame(fit(40), {
    lines: ['t1  org/a-task-of-quite…  run 1', 't2  org/b  run 1  on host'],
    leftOut: [],
  })
  t.strictSame(fit(28), {
    lines: ['t1  org/a-task-of-qu…  run 1', 't2  org/b  run 1'],
    leftOut: ['host'],
  })
  t.equal(wrapLine('in 4 min 46 s', 11), 'in 4 min\n  46 s')
  t.equal(wrapLine('  one   two three', 12), '  one   two\n    three')
  t.equal(wrapLine('see /a/path/that/is/copied now', 12), 'see\n  /a/path/that/is/copied\n  now')
  t.equal(wrapLine('\u001b[31mfour four\u001b[0m', 9), '\u001b[31mfour four\u001b[0m')
  t.strictSame(
    [
      { isTTY: true, columns: 80 },
      { isTTY: true, columns: 9 },
      { isTTY: true },
      { columns: 80 },
    ].map(terminalWidth),
    [80, 40, Infinity, Infinity],
  )
  t.end()
})

void t.test('no line is longer than a real terminal of 80 columns', async (t) => {
  await using scratch = await Scratch.make()
  makeJob(scratch.path, ['recorded-solver', 'another-solver-with-quite-a-long-name'])
  const at = `--jobs-dir ${scratch.path} --state-dir ${scratch.path}`
  for (const [args, left] of [
    ['report j2025', /left out: .*wall time/],
    ['compare j2025:recorded-solver j2025:another-solver-with-quite-a-long-name', /left out: /],
    ['ps j2025', /another-solver-with-[a-z-]+…  run 1/],
  ] as const) {
    await using terminal = new Terminal(`${at} ${args} 2>/dev/null`, {
      env: { DATABASE_URL: '' },
      cols: 80,
    })
    await terminal.ended
    const lines = terminal.text.split(/\r?\n/).filter((line) => !/^(before|after) /.test(line))
    t.match(terminal.text, /status 0/)
    t.match(terminal.text, left)
    t.strictSame(
      lines.filter((line) => line.length > 80),
      [],
      args,
    )
    t.strictSame(brokenBoxes(lines.join('\n')), [], args)
  }
})
