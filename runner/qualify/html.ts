/**
 * A qualification as one self-contained page for a reviewer: no script, no link elsewhere. Whatever comes from a task is
 * escaped. Every figure is one of qualification.json.
 */
import { durationText, plainLine } from '../report/terminal.ts'
import type { Finding, Qualification, QualifiedTest, Spread, Times } from './document.ts'

export const escapeHtml = (text: string): string =>
  plainLine(text)
    .replaceAll('&', '&amp;')
    .replaceAll('<', '&lt;')
    .replaceAll('>', '&gt;')
    .replaceAll('"', '&quot;')
    .replaceAll("'", '&#39;')

const style = `
:root { color-scheme: light dark; --line: #8884; --good: #1a7f37; --bad: #cf222e; --warn: #9a6700; }
@media (prefers-color-scheme: dark) { :root { --good: #3fb950; --bad: #f85149; --warn: #d29922; } }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
table { border-collapse: collapse; width: 100%; } th, td { text-align: left; padding: .25rem .6rem; border-bottom: 1px solid var(--line); vertical-align: top; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; } code { font-size: .9em; overflow-wrap: anywhere; }
.good { color: var(--good); } .bad { color: var(--bad); } .warn { color: var(--warn); }
.finding { border-left: 4px solid var(--warn); padding: .1rem 1rem; margin: 1rem 0; } .finding.error { border-color: var(--bad); }
.dots span { font-family: ui-monospace, monospace; margin-right: .3rem; } small { opacity: .75; }
`

export function qualificationPage(document: Qualification, digest: string): string {
  const { task, qualified, findings, repeats, expected, tests } = document
  const state = qualified
    ? '<span class="good">qualified</span>'
    : '<span class="bad">not qualified</span>'
  const flaky = tests.filter((test) => test.flaky).length
  return `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Qualification of ${escapeHtml(task)}</title><style>${style}</style></head><body>
<h1>${escapeHtml(task)}: ${state}</h1>
<p>${repeats} repeats each of the no-op, which changes nothing, and the oracle, which applies the reference solution.
${expected.functional.length} functional and ${expected.regression.length} regression tests; ${flaky} flaky. ${escapeHtml(document.endedAt)}.</p>
<h2>Findings</h2>
${findings.length === 0 ? '<p class="good">None.</p>' : findings.map(findingBlock).join('\n')}
<h2>Trials</h2>${trials(document)}
<h2>Tests</h2>
<p><small>The no-op must fail every functional test and pass every regression test; the oracle must pass all. One sign a repeat.</small></p>
${testTable(tests)}
<h2>Time</h2>${times('no-op', document.times.noop)}${times('oracle', document.times.oracle)}
<h2>Proposed limits</h2>${limits(document)}
<h2>What this is bound to</h2>${bound(document, digest)}
</body></html>
`
}

function findingBlock({ code, severity, message, advice, tests }: Finding): string {
  const list =
    tests.length === 0
      ? ''
      : `<ul>${tests.map((test) => `<li><code>${escapeHtml(test)}</code></li>`).join('')}</ul>`
  return `<div class="finding ${severity}"><p><b class="${severity === 'error' ? 'bad' : 'warn'}">${escapeHtml(code)}</b> ${escapeHtml(message)}</p>${list}<p>What to do: ${escapeHtml(advice)}</p></div>`
}

const row = (cells: readonly string[], tag = 'td'): string =>
  `<tr>${cells.map((cell) => `<${tag}>${cell}</${tag}>`).join('')}</tr>`
const table = (head: readonly string[], rows: readonly string[]): string =>
  `<table><thead>${row(head, 'th')}</thead><tbody>${rows.join('')}</tbody></table>`

const trials = ({ trials: all }: Qualification): string =>
  table(
    ['agent', 'repeat', 'verdict', 'reason', 'wall time', 'trial', 'result.json'],
    all.map(({ agent, run, verdict, reason, wallTimeMs, trial, result }) =>
      row([
        agent === 'noop' ? 'no-op' : agent,
        String(run),
        verdict,
        escapeHtml(`${reason.code}: ${reason.message}`),
        durationText(wallTimeMs),
        `<code>${escapeHtml(trial)}</code>`,
        `<code>${result.slice(0, 19)}</code>`,
      ]),
    ),
  )

const signs: Readonly<Record<string, string>> = {
  passed: '<span class="good" title="passed">✓</span>',
  failed: '<span class="bad" title="failed">✗</span>',
  error: '<span class="bad" title="error">E</span>',
  skipped: '<span class="warn" title="skipped">s</span>',
  missing: '<span class="warn" title="missing">–</span>',
}

function testTable(tests: readonly QualifiedTest[]): string {
  const dots = (outcomes: readonly string[]): string =>
    `<span class="dots">${outcomes.map((one) => signs[one] ?? one).join('')}</span>`
  return table(
    ['suite', 'test', 'no-op', 'oracle', ''],
    tests.map(({ suite, id, noop, oracle, flaky }) =>
      row([
        suite,
        `<code>${escapeHtml(id)}</code>`,
        dots(noop),
        dots(oracle),
        flaky ? '<b class="bad">flaky</b>' : '',
      ]),
    ),
  )
}

function times(agent: string, all: Times | null): string {
  if (all === null) return ''
  const line = (name: string, { min, median, max }: Spread): string =>
    row([name, durationText(min), durationText(median), durationText(max)])
  return table(
    [agent, 'min', 'median', 'max'],
    [
      ...Object.entries(all.suites).map(([name, one]) => line(`${name} suite`, one)),
      ...Object.entries(all.phases).map(([name, one]) => line(`phase ${name}`, one)),
      line('whole trial', all.total),
    ],
  )
}

const limits = ({ limits: all }: Qualification): string =>
  table(
    ['key', 'now', 'proposed', 'because'],
    all.map(({ key, currentSeconds, proposedSeconds, because }) =>
      row([
        `<code>${escapeHtml(key)}</code>`,
        currentSeconds === null ? 'none' : `${currentSeconds} s`,
        `${proposedSeconds} s`,
        escapeHtml(because),
      ]),
    ),
  )

function bound(document: Qualification, digest: string): string {
  const { digests, host, hardware, closedbookVersion, evidence } = document
  const gpus = host.gpus.length === 0 ? '' : `, ${host.gpus.join(', ')}`
  const facts: [string, string][] = [
    ['this document', digest],
    ['task', digests.task],
    ['tests', digests.tests],
    ['instruction', digests.instruction],
    ['image', digests.image],
    ['recipe of the image', digests.recipe ?? 'none: the image is named by its digest'],
    ['hardware', hardware],
    [
      'host',
      `${host.name}, ${host.cpus} CPUs, kernel ${host.kernel}, engine ${host.engine}${gpus}`,
    ],
    ['closedbook', closedbookVersion],
    ['evidence', evidence],
  ]
  return table(
    ['what', ''],
    facts.map(([name, value]) => row([name, `<code>${escapeHtml(value)}</code>`])),
  )
}
