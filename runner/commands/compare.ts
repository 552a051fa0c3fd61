/** `closedbook compare A B`: two configurations over the same tasks, the difference with its interval and an exact test. */
import { existsSync } from 'node:fs'
import path from 'node:path'
import { Option, type Command } from 'commander'
import type { RunnerConfig } from '../config.ts'
import { RunnerError } from '../errors.ts'
import { reportedJob } from '../report/find.ts'
import { planFile } from '../job/layout.ts'
import { compareSides, type Side } from '../report/compare.ts'
import { loadFiles, loadJobs } from '../report/load.ts'
import { terminalWidth } from '../report/fit.ts'
import { comparisonMarkdown, renderComparison } from '../report/render-compare.ts'
import { reportOf } from '../report/report.ts'
import { wantsColor } from '../report/terminal.ts'
import { printJson, withContext } from './context.ts'

export function addCompare(program: Command): void {
  program
    .command('compare')
    .description('compare two configurations over the tasks that both tried')
    .argument('<a>', 'job, or job:configuration; also a directory of result.json files')
    .argument('<b>', 'the same')
    .addOption(
      new Option('--format <format>', 'of the comparison').choices(['table', 'md', 'json']),
    )
    .option('--json', 'print JSON (closedbook.compare/1)')
    .action(async (a: string, b: string, options: { format?: string }, command: Command) =>
      withContext(command, async ({ config, json }) => {
        const comparison = compareSides(await loadSide(a, config), await loadSide(b, config))
        if (json || options.format === 'json') return printJson(comparison)
        process.stdout.write(
          options.format === 'md'
            ? comparisonMarkdown(comparison)
            : renderComparison(comparison, {
                color: wantsColor(process.stdout, process.env),
                width: terminalWidth(process.stdout),
              }),
        )
      }),
    )
}

/** `text`: a job, or a job and, after the last colon, the name of a configuration. */
async function loadSide(text: string, config: RunnerConfig): Promise<Side> {
  const colon = text.lastIndexOf(':')
  const whole = colon < 0 || existsSync(path.resolve(text))
  const job = whole ? text : text.slice(0, colon)
  const wanted = whole ? null : text.slice(colon + 1)
  const dir = await reportedJob(config, job)
  const report = reportOf(existsSync(planFile(dir)) ? await loadJobs([dir]) : loadFiles([dir]))
  const names = report.configurations.map(({ name }) => name)
  const found =
    wanted === null
      ? names.length === 1
        ? report.configurations[0]
        : undefined
      : report.configurations.find(({ name }) => name === wanted)
  if (found !== undefined) return { report, configuration: found }
  throw new RunnerError(
    'usage',
    'operator',
    wanted === null
      ? `${job} has ${names.length} configurations; say which: ${names.map((name) => `${job}:${name}`).join(', ')}`
      : `${job} has no configuration ${JSON.stringify(wanted)}; it has ${names.join(', ')}`,
  )
}
