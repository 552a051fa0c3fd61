/** Tasks x runs: one square a trial, with its letter, so that colour is never the only sign; a link to its evidence. */
import type { Report, TrialRow } from '../report.ts'
import { runMark } from '../tables.ts'
import { html, hrefTo, type Markup } from './markup.ts'
import { verdictWords } from '../words.ts'

export function gridMarkup({ tasks, trials, configurations }: Report, base: string): Markup {
  const byPlace = Map.groupBy(trials, (row) => JSON.stringify([row.task, row.configuration]))
  const runsOf = (name: string): number[] =>
    [...new Set(trials.filter((row) => row.configuration === name).map(({ run }) => run))].toSorted(
      (a, b) => a - b,
    )
  const columns = configurations.map(({ name }) => ({ name, runs: runsOf(name) }))
  const names = new Map(tasks.map((task) => [task.name, task]))
  const rows = [...names.values()].map((task) => {
    const cells = columns.map(({ name, runs }) => {
      const own = new Map(
        (byPlace.get(JSON.stringify([task.name, name])) ?? []).map((row) => [row.run, row]),
      )
      return runs.map((run, index) => runMarkup(own.get(run), run, index === 0, base))
    })
    return html`<tr>
      <th scope="row">${task.name}</th>
      <td>${task.area}</td>
      <td>${task.hardware}</td>
      ${cells}
    </tr> `
  })
  return html`<div class="scroll" role="region" aria-label="Tasks and runs" tabindex="0">
    <table class="grid">
      <caption>
        P passed, F failed, v void, ? no usable result. Each is a link to the evidence of its trial.
      </caption>
      <thead>
        <tr>
          <th scope="col" rowspan="2">task</th>
          <th scope="col" rowspan="2">area</th>
          <th scope="col" rowspan="2">hardware</th>
          ${columns.map(({ name, runs }) => html`<th scope="colgroup" colspan="${runs.length}" class="edge">${name}</th>`)}
        </tr>
        <tr>
          ${columns.map(({ runs }) => runs.map((run, index) => html`<th scope="col" ${index === 0 ? html` class="edge"` : ''}>${run}</th>`))}
        </tr>
      </thead>
      <tbody>
        ${rows}
      </tbody>
    </table>
  </div>`
}

function runMarkup(row: TrialRow | undefined, run: number, first: boolean, base: string): Markup {
  const edge = first ? ' edge' : ''
  if (row === undefined)
    return html`<td class="run x${edge}"><span title="not planned">·</span></td>`
  const mark = runMark(row)
  const name = mark === '?' ? 'q' : mark
  const message = row.unusable ?? row.reason?.message
  const told = `run ${run}: ${verdictWords(row)}${message === undefined ? '' : `, ${message}`}`
  return row.evidence === null
    ? html`<td class="run ${name}${edge}"><span title="${told}">${mark}</span></td>`
    : html`<td class="run ${name}${edge}">
        <a href="${hrefTo(row.evidence, base)}" title="${told}">${mark}</a>
      </td>`
}
