/** A qualification for a terminal: the verdict first, then what to do, then what was seen. */
import Table from 'cli-table3'
import { durationText, painter, plainLine, type Paint } from '../report/terminal.ts'
import type { Finding, Qualification, Spread, Times } from './document.ts'

export function renderQualification(
  document: Qualification,
  { color }: { readonly color: boolean },
): string {
  const paint = painter(color)
  const { task, qualified, repeats, expected, findings } = document
  const errors = findings.filter(({ severity }) => severity === 'error')
  const head = qualified
    ? `${paint('green', 'qualified')}  ${paint('bold', plainLine(task))}`
    : `${paint('red', 'NOT QUALIFIED')}  ${paint('bold', plainLine(task))}: ${errors.length === 1 ? 'one reason' : `${errors.length} reasons`}`
  const counts = `${expected.functional.length} functional and ${expected.regression.length} regression tests, ${repeats} repeats each of no-op and oracle`
  const parts = [`${head}\n${counts}`, ...findings.map((one) => findingText(one, paint))]
  parts.push(trialTable(document, paint), timeTable(document, paint), limitLines(document, paint))
  parts.push(boundLines(document))
  return `${parts.filter((part) => part !== '').join('\n\n')}\n`
}

const shownTests = 12

function findingText({ code, severity, message, advice, tests }: Finding, paint: Paint): string {
  const sign = severity === 'error' ? paint('red', 'error') : paint('yellow', 'warning')
  const lines = [`${sign} ${paint('bold', code)}: ${plainLine(message)}`]
  for (const test of tests.slice(0, shownTests)) lines.push(`    ${plainLine(test)}`)
  if (tests.length > shownTests) lines.push(`    and ${tests.length - shownTests} more`)
  lines.push(`  what to do: ${plainLine(advice)}`)
  return lines.join('\n')
}

const grid = (head: readonly string[], paint: Paint, right: readonly number[]) =>
  new Table({
    head: head.map((text) => paint('bold', text)),
    colAligns: head.map((_, index) => (right.includes(index) ? 'right' : 'left')),
    style: { head: [], border: [], compact: true },
  })

function trialTable({ trials, tests }: Qualification, paint: Paint): string {
  const table = grid(
    ['agent', 'repeat', 'verdict', 'functional', 'regression', 'wall time'],
    paint,
    [1, 5],
  )
  for (const { agent, run, verdict, wallTimeMs, reason } of trials) {
    const share = (suite: string): string => {
      const own = tests.filter((test) => test.suite === suite && test[agent].length > 0)
      const passed = own.filter((test) => test[agent][run - 1] === 'passed').length
      return `${passed}/${own.length}`
    }
    table.push([
      agent === 'noop' ? 'no-op' : agent,
      run,
      verdict === 'void' ? `void (${plainLine(reason.code)})` : verdict,
      share('functional'),
      share('regression'),
      durationText(wallTimeMs),
    ])
  }
  return table.toString()
}

function timeTable({ times }: Qualification, paint: Paint): string {
  const table = grid(
    ['time', 'no-op min', 'median', 'max', 'oracle min', 'median', 'max'],
    paint,
    [1, 2, 3, 4, 5, 6],
  )
  const cells = (one: Spread | undefined): string[] =>
    one === undefined ? ['-', '-', '-'] : [one.min, one.median, one.max].map(durationText)
  const row = (name: string, pick: (times: Times) => Spread | undefined) =>
    table.push([
      name,
      ...cells(times.noop === null ? undefined : pick(times.noop)),
      ...cells(times.oracle === null ? undefined : pick(times.oracle)),
    ])
  for (const suite of ['functional', 'regression'])
    row(`${suite} suite`, ({ suites }) => suites[suite])
  for (const phase of Object.keys(times.oracle?.phases ?? times.noop?.phases ?? {}))
    row(`phase ${phase}`, ({ phases }) => phases[phase])
  row('whole trial', ({ total }) => total)
  return table.toString()
}

function limitLines({ limits }: Qualification, paint: Paint): string {
  if (limits.length === 0) return ''
  const lines = limits.map(
    ({ key, currentSeconds, proposedSeconds, because }) =>
      `  ${key} = ${proposedSeconds}  (now ${currentSeconds === null ? 'none' : currentSeconds}; ${because})`,
  )
  return `${paint('bold', 'Proposed limits')}\n${lines.join('\n')}`
}

function boundLines({
  digests,
  host,
  hardware,
  closedbookVersion,
  evidence,
}: Qualification): string {
  const gpus = host.gpus.length === 0 ? '' : `, ${host.gpus.join(', ')}`
  return [
    `bound to  task ${digests.task}`,
    `          tests ${digests.tests}`,
    `          image ${digests.image}`,
    `on        ${hardware}: ${plainLine(host.name)}, ${host.cpus} CPUs, kernel ${plainLine(host.kernel)}, engine ${plainLine(host.engine)}${gpus}`,
    `by        closedbook ${closedbookVersion}; evidence ${evidence}`,
  ].join('\n')
}
