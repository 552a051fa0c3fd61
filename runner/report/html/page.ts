/**
 * One page that holds all of a report and asks nobody for anything: style, script and charts are in it, and its policy
 * (by their hashes) lets nothing else run or load, whatever an agent managed to have written into a message.
 */
import { createHash } from 'node:crypto'
import type { ConfigurationReport, Report } from '../report.ts'
import {
  blockedReasonTable,
  blockedTable,
  configurationTable,
  failureTable,
  groupTable,
  taskTable,
  trialTable,
  unscoredTable,
  type ReportTable,
} from '../tables.ts'
import { durationText, countText } from '../terminal.ts'
import { costText, countOr, durationOr, percent, rangeText, rateText } from '../words.ts'
import { barChart } from './bar-chart.ts'
import { gridMarkup } from './grid.ts'
import { html, Markup, type Part } from './markup.ts'
import { costChart, rateChart } from './score-charts.ts'
import { script } from './script.ts'
import { spreadChart } from './spread-chart.ts'
import { style } from './style.ts'
import { tableMarkup } from './table.ts'

const hashOf = (text: string): string =>
  `'sha256-${createHash('sha256').update(text).digest('base64')}'`

/** Links to evidence are relative to `base`, the directory that the page is kept in. */
export function reportPage(report: Report, { base }: { readonly base: string }): string {
  const policy = `default-src 'none'; style-src ${hashOf(style)}; script-src ${hashOf(script)}; base-uri 'none'; form-action 'none'`
  const name = report.name === '' ? 'Report' : report.name
  const sections = sectionsOf(report, base)
  const page = html`<!doctype html>
    <html lang="en">
      <head>
        <meta charset="utf-8" />
        <meta http-equiv="Content-Security-Policy" content="${policy}" />
        <meta name="viewport" content="width=device-width, initial-scale=1" />
        <meta name="referrer" content="no-referrer" />
        <title>${name} · Closedbook report</title>
        ${new Markup(`<style>${style}</style>`)}
      </head>
      <body>
        <a class="skip" href="#main">Skip to the figures</a>
        <header class="page">
          <button class="theme" id="theme" type="button" hidden>Light or dark</button>
          <h1>${name}</h1>
          ${jobsMarkup(report)}
          <nav aria-label="Parts of the report">
            <ul>
              ${sections.map(({ id, title }) => html`<li><a href="#${id}">${title}</a></li>`)}
            </ul>
          </nav>
        </header>
        <main id="main">
          ${noticesMarkup(report)}
          <div class="cards">${report.configurations.map(card)}</div>
          ${sections.map(
            ({ id, title, body }) =>
              html`<section aria-labelledby="${id}">
                <h2 id="${id}">${title}</h2>
                ${body}
              </section> `,
          )}
        </main>
        <footer>
          <p>
            ${report.planned} planned trials, ${report.scored} scored. pass@1 is verifier passes
            over planned trials. Every figure follows from the trials’ result.json files:
            <code>closedbook report --from-files</code> makes them again.
          </p>
        </footer>
        ${new Markup(`<script>${script}</script>`)}
      </body>
    </html> `
  return page.text
}

function jobsMarkup({ jobs }: Report): Part {
  const lines = jobs.map(
    ({ job, createdAt, closedbookVersion }) =>
      html`<p class="soft">Job ${job} · ${createdAt} · Closedbook ${closedbookVersion}</p>`,
  )
  return jobs.length > 4
    ? html`<details>
        <summary>${jobs.length} jobs</summary>
        ${lines}
      </details>`
    : lines
}

function noticesMarkup({ notices }: Report): Part {
  const notes = notices.filter(({ level }) => level === 'note')
  const alarms = notices.filter(({ level }) => level === 'alarm')
  return [
    alarms.map(
      ({ text }) => html`<p class="alarm" role="note"><strong>Attention:</strong> ${text}</p>`,
    ),
    notes.length > 0 &&
      html`<ul class="notes">
        ${notes.map(({ text }) => html`<li>${text}</li>`)}
      </ul>`,
  ]
}

function card(one: ConfigurationReport): Markup {
  const { rate } = one
  const facts: readonly (readonly [string, string])[] = [
    ['passed', `${rate.passed} of ${rate.planned}`],
    ['over runs (t)', rangeText(rate.overRuns)],
    ['by task (t)', rangeText(rate.byTask)],
    ['cost', costText(one.costUsd.total, one.estimate)],
    ['cost a trial', costText(one.costUsd.perScoredTrial, one.estimate)],
    ['out tokens a trial', countOr(one.outputTokens.perScoredTrial)],
    ['steps a trial', countOr(one.steps.perScoredTrial)],
    ['wall time a trial', durationOr(one.wallTimeMs.perScoredTrial)],
  ]
  return html`<section class="card">
    <h3>${one.name}</h3>
    <div class="soft">
      ${[one.model, one.harness === one.name ? null : one.harness].filter((text) => text !== null).join(' · ')}
    </div>
    <div class="rate${rate.passAt1 === null ? ' bound' : ''}">
      ${rate.passAt1 === null ? rateText(rate) : percent(rate.passAt1)}
    </div>
    <div class="soft">pass@1${rate.passAt1 === null ? ', not all trials are scored' : ''}</div>
    <dl>
      ${facts.map(
        ([label, value]) =>
          html`<dt>${label}</dt>
            <dd>${value}</dd>`,
      )}
    </dl>
  </section>`
}

