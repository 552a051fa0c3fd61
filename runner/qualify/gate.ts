/**
 * Which tasks a job may try: the one place that says no. A task that never was qualified, failed, or changed since says
 * nothing about an agent, so `run` refuses it unless told; a job may also demand that a person included each task.
 * Harnesses that only try a task out (no-op, oracle, scripts) need none of it.
 */
import { RunnerError } from '../errors.ts'
import type { Harness } from '../harness/harness.ts'
import { currentReview, readReviews, type Review } from '../review/reviews.ts'
import type { Task } from '../task/task.ts'
import { standingOf, type Standing } from './standing.ts'

export const taskModes = ['qualified', 'included', 'any'] as const
/** `require` of a job: qualified tasks (the default), those that a person included, or whatever is named. */
export type TaskMode = (typeof taskModes)[number]

/** What a plan keeps of it; null where the task has no qualification that holds. */
export type PlannedQualification = {
  readonly digest: string
  readonly at: string
  /** The decision that was made over it. */
  readonly review?: {
    readonly decision: Review['decision']
    readonly by: string
    readonly at: string
  } | null
} | null

const needsNone: ReadonlySet<string> = new Set(['noop', 'oracle', 'script'])

/** The mode that holds for a job: without an agent that is scored, any task will do, unless it was demanded. */
export function modeFor(
  harnesses: readonly Pick<Harness, 'kind'>[],
  asked: TaskMode | undefined,
): TaskMode {
  if (asked !== undefined) return asked
  return harnesses.every(({ kind }) => needsNone.has(kind)) ? 'any' : 'qualified'
}

/** `images`: the id that each task's containers would be started by, by name of the task. */
export async function gateTasks(
  tasks: readonly Task[],
  images: ReadonlyMap<string, string>,
  mode: TaskMode,
): Promise<Map<string, PlannedQualification>> {
  const refused: string[] = []
  const kept = new Map<string, PlannedQualification>()
  for (const task of tasks) {
    const standing = await standingOf(task, images.get(task.name) ?? null).catch(
      (error: unknown) => {
        if (mode === 'any' && error instanceof RunnerError) return null
        throw error
      },
    )
    if (standing === null) {
      kept.set(task.name, null)
      continue
    }
    const review = currentReview(await readReviews(task.dir), standing.digest)
    kept.set(task.name, plannedOf(standing, review))
    const why = mode === 'any' ? null : refusal(standing, review, mode)
    if (why !== null) refused.push(`${task.name} ${why}`)
  }
  if (refused.length > 0)
    throw new RunnerError(
      'task_unqualified',
      'operator',
      `${refused.join('\n')}\nqualify a task with closedbook qualify DIR, or run it all the same with --unqualified (require: any in a job file)`,
      { facts: { tasks: refused } },
    )
  return kept
}

function plannedOf({ state, digest, at }: Standing, review: Review | null): PlannedQualification {
  if (state !== 'qualified' || digest === null || at === null) return null
  if (review === null) return { digest, at, review: null }
  return { digest, at, review: { decision: review.decision, by: review.by, at: review.at } }
}

function refusal(
  standing: Standing,
  review: Review | null,
  mode: Exclude<TaskMode, 'any'>,
): string | null {
  switch (standing.state) {
    case 'unqualified':
      return 'was never qualified'
    case 'failed':
      return 'did not qualify: see closedbook task show'
    case 'stale':
      return `was qualified before it changed: ${standing.changed.join('; ')}`
    case 'qualified':
      break
  }
  if (mode === 'qualified') return null
  if (review === null)
    return 'has no review of its current qualification (closedbook review DIR --include)'
  return review.decision === 'include' ? null : `was excluded by ${review.by}: ${review.reason}`
}
