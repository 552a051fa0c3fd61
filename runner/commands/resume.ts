/** `closedbook resume JOB`: goes on with what is not recorded; nothing recorded is touched. */
import type { Command } from 'commander'
import { findJob } from '../job/layout.ts'
import { resumeJob } from '../job/start-job.ts'
import { withContext } from './context.ts'
import { runToEnd } from './run.ts'

export function addResume(program: Command): void {
  program
    .command('resume')
    .description('go on with a job that was interrupted; what is recorded stays')
    .argument('[job]', 'id, the beginning of one, "latest", or a path', 'latest')
    .option('--json', 'end with one JSON line on stdout')
    .action(async (job: string, _options: object, command: Command) =>
      withContext(command, async (context) => {
        const jobDir = await findJob(context.config.jobsDir, job)
        await runToEnd(context, (host) => resumeJob(jobDir, host))
      }),
    )
}