interface Section {
  readonly id: string
  readonly title: string
  readonly body: Part
}

function sectionsOf(report: Report, base: string): Section[] {
  const { configurations: all, trials } = report
  const names = all.map(({ name }) => name)
  const table = (one: ReportTable | null): Part =>
    one !== null && one.rows.length > 0 && tableMarkup(one, { base })
  const folded = (title: string, one: ReportTable): Part =>
    one.rows.length > 0 &&
    html`<details>
      <summary>${title}</summary>
      ${tableMarkup(one, { base })}
    </details>`
  const qualified = taskTable(report)
  const unitMs = roundUnitMs(trials)
  const sections: (Section | false)[] = [
    {
      id: 'scores',
      title: 'Scores',
      body: [rateChart(all), table(configurationTable(report))],
    },
    {
      id: 'score-cost',
      title: 'Score against cost',
      body: costChart(all) ?? html`<p>Nothing was spent.</p>`,
    },
    {
      id: 'tasks',
      title: 'Tasks and runs',
      body: [gridMarkup(report, base), folded('Figures by task', groupTable(report, 'byTask'))],
    },
    {
      id: 'groups',
      title: 'By area and hardware',
      body: [table(groupTable(report, 'byArea')), table(groupTable(report, 'byHardware'))],
    },
    {
      id: 'spread',
      title: 'Wall time and output tokens',
      body: [
        html`<h3>Wall time</h3>`,
        spreadChart(report, {
          id: 'wall-time',
          title: 'Wall time of scored trials',
          label: 'wall time of a trial',
          value: (row) => (row.wallTimeMs === null ? null : row.wallTimeMs / unitMs),
          text: (value) => durationText(value * unitMs),
        }) ?? html`<p>No scored trial.</p>`,
        html`<h3>Output tokens</h3>`,
        spreadChart(report, {
          id: 'output-tokens',
          title: 'Output tokens of scored trials',
          label: 'output tokens of a trial',
          value: (row) => row.outputTokens,
          text: (value) => countText(Math.round(value)),
        }) ?? html`<p>No tokens.</p>`,
      ],
    },
    report.failures.length > 0 && {
      id: 'failures',
      title: 'Failures by reason',
      body: [
        barChart(
          report.failures.map(({ code, blame, verdict, ...row }) => ({
            ...row,
            reason: `${code} (${verdict === 'void' ? 'void, ' : ''}${blame ?? 'no result'})`,
          })),
          names,
          { id: 'reasons', title: 'Trials that did not pass, by reason', label: 'trials' },
        ),
        table(failureTable(report.failures)),
        table(unscoredTable(report)),
      ],
    },
    {
      id: 'blocked',
      title: 'Blocked attempts',
      body: [
        barChart(
          all.flatMap(({ name, blocked }) =>
            blocked.map((row) => ({ ...row, configuration: name })),
          ),
          names,
          { id: 'blocked-reasons', title: 'Blocked attempts by reason', label: 'attempts' },
        ) ?? html`<p>None.</p>`,
        table(blockedReasonTable(report)),
        table(blockedTable(report.blocked.slice(0, 500))),
      ],
    },
    qualified !== null && {
      id: 'qualification',
      title: 'Qualification and review',
      body: table(qualified),
    },
    { id: 'all-trials', title: 'Trials', body: trialsMarkup(report, base) },
  ]
  return sections.filter(
    (one) => one !== false && (trials.length > 0 || one.id === 'scores'),
  ) as Section[]
}

/** Marks of an axis of time stand at whole hours, minutes or seconds. */
function roundUnitMs(trials: Report['trials']): number {
  const most = trials.reduce((so, { wallTimeMs }) => Math.max(so, wallTimeMs ?? 0), 0)
  return most > 7_200_000 ? 3_600_000 : most > 120_000 ? 60_000 : 1000
}

const trialsMarkup = (report: Report, base: string): Part => [
  html`<div class="tools">
    <label
      >Filter <input id="filter" type="search" placeholder="task, configuration, reason" /></label
    ><label
      >Verdict
      <select id="verdict">
        <option value="">all</option>
        <option value="passed">passed</option>
        <option value="failed">failed</option>
        <option value="void">void</option>
        <option value="none">no result</option>
      </select></label
    ><output id="told" aria-live="polite"></output>
  </div>`,
  tableMarkup(trialTable(report), {
    base,
    id: 'trials',
    rowVerdict: (index) => report.trials[index]?.verdict ?? 'none',
  }),
]
