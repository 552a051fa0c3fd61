/** `closedbook review`: a person's decision about a task, over its evidence; without one it lists those that were made. */
import Table from 'cli-table3'
import type { Command } from 'commander'
import { packageVersion } from '../../daemon/protocol/version.ts'
import { RunnerError } from '../errors.ts'
import { readProbe } from '../probe/document.ts'
import { standingOf, type Standing } from '../qualify/standing.ts'
import { plainLine } from '../report/terminal.ts'
import { appendReview, currentReview, readReviews, type Review } from '../review/reviews.ts'
import { loadForLooking } from '../task/lenient.ts'
import type { Task } from '../task/task.ts'
import { note, print, printJson, withContext } from './context.ts'

interface ReviewFlags {
  include?: boolean
  exclude?: boolean
  by?: string
  reason?: string
}

export function addReview(program: Command): void {
  program
    .command('review')
    .description(
      'include a task in a benchmark or exclude it, with name and reason; or list decisions',
    )
    .argument('<task>', 'task directory')
    .option('--include', 'the task may be counted; needs a qualification that holds')
    .option('--exclude', 'the task may not be counted')
    .option('--by <name>', 'who decides')
    .option('--reason <text>', 'why')
    .option('--json', 'print JSON')
    .action(async (dir: string, flags: ReviewFlags, command: Command) =>
      withContext(command, async ({ json }) => {
        const { task, refused } = await loadForLooking(dir)
        if (task === null) throw refused
        const decision = decisionOf(flags)
        const standing = await standingOf(task, null)
        if (decision === null) return list(task, standing, json)
        const review = await decide(task, standing, decision)
        if (json) printJson(review)
        else note(`${task.name}: ${review.decision}d by ${review.by}`)
      }),
    )
}

interface Decision {
  readonly decision: Review['decision']
  readonly by: string
  readonly reason: string
}

function decisionOf({ include, exclude, by, reason }: ReviewFlags): Decision | null {
  if (include !== true && exclude !== true) {
    if (by !== undefined || reason !== undefined)
      throw new RunnerError(
        'usage',
        'operator',
        'say --include or --exclude with --by and --reason',
      )
    return null
  }
  if (include === true && exclude === true)
    throw new RunnerError('usage', 'operator', 'a decision is --include or --exclude, not both')
  if (by === undefined || by.trim() === '' || reason === undefined || reason.trim() === '')
    throw new RunnerError('usage', 'operator', 'a decision needs --by NAME and --reason TEXT')
  return { decision: include === true ? 'include' : 'exclude', by, reason }
}

async function decide(task: Task, standing: Standing, decision: Decision): Promise<Review> {
  if (decision.decision === 'include' && standing.state !== 'qualified')
    throw new RunnerError(
      'task_unqualified',
      'operator',
      `${task.name} can't be included: it ${whyNot(standing)}. Qualify it on its hardware with closedbook qualify ${task.dir}, look at the report, then decide`,
    )
  const probe = await readProbe(task.dir)
  // One of another version of the task says nothing about this one.
  const current = probe !== null && probe.value.digests.task === task.digest
  const holes = current ? probe.value.holes : 0
  if (decision.decision === 'include' && holes > 0)
    throw new RunnerError(
      'task_unqualified',
      'operator',
      `${task.name} can't be included: ${holes} probes got through; see closedbook/probe.json, mend the task and probe it again`,
    )
  return appendReview(task.dir, {
    task: task.name,
    at: new Date().toISOString(),
    ...decision,
    qualification: standing.digest,
    probe: current ? probe.digest : null,
    digests: {
      task: standing.document?.digests.task ?? task.digest,
      tests: task.testsDigest,
      instruction: task.instructionDigest,
    },
    closedbookVersion: packageVersion,
  })
}

function whyNot({ state, changed }: Standing): string {
  if (state === 'stale') return `changed since it was qualified (${changed.join('; ')})`
  return state === 'failed' ? 'did not qualify' : 'was never qualified'
}

async function list(task: Task, standing: Standing, json: boolean): Promise<void> {
  const reviews = await readReviews(task.dir)
  const current = currentReview(reviews, standing.state === 'qualified' ? standing.digest : null)
  if (json)
    return printJson({
      task: task.name,
      state: standing.state,
      current: current?.decision ?? null,
      reviews,
    })
  if (reviews.length === 0) return note(`${task.name}: no review yet`)
  const table = new Table({
    head: ['when', 'decision', 'by', 'reason', 'holds'],
    style: { head: [], border: [], compact: true },
  })
  for (const review of reviews)
    table.push([
      review.at,
      review.decision,
      ...[review.by, review.reason].map(plainLine),
      review === current ? 'yes' : 'no',
    ])
  print(table.toString())
}
