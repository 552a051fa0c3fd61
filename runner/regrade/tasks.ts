/**
 * The tasks of a job as they are now: their tests may have changed, which is what grading again is for. Their images may
 * not, for a patch is a difference against one image; unless the operator says which of the two to take.
 */
import { RunnerError } from '../errors.ts'
import { taskImageId, verifierImageId, type ImageHost } from '../host/images.ts'
import { plannedTask, type Plan, type PlannedTask } from '../job/plan.ts'
import type { Sources } from '../job/sources.ts'
import { loadTask } from '../task/load.ts'
import type { Task } from '../task/task.ts'

/** `planned`: the image of the job, if the engine still has it; `current`: what the task names now. */
export type ImageChoice = 'planned' | 'current'

export interface CurrentTask {
  readonly task: Task
  readonly image: string
  readonly verifierImage: string | null
  readonly before: PlannedTask
  readonly now: PlannedTask
}

export async function currentTasks(
  plan: Plan,
  names: ReadonlySet<string>,
  sources: Sources | null,
  host: ImageHost & { readonly choice: ImageChoice | null },
): Promise<ReadonlyMap<string, CurrentTask>> {
  const found = new Map<string, CurrentTask>()
  const options = sources?.harbor === undefined ? {} : { harbor: sources.harbor }
  for (const before of plan.tasks) {
    if (!names.has(before.name)) continue
    const task = await loadTask(before.dir, options)
    if (task.name !== before.name)
      throw new RunnerError(
        'plan_changed',
        'operator',
        `${before.dir} holds task ${task.name} now, and ${before.name} was planned; put it back`,
      )
    const image = await chosen(
      before.image,
      host.choice === 'planned' ? before.image : await taskImageId(task, host),
      before.name,
      host,
    )
    const verifierBefore = before.verifierImage ?? null
    const verifierNow =
      host.choice === 'planned' ? verifierBefore : await verifierImageId(task, host)
    if (verifierNow !== verifierBefore && host.choice === null)
      throw changed(before.name, 'verifier image', String(verifierBefore), String(verifierNow))
    found.set(before.name, {
      task,
      image,
      verifierImage: verifierNow,
      before,
      now: plannedTask(task, image, verifierNow),
    })
  }
  return found
}

async function chosen(
  before: string,
  now: string,
  task: string,
  { choice, client, signal }: ImageHost & { readonly choice: ImageChoice | null },
): Promise<string> {
  if (choice === null && now !== before) throw changed(task, 'image', before, now)
  // Told now and not by the first sandbox.
  await client.inspectImage(now, signal === undefined ? {} : { signal })
  return now
}

const changed = (task: string, what: string, before: string, now: string): RunnerError =>
  new RunnerError(
    'plan_changed',
    'operator',
    `the ${what} of task ${task} was ${before} and is ${now}; a patch is a difference against its image. Put the planned one back, or say which to grade in: --image planned, or --image current`,
  )
