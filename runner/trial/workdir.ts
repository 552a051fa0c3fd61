/** The working directory of the task's container: the task's, else its image's. */
import type { ExecutionContext } from './context.ts'

export async function workdirOf({
  client,
  task,
  images,
  signal,
}: Pick<ExecutionContext, 'client' | 'task' | 'images' | 'signal'>): Promise<string> {
  if (task.workdir !== null) return task.workdir
  const { workdir } = await client.inspectImage(images.task, { signal })
  return workdir === '' ? '/' : workdir
}
