/** `closedbook resume JOB`: goes on with what is not recorded; nothing recorded is touched, unless --retry-void says so. */
import type { Command } from 'commander'
import { directoryOf } from '../job/find-job.ts'
import { withContext } from './context.ts'
import { count, dollarsOption, runToEnd } from './run.ts'

interface ResumeFlags {
  retryVoid?: boolean
  budget?: number
  slots?: number
}

export function addResume(program: Command): void {
  program
    .command('resume')
    .description('go on with a job that was interrupted or cancelled; what is recorded stays')
    .argument('[job]', 'id, the beginning of one, "latest", or a path', 'latest')
    .option(
      '--retry-void',
      'also try again what ended void by infrastructure or operator; the void results are kept beside the new',
    )
    .option('--budget <usd>', 'a new spending cap', dollarsOption)
    .option('--slots <n>', 'trials at a time in this process; default: as the job allows', count)
    .option('--json', 'end with one JSON line on stdout')
    .action(async (job: string, options: ResumeFlags, command: Command) =>
      withContext(
        command,
        async (context) => {
          const jobDir = await directoryOf(context.config, job)
          const { resumeJob } = await import('../job/start-job.ts')
          const { retryVoid = false, budget } = options
          await runToEnd(context, options.slots, (host) =>
            resumeJob(jobDir, host, { retryVoid, budgetUsd: budget }),
          )
        },
        { gentle: true },
      ),
    )
}
