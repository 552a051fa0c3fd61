/** `closedbook report JOB`: the table of trials, pass@1 with its intervals, costs, blocked attempts. */
import type { Command } from 'commander'
import { findJob } from '../job/layout.ts'
import { readJob } from '../job/read-job.ts'
import { renderReport } from '../report/render.ts'
import { wantsColor } from '../report/terminal.ts'
import { note, printJson, withContext } from './context.ts'

export function addReport(program: Command): void {
  program
    .command('report')
    .description('results of a job: trials, pass@1 with intervals, costs, blocked attempts')
    .argument('[job]', 'id, the beginning of one, "latest", or a path', 'latest')
    .option('--json', 'print JSON (closedbook.report/1)')
    .action(async (job: string, _options: object, command: Command) =>
      withContext(command, async ({ config, json }) => {
        const jobDir = await findJob(config.jobsDir, job)
        const { report } = await readJob(jobDir)
        if (json) return printJson(report)
        process.stdout.write(
          renderReport(report, { color: wantsColor(process.stdout, process.env) }),
        )
        note(`\nwritten to ${jobDir}`)
      }),
    )
}
