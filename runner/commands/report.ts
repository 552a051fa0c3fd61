/** `closedbook report JOB...`: a job's figures as a table, JSON, CSV, Markdown or one HTML page; or of result files alone. */
import path from 'node:path'
import { Option, type Command } from 'commander'
import { RunnerError } from '../errors.ts'
import { reportedJob } from '../report/find.ts'
import { writeFileAtomic } from '../json-file.ts'
import { loadFiles, loadJobs } from '../report/load.ts'
import { terminalWidth } from '../report/fit.ts'
import { renderReport } from '../report/render.ts'
import { reportOf, type Report } from '../report/report.ts'
import { wantsColor } from '../report/terminal.ts'
import { note, withContext } from './context.ts'

const formats = ['table', 'json', 'csv', 'md', 'html'] as const
type Format = (typeof formats)[number]

interface ReportOptions {
  readonly format?: Format
  readonly output?: string
  readonly fromFiles?: readonly string[]
  readonly trials?: boolean
}

export function addReport(program: Command): void {
  program
    .command('report')
    .description('figures of jobs: pass@1 with intervals, costs, failures, blocked attempts')
    .argument('[job...]', 'id, the beginning of one, "latest", or a path; default: latest')
    .addOption(new Option('--format <format>', 'of the report').choices(formats))
    .option('-o, --output <file>', 'write it there; its ending says the format')
    .option(
      '--from-files <where...>',
      'result.json files alone: directories or patterns; no plan and no records are read',
    )
    .option('--trials', 'in the table: every trial and every row')
    .option('--json', 'print JSON (closedbook.report/1)')
    .addHelpText(
      'after',
      '\nExit status is 0 also when trials lack a score; the report says so, and gives pass@1 as bounds.',
    )
    .action(async (jobs: string[], options: ReportOptions, command: Command) =>
      withContext(command, async ({ config, json }) => {
        const format = formatOf(options, json)
        const dirs: string[] = []
        if (options.fromFiles === undefined)
          for (const job of jobs.length > 0 ? jobs : ['latest'])
            dirs.push(await reportedJob(config, job))
        else if (jobs.length > 0)
          throw new RunnerError('usage', 'operator', 'give either jobs or --from-files')
        const report = reportOf(
          options.fromFiles === undefined ? await loadJobs(dirs) : loadFiles(options.fromFiles),
        )
        const target = options.output === undefined ? null : path.resolve(options.output)
        const text = await textOf(report, format, {
          target,
          all: options.trials === true,
        })
        if (target !== null) {
          await writeFileAtomic(target, text)
          for (const notice of report.notices) if (notice.level === 'alarm') note(notice.text)
          return note(`written to ${target}`)
        }
        process.stdout.write(text)
        if (format === 'table') for (const dir of dirs) note(`\nevidence in ${dir}`)
      }),
    )
}

const endings: Readonly<Record<string, Format>> = {
  '.json': 'json',
  '.csv': 'csv',
  '.md': 'md',
  '.html': 'html',
  '.htm': 'html',
  '.txt': 'table',
}

function formatOf({ format, output }: ReportOptions, json: boolean): Format {
  if (format !== undefined) return format
  if (json) return 'json'
  if (output === undefined) return 'table'
  const found = endings[path.extname(output).toLowerCase()]
  if (found !== undefined) return found
  throw new RunnerError(
    'usage',
    'operator',
    `the ending of ${output} says no format; end it with ${Object.keys(endings).join(', ')}, or give --format`,
  )
}

/** What only some forms need is loaded for them alone: a table in a terminal comes sooner. */
async function textOf(
  report: Report,
  format: Format,
  { target, all }: { readonly target: string | null; readonly all: boolean },
): Promise<string> {
  switch (format) {
    case 'json':
      return `${JSON.stringify(report)}\n`
    case 'csv':
      return (await import('../report/csv.ts')).reportCsv(report)
    case 'md':
      return (await import('../report/markdown.ts')).reportMarkdown(report)
    case 'html': {
      const base = target === null ? process.cwd() : path.dirname(target)
      return (await import('../report/html/page.ts')).reportPage(report, { base })
    }
    case 'table': {
      const color = target === null && wantsColor(process.stdout, process.env)
      const width = target === null ? terminalWidth(process.stdout) : Infinity
      return renderReport(report, { color, full: true, all, width })
    }
  }
}
