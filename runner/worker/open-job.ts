/** A job that a worker can run trials of: its plan, with the tasks and configurations that the plan's digests name. */
import type { Configuration } from '../job/configuration.ts'
import type { Plan } from '../job/plan.ts'
import type { JobWatcher } from '../job/watcher.ts'
import type { Task } from '../task/task.ts'

export interface OpenJob {
  readonly plan: Plan
  /** Where this worker writes evidence. */
  readonly jobDir: string
  readonly tasks: ReadonlyMap<string, Task>
  readonly configurations: ReadonlyMap<string, Configuration>
  readonly watch: JobWatcher
}
