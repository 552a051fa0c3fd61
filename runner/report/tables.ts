/**
 * The tables of a report, as cells: what stands in which column is decided here, once, for terminal, Markdown and HTML. A
 * cell may carry a tone, a value to sort by, and the file that it is about.
 */
import { targetOf, type BlockedRow } from './blocked.ts'
import type { FailureRow } from './failures.ts'
import type { Amounts, Report, TrialRow } from './report.ts'
import type { PassRate } from '../statistics.ts'
import { countText } from './terminal.ts'
import {
  costText,
  countOr,
  durationOr,
  rangeText,
  rateText,
  suiteText,
  verdictWords,
} from './words.ts'

export type Tone = 'good' | 'bad' | 'warn' | 'dim'

export interface Cell {
  readonly text: string
  readonly tone?: Tone
  readonly sort?: number | string
  /** Absolute path. */
  readonly file?: string
}

export interface ReportTable {
  readonly title: string
  readonly columns: readonly { readonly name: string; readonly right?: boolean }[]
  readonly rows: readonly (readonly Cell[])[]
  /** Columns that a narrow terminal does without, least important first; what isn't named stays. */
  readonly leaveOut?: readonly string[]
}

const left = (name: string) => ({ name })
const right = (name: string) => ({ name, right: true })
const plain = (text: string): Cell => ({ text })
const number = (value: number | null, text: string): Cell => ({ text, sort: value ?? -1 })
/** One configuration, the same in every row, goes first; several tell rows apart, and stay. */
export const leavingOut = (
  configurations: Iterable<string>,
  ...names: readonly string[]
): readonly string[] => (new Set(configurations).size > 1 ? names : ['configuration', ...names])
const counted = (value: number | null): Cell => number(value, countOr(value))

const verdictTone = ({ verdict }: TrialRow): Tone => {
  switch (verdict) {
    case 'passed':
      return 'good'
    case 'failed':
      return 'bad'
    case 'void':
      return 'warn'
    case null:
      return 'dim'
  }
}

export function trialTable(report: Pick<Report, 'trials' | 'configurations'>): ReportTable {
  const estimated = estimatedOnes(report)
  return {
    title: 'Trials',
    columns: [
      left('task'),
      left('configuration'),
      right('run'),
      left('verdict'),
      right('functional'),
      right('regression'),
      right('cost'),
      right('out tokens'),
      right('steps'),
      right('wall time'),
      right('blocked'),
    ],
    leaveOut: leavingOut(
      report.configurations.map(({ name }) => name),
      ...['wall time', 'steps', 'out tokens', 'blocked', 'regression', 'cost', 'functional', 'run'],
    ),
    rows: report.trials.map((row) => [
      plain(row.task),
      plain(row.configuration),
      number(row.run, String(row.run)),
      {
        text: verdictWords(row),
        tone: verdictTone(row),
        ...(row.evidence !== null && { file: row.evidence }),
      },
      number(row.functional?.passed ?? null, suiteText(row.functional)),
      number(row.regression?.passed ?? null, suiteText(row.regression)),
      number(row.costUsd, costText(row.costUsd, estimated.has(row.configuration))),
      counted(row.outputTokens),
      counted(row.steps),
      number(row.wallTimeMs, durationOr(row.wallTimeMs)),
      counted(row.blockedAttempts),
    ]),
  }
}

const rateColumns = [
  right('pass@1'),
  right('95 % over runs (t)'),
  right('95 % clustered by task (t)'),
  right('passed'),
] as const
const amountColumns = [
  right('cost'),
  right('cost, mean'),
  right('cost, median'),
  right('out tokens, mean'),
  right('out tokens, median'),
  right('steps, mean'),
  right('wall time, mean'),
  right('wall time, median'),
] as const

const rateCells = (rate: PassRate): Cell[] => [
  {
    ...number(rate.passAt1 ?? rate.bounds?.lower ?? null, rateText(rate)),
    ...(rate.passAt1 === null && { tone: 'warn' }),
  },
  number(rate.overRuns?.low ?? null, rangeText(rate.overRuns)),
  number(rate.byTask?.low ?? null, rangeText(rate.byTask)),
  number(
    rate.passed,
    rate.scored < rate.planned
      ? `${rate.passed} of ${rate.planned}, ${rate.planned - rate.scored} unscored`
      : `${rate.passed} of ${rate.planned}`,
  ),
]

const amountCells = (
  { costUsd, outputTokens, steps, wallTimeMs }: Amounts,
  estimate: boolean,
): Cell[] => [
  number(costUsd.total, costText(costUsd.total, estimate)),
  number(costUsd.perScoredTrial, costText(costUsd.perScoredTrial, estimate)),
  number(costUsd.median, costText(costUsd.median, estimate)),
  counted(outputTokens.perScoredTrial),
  counted(outputTokens.median),
  counted(steps.perScoredTrial),
  number(wallTimeMs.perScoredTrial, durationOr(wallTimeMs.perScoredTrial)),
  number(wallTimeMs.median, durationOr(wallTimeMs.median)),
]

export const configurationTable = ({ configurations }: Report): ReportTable => ({
  title: 'Configurations',
  columns: [
    left('configuration'),
    left('model'),
    left('harness'),
    ...rateColumns,
    ...amountColumns,
  ],
  rows: configurations.map((one) => [
    plain(one.name),
    plain(one.model ?? '-'),
    plain(one.harness),
    ...rateCells(one.rate),
    ...amountCells(one, one.estimate),
  ]),
})

