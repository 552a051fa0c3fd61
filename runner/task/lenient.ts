/**
 * A task for whoever only looks at it (lint, show): what an operator may allow (a public network that is not followed,
 * variables of the host) doesn't keep it from being read. The refusal that a run would meet comes beside it.
 */
import { RunnerError } from '../errors.ts'
import { resolveImage } from './image.ts'
import { loadTask, withoutCanary } from './load.ts'
import type { TaskToml } from './schema.ts'
import { evidenceFolder, readTree } from './tree.ts'
import type { Task } from './task.ts'

export async function loadForLooking(
  dir: string,
): Promise<{ task: Task; refused: RunnerError | null } | { task: null; refused: RunnerError }> {
  try {
    return { task: await loadTask(dir), refused: null }
  } catch (error) {
    if (!(error instanceof RunnerError)) throw error
    const task = await loadAllowed(dir, [])
    return task === null ? { task, refused: error } : { task, refused: error }
  }
}

/** Every variable that it asks for is allowed, one after the other, and is empty. */
async function loadAllowed(dir: string, hostEnv: readonly string[]): Promise<Task | null> {
  const env = Object.fromEntries(hostEnv.map((name) => [name, '']))
  const harbor = { network: 'closed-book' as const, hostEnv: [...hostEnv] }
  try {
    return await loadTask(dir, { harbor, env })
  } catch (error) {
    if (!(error instanceof RunnerError)) throw error
    const wanted = /\$\{([A-Za-z_]\w*)\}/.exec(error.message)?.[1]
    if (wanted === undefined || hostEnv.includes(wanted)) return null
    return loadAllowed(dir, [...hostEnv, wanted])
  }
}

/** What looking into an image takes; also of tasks that a run refuses. */
export type TaskImageFacts = Pick<
  Task,
  'image' | 'workdir' | 'baseCommit' | 'verify' | 'instruction'
>

/** null where nothing says which image it is. */
export async function imageFacts(
  dir: string,
  toml: TaskToml,
  instruction: string,
): Promise<TaskImageFacts | null> {
  try {
    return {
      image: resolveImage(dir, toml, await readTree(dir, { without: evidenceFolder })),
      workdir: toml.closedbook?.workdir ?? toml.environment.workdir ?? null,
      baseCommit: toml.closedbook?.base_commit ?? null,
      verify: toml.closedbook?.verify ?? 'snapshot',
      instruction: withoutCanary(instruction),
    }
  } catch (error) {
    if (!(error instanceof RunnerError)) throw error
    return null
  }
}
