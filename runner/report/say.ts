/** The notices that follow from a report's figures: loud about what is missing, plain about what qualifies a figure. */
import { alarm, noted, type Notice } from './notices.ts'
import type { Report } from './report.ts'

export function noticesOf(report: Omit<Report, 'notices'>): Notice[] {
  return [
    ...incomplete(report),
    ...unusable(report),
    ...tasks(report),
    ...configurations(report),
    ...assisted(report),
    ...remarks(report),
    ...assumption(report),
  ]
}

function incomplete({ complete, planned, scored, unscored }: Omit<Report, 'notices'>): Notice[] {
  if (planned === 0)
    return [alarm('nothing_planned', 'NOTHING TO REPORT: no trial is planned or found.')]
  if (complete) return []
  const voids = unscored.filter(({ why }) => why.startsWith('void')).length
  const missing = unscored.filter(({ why }) => why === 'no result yet').length
  const broken = unscored.length - voids - missing
  const parts = [
    voids > 0 ? `${voids} void` : '',
    missing > 0 ? `${missing} without a result` : '',
    broken > 0 ? `${broken} with a result that can't be used` : '',
  ].filter((part) => part !== '')
  return [
    alarm(
      'not_complete',
      `NOT COMPLETE: ${scored} of ${planned} planned trials are scored (${parts.join(', ')}), so pass@1 is given as bounds only.`,
    ),
  ]
}

function unusable({ trials }: Omit<Report, 'notices'>): Notice[] {
  const rows = trials.filter((row) => row.unusable !== null)
  const shown = rows.slice(0, 5).map((row) => row.unusable)
  const rest = rows.length - shown.length
  return rows.length === 0
    ? []
    : [
        alarm(
          'result_unusable',
          `${rows.length} ${rows.length === 1 ? 'result is' : 'results are'} not counted: ${shown.join('; ')}${rest > 0 ? `; and ${rest} more` : ''}`,
        ),
      ]
}

function tasks({ tasks: all, configurations: tried }: Omit<Report, 'notices'>): Notice[] {
  // A no-op, an oracle or a script is how a task is qualified.
  const scored = tried.some(({ model }) => model !== null)
  const online = all.filter(({ network }) => network !== null)
  const unqualified = all.filter(
    ({ qualification }) => scored && qualification?.qualified === false,
  )
  const excluded = all.filter(({ qualification }) => qualification?.review?.decision === 'exclude')
  const twice = [...Map.groupBy(all, ({ name }) => name)].filter(([, own]) => own.length > 1)
  return [
    ...(online.length === 0
      ? []
      : [
          noted(
            'network_not_given',
            `${online.length} of ${all.length} tasks ask for a network (${[...new Set(online.map(({ network }) => network?.asked))].join(', ')}) and were tried without it, because the job says so: ${names(online)}`,
          ),
        ]),
    ...(unqualified.length === 0
      ? []
      : [
          alarm(
            'not_qualified',
            `${unqualified.length} of ${all.length} tasks are not qualified: ${names(unqualified)}`,
          ),
        ]),
    ...(excluded.length === 0
      ? []
      : [
          alarm(
            'excluded',
            `a reviewer excluded ${names(excluded)}, and ${excluded.length === 1 ? 'it is' : 'they are'} counted here`,
          ),
        ]),
    ...(twice.length === 0
      ? []
      : [
          alarm(
            'task_versions',
            `${twice.map(([name]) => name).join(', ')}: the jobs tried different versions under one name`,
          ),
        ]),
  ]
}

function configurations({ configurations: all }: Omit<Report, 'notices'>): Notice[] {
  const notices: Notice[] = []
  for (const { name, estimate, doors, price, replayed, regradeOf } of all) {
    for (const door of doors)
      notices.push(noted('open_door', `${name}: open beside the closed book: ${door}`))
    if (estimate) {
      const from = [price?.asOf, price?.source].filter((one) => one != null).join(', ')
      notices.push(
        noted(
          'estimated_cost',
          `${name}: costs are estimates; nobody was paid these prices${from === '' ? '' : ` (${from})`}`,
        ),
      )
    }
    if (replayed) notices.push(noted('replayed', `${name}: the model was replayed from recordings`))
    if (regradeOf !== null)
      notices.push(
        noted(
          'regraded',
          `${name}: patches of job ${regradeOf}, graded again; cost, tokens and steps are that job's`,
        ),
      )
  }
  return notices
}

function assisted({ trials }: Omit<Report, 'notices'>): Notice[] {
  const rows = trials.filter((row) => row.assisted)
  return rows.length === 0
    ? []
    : [
        noted(
          'assisted',
          `${rows.length} ${rows.length === 1 ? 'trial was' : 'trials were'} assisted (a person typed into the sandbox) and not scored: ${rows
            .slice(0, 5)
            .map(({ trial }) => trial)
            .join(', ')}${rows.length > 5 ? ' …' : ''}`,
        ),
      ]
}

function remarks({ trials }: Omit<Report, 'notices'>): Notice[] {
  const rows = trials.filter(({ notes }) => notes.length > 0)
  const [first] = rows
  return first === undefined
    ? []
    : [
        noted(
          'remarks',
          `${rows.length} of ${trials.length} results carry notes, such as: ${first.notes[0]} (${first.task}, ${first.configuration}, run ${first.run})`,
        ),
      ]
}

const assumption = ({ from, planned }: Omit<Report, 'notices'>): Notice[] =>
  from === 'plan'
    ? []
    : [
        noted(
          'no_plan',
          `Read from result files alone, without a plan: assumed to be planned are ${planned} trials, every task that the files name with every configuration and every run up to the highest, job by job. A task or configuration that left no file at all is not missed.`,
        ),
      ]

const names = (all: readonly { readonly name: string }[]): string =>
  `${all
    .slice(0, 8)
    .map(({ name }) => name)
    .join(', ')}${all.length > 8 ? ` and ${all.length - 8} more` : ''}`
