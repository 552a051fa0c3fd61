/** `closedbook run`: plans a job and runs it to its end. */
import os from 'node:os'
import path from 'node:path'
import type { Command } from 'commander'
import { RunnerError } from '../errors.ts'
import { exitCode } from '../exit-codes.ts'
import { loadJobFile } from '../job/job-file.ts'
import { readJob } from '../job/read-job.ts'
import type { Sources } from '../job/sources.ts'
import { startJob, type JobHost, type StartedJob } from '../job/start-job.ts'
import { renderReport } from '../report/render.ts'
import { wantsColor } from '../report/terminal.ts'
import { note, printJson, withContext, type Context } from './context.ts'
import { Progress } from './progress.ts'

interface RunOptions {
  task: string[]
  config?: string
  harness?: string
  runs?: number
  concurrency?: number
  name?: string
  out?: string
}

const count = (text: string): number => {
  const value = Number(text)
  if (Number.isInteger(value) && value > 0) return value
  throw new RunnerError(
    'usage',
    'operator',
    `"${text}" is not a whole number above zero (--runs, --concurrency)`,
  )
}

export function addRun(program: Command): void {
  program
    .command('run')
    .description(
      'run tasks x configurations x runs, grade each with its hidden tests, record results',
    )
    .argument('[job]', 'a job file (YAML); or name tasks with --task')
    .option(
      '--task <dir>',
      'task directory; may be repeated',
      (dir: string, all: string[]) => [...all, dir],
      [],
    )
    .option('--config <file>', 'configuration: model, harness, limits (YAML)')
    .option(
      '--harness <harness>',
      'mini-swe-agent, noop, oracle or script:FILE; wins over the configuration',
    )
    .option('--runs <n>', 'runs of each task', count)
    .option('--concurrency <n>', 'trials at a time', count)
    .option('--name <name>', 'name of the job')
    .option('--out <dir>', 'directory of the job; default: a new one in the jobs directory')
    .option('--json', 'end with one JSON line on stdout')
    .action(async (job: string | undefined, options: RunOptions, command: Command) =>
      withContext(command, async (context) => {
        const request = await requestOf(job, options)
        await runToEnd(context, (host) => startJob(request, host))
      }),
    )
}

async function requestOf(
  job: string | undefined,
  options: RunOptions,
): Promise<{ name: string; runs: number; out: string | null; sources: Sources }> {
  const { harness, config, task } = options
  if (job !== undefined) {
    if (task.length > 0 || config !== undefined || harness !== undefined)
      throw new RunnerError(
        'usage',
        'operator',
        'a job file names its tasks and configurations itself; give either a job file or --task',
      )
    const spec = await loadJobFile(job)
    return {
      name: options.name ?? spec.name,
      runs: options.runs ?? spec.runs,
      out: options.out === undefined ? spec.out : path.resolve(options.out),
      sources: {
        schema: 'closedbook.sources/1',
        taskDirs: [...spec.taskDirs],
        configurations: [{ kind: 'job', path: path.resolve(job) }],
        concurrency: options.concurrency ?? spec.concurrency,
      },
    }
  }
  if (task.length === 0)
    throw new RunnerError('usage', 'operator', 'say what to run: --task DIR, or a job file')
  if (config === undefined && harness === undefined)
    throw new RunnerError(
      'usage',
      'operator',
      'say what runs it: --config FILE (mini-SWE-agent and its model), or --harness noop|oracle|script:FILE',
    )
  return {
    name: options.name ?? path.basename(config ?? harness ?? 'job').replace(/\.(ya?ml|json)$/, ''),
    runs: options.runs ?? 1,
    out: options.out === undefined ? null : path.resolve(options.out),
    sources: {
      schema: 'closedbook.sources/1',
      taskDirs: task.map((dir) => path.resolve(dir)),
      configurations: [
        config === undefined
          ? { kind: 'harness', harness: harness ?? 'noop', baseDir: process.cwd() }
          : { kind: 'file', path: path.resolve(config), harness: harness ?? null },
      ],
      concurrency: options.concurrency ?? Math.max(1, Math.min(8, os.availableParallelism())),
    },
  }
}

/** Runs with progress on stderr; ends with the table, or with the one JSON line that programs rely on. */
export async function runToEnd(
  { config, client, json, signal }: Context,
  begin: (host: JobHost) => Promise<StartedJob>,
): Promise<void> {
  let started: StartedJob | null = null
  {
    using progress = new Progress()
    try {
      await begin({
        config,
        client,
        signal,
        watch: progress,
        say: (what) => progress.say(`· ${what}`),
        onPlan: (plan, jobDir) => {
          started = { plan, jobDir }
          progress.plan(plan.trials.length, 0)
          progress.say(
            `job ${plan.job}: ${plan.trials.length} ${plan.trials.length === 1 ? 'trial' : 'trials'} in ${jobDir}`,
          )
        },
      })
    } catch (error) {
      if (signal.aborted && started !== null)
        note(`interrupted; go on with: closedbook resume ${(started as StartedJob).plan.job}`)
      throw error
    }
  }
  if (started === null) return
  const { plan, jobDir } = started as StartedJob
  const { report, files } = await readJob(jobDir)
  if (json)
    printJson({
      job: plan.job,
      trials: report.trials.map(({ trial, task, configuration, run, verdict, blame, reason }) => ({
        trial,
        task,
        configuration,
        run,
        verdict,
        blame,
        reason,
        result: files.get(trial) ?? null,
      })),
    })
  else {
    process.stdout.write(
      `\n${renderReport(report, { color: wantsColor(process.stdout, process.env) })}`,
    )
    note(`\nwritten to ${jobDir}`)
  }
  if (!report.complete) process.exitCode = exitCode.failure
}