export const groupTable = (
  { configurations }: Report,
  by: 'byArea' | 'byHardware' | 'byTask',
): ReportTable => {
  const name = { byArea: 'area', byHardware: 'hardware', byTask: 'task' }[by]
  return {
    title: `By ${name}`,
    columns: [left(name), left('configuration'), ...rateColumns, ...amountColumns],
    leaveOut: leavingOut(
      configurations.map((one) => one.name),
      ...[...amountColumns.toReversed(), ...rateColumns.slice(1).toReversed()].map(
        (column) => column.name,
      ),
    ),
    rows: configurations.flatMap((one) =>
      one[by].map((group) => [
        plain(group.name),
        plain(one.name),
        ...rateCells(group),
        ...amountCells(group, one.estimate),
      ]),
    ),
  }
}

/** `P` passed, `F` failed, `v` void, `?` no usable result; one letter a run. */
export function gridTable({ trials, tasks, configurations }: Report): ReportTable {
  const cells = Map.groupBy(trials, (row) => JSON.stringify([row.task, row.configuration]))
  const seen = new Map(tasks.map((task) => [task.name, task]))
  return {
    title: 'Tasks x runs (P passed, F failed, v void, ? no usable result)',
    columns: [
      left('task'),
      left('area'),
      left('hardware'),
      ...configurations.map(({ name }) => left(name)),
    ],
    leaveOut: [
      ...['hardware', 'area'],
      ...configurations
        .slice(1)
        .toReversed()
        .map(({ name }) => name),
    ],
    rows: [...seen.values()].map((task) => [
      plain(task.name),
      plain(task.area),
      plain(task.hardware),
      ...configurations.map(({ name }): Cell => {
        const own = (cells.get(JSON.stringify([task.name, name])) ?? []).toSorted(
          (a, b) => a.run - b.run,
        )
        const passed = own.filter(({ verdict }) => verdict === 'passed').length
        const scored = own.every(({ verdict }) => verdict === 'passed' || verdict === 'failed')
        return {
          text: own.length === 0 ? '-' : `${own.map(runMark).join('')} ${passed}/${own.length}`,
          sort: own.length === 0 ? -1 : passed / own.length,
          tone: !scored ? 'warn' : passed === own.length ? 'good' : passed === 0 ? 'bad' : 'dim',
        }
      }),
    ]),
  }
}

export const runMark = ({ verdict }: Pick<TrialRow, 'verdict'>): string => {
  switch (verdict) {
    case 'passed':
      return 'P'
    case 'failed':
      return 'F'
    case 'void':
      return 'v'
    case null:
      return '?'
  }
}

export const failureTable = (failures: readonly FailureRow[]): ReportTable => ({
  title: 'Failed, void and missing trials by blame and reason',
  columns: [
    left('configuration'),
    left('verdict'),
    left('blame'),
    left('reason'),
    right('trials'),
    right('tasks'),
    left('for example'),
  ],
  leaveOut: leavingOut(
    failures.map((row) => row.configuration),
    ...['tasks', 'blame', 'for example'],
  ),
  rows: failures.map((row) => [
    plain(row.configuration),
    { text: row.verdict ?? 'no result', tone: row.verdict === 'failed' ? 'bad' : 'warn' },
    plain(row.blame ?? '-'),
    plain(row.code),
    counted(row.count),
    counted(row.tasks.length),
    plain(row.message),
  ]),
})

export const blockedReasonTable = ({ configurations }: Report): ReportTable => ({
  title: 'Blocked attempts by reason',
  columns: [left('configuration'), left('reason'), right('attempts'), right('trials')],
  leaveOut: ['trials'],
  rows: configurations.flatMap(({ name, blocked }) =>
    blocked.map((row) => [plain(name), plain(row.reason), counted(row.count), counted(row.trials)]),
  ),
})

export const blockedTable = (rows: readonly BlockedRow[]): ReportTable => ({
  title: 'Blocked attempts by target',
  columns: [
    left('host or address'),
    right('port'),
    left('protocol'),
    left('reason'),
    right('count'),
    right('trials'),
  ],
  leaveOut: ['trials', 'protocol', 'port'],
  rows: rows.map((row) => [
    plain(targetOf(row)),
    number(row.port, row.port === null ? '-' : String(row.port)),
    plain(row.protocol),
    plain(row.reason),
    counted(row.count),
    counted(row.trials.length),
  ]),
})

export const taskTable = ({ tasks }: Report): ReportTable | null =>
  tasks.every(({ qualification }) => qualification === null)
    ? null
    : {
        title: 'Qualification and review of the tasks',
        columns: [left('task'), left('qualified'), left('review'), left('by')],
        leaveOut: ['by', 'review'],
        rows: tasks.map(({ name, qualification }) => [
          plain(name),
          qualification === null
            ? { text: 'unknown', tone: 'dim' as const }
            : qualification.qualified
              ? { text: qualification.at ?? 'yes', tone: 'good' as const }
              : { text: 'no', tone: 'warn' as const },
          plain(qualification?.review?.decision ?? 'none'),
          plain(qualification?.review?.by ?? '-'),
        ]),
      }

export const unscoredTable = ({ unscored }: Report): ReportTable => ({
  title: 'Trials without a score',
  columns: [left('task'), left('configuration'), right('run'), left('trial'), left('why')],
  rows: unscored.map((row) => [
    plain(row.task),
    plain(row.configuration),
    number(row.run, countText(row.run)),
    plain(row.trial),
    { text: row.why, tone: 'warn' },
  ]),
})

const estimatedOnes = ({ configurations }: Pick<Report, 'configurations'>): ReadonlySet<string> =>
  new Set(configurations.filter(({ estimate }) => estimate).map(({ name }) => name))
