/** `closedbook cancel JOB`: what runs is aborted, what waits is not begun. Nothing recorded is touched; resume goes on. */
import type { Command } from 'commander'
import { planFile } from '../job/layout.ts'
import { directoryOf } from '../job/find-job.ts'
import { readPlan } from '../job/plan.ts'
import { RunnerError } from '../errors.ts'
import { note, printJson, withContext } from './context.ts'

export function addCancel(program: Command): void {
  program
    .command('cancel')
    .description('stop a job wherever it runs; `resume` can go on with it')
    .argument('<job>', 'id, the beginning of one, or "latest"')
    .option('--json', 'print JSON')
    .action(async (text: string, _options: object, command: Command) =>
      withContext(command, async ({ config, json }) => {
        const { job } = await readPlan(planFile(await directoryOf(config, text)))
        const { Store } = await import('../store/store.ts')
        const { setPlanState } = await import('../store/plans.ts')
        const { standingOf } = await import('../store/trials.ts')
        await using store = await Store.open(config)
        const before = await standingOf(store.database, job)
        if (before === null)
          throw new RunnerError('job_unknown', 'operator', `the store does not know job ${job}`)
        const { recorded, live, waiting } = before
        if (live + waiting > 0) await setPlanState(store, job, 'cancelled', 'cancelled')
        if (json) return printJson({ job, recorded, running: live, waiting })
        note(
          live + waiting === 0
            ? `job ${job} has nothing left to run`
            : `job ${job} is cancelled: ${recorded} recorded, ${live} being stopped, ${waiting} not begun; closedbook resume ${job} goes on`,
        )
      }),
    )
}
