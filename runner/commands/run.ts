/** `closedbook run`: plans a job and runs it to its end. */
import os from 'node:os'
import path from 'node:path'
import { Option, type Command } from 'commander'
import { RunnerError } from '../errors.ts'
import { exitCode } from '../exit-codes.ts'
import { atifVersions, type AtifVersion, type TrajectoryOptions } from '../harness/atif-schema.ts'
import { loadJobFile } from '../job/job-file.ts'
import type { Plan } from '../job/plan.ts'
import { readJob } from '../job/read-job.ts'
import type { Sources } from '../job/sources.ts'
import type { JobHost, JobRequest, StartedJob } from '../job/start-job.ts'
import { terminalWidth } from '../report/fit.ts'
import { renderReport } from '../report/render.ts'
import { dollars, wantsColor } from '../report/terminal.ts'
import { note, printJson, withContext, type Context } from './context.ts'
import { addHarborFlags, harborOptionsOf, type HarborFlags } from './harbor-flags.ts'
import { Progress } from './progress.ts'

export interface RunOptions extends HarborFlags {
  task: string[]
  config?: string
  harness?: string
  runs?: number
  concurrency?: number
  slots?: number
  budget?: number
  unqualified?: boolean
  name?: string
  out?: string
  atif?: AtifVersion
}

export const dollarsOption = (text: string): number => {
  const value = Number(text)
  if (Number.isFinite(value) && value > 0) return value
  throw new RunnerError('usage', 'operator', `"${text}" is not an amount of US dollars (--budget)`)
}

export const count = (text: string): number => {
  const value = Number(text)
  if (Number.isInteger(value) && value > 0) return value
  throw new RunnerError(
    'usage',
    'operator',
    `"${text}" is not a whole number above zero (--runs, --concurrency, --slots)`,
  )
}

export function addRun(program: Command): void {
  withJobOptions(
    program
      .command('run')
      .description(
        'run tasks x configurations x runs, grade each with its hidden tests, record results',
      ),
  )
    .option('--out <dir>', 'directory of the job; default: a new one in the jobs directory')
    .option('--slots <n>', 'trials at a time in this process; default: as the job allows', count)
    .option('--json', 'end with one JSON line on stdout')
    .action(async (job: string | undefined, options: RunOptions, command: Command) =>
      withContext(
        command,
        async (context) => {
          const request = await requestOf(job, options)
          const { startJob } = await import('../job/start-job.ts')
          await runToEnd(context, options.slots, (host) => startJob(request, host))
        },
        { gentle: true },
      ),
    )
}

/** What says which trials there are: shared with `plan`. */
export const withJobOptions = (command: Command): Command =>
  addHarborFlags(command)
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
      'mini-swe-agent, mini-swe-agent:inside, noop, oracle, script:FILE or command:FILE; wins over the configuration',
    )
    .option('--runs <n>', 'runs of each task', count)
    .option('--concurrency <n>', 'trials at a time', count)
    .option('--budget <usd>', 'no trial is begun that the job could not pay for', dollarsOption)
    .option('--unqualified', 'also tasks that are not qualified, or changed since')
    .option('--name <name>', 'name of the job')
    .addOption(
      new Option(
        '--atif <version>',
        "of the trajectories for Harbor's tools; default: 1.8, Harbor up to 0.22 reads 1.7 at most",
      ).choices(atifVersions),
    )

/** The command line wins over a job file. */
const requirementOf = (
  { unqualified }: RunOptions,
  written: Sources['require'] | null,
): Pick<Sources, 'require'> => {
  if (unqualified === true) return { require: 'any' }
  return written === null || written === undefined ? {} : { require: written }
}

const budgetOf = ({ budget }: RunOptions, written: number | null): Pick<Sources, 'budgetUsd'> => {
  const budgetUsd = budget ?? written
  return budgetUsd === null ? {} : { budgetUsd }
}

const trajectoryOf = (
  { atif }: RunOptions,
  written: TrajectoryOptions | null,
): Pick<Sources, 'trajectory'> => {
  if (atif !== undefined) return { trajectory: { atif } }
  return written === null ? {} : { trajectory: written }
}

export async function requestOf(job: string | undefined, options: RunOptions): Promise<JobRequest> {
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
        concurrency: options.concurrency ?? spec.concurrency.trials,
        ...(spec.concurrency.perConfiguration !== undefined && {
          perConfiguration: spec.concurrency.perConfiguration,
        }),
        ...(spec.concurrency.perEndpoint !== undefined && {
          perEndpoint: spec.concurrency.perEndpoint,
        }),
        ...requirementOf(options, spec.require),
        ...budgetOf(options, spec.budgetUsd),
        ...harborOptionsOf(options, spec.harbor),
        ...trajectoryOf(options, spec.trajectory),
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
      ...requirementOf(options, null),
      ...budgetOf(options, null),
      ...harborOptionsOf(options),
      ...trajectoryOf(options, null),
    },
  }
}

/** Runs with progress on stderr; ends with the table, or with the one JSON line that programs rely on. */
export async function runToEnd(
  { config, client, json, signal, drain }: Context,
  slots: number | undefined,
  begin: (host: JobHost) => Promise<StartedJob>,
): Promise<void> {
  let planned: Plan | null = null
  let started: StartedJob
  {
    using progress = new Progress()
    drain.addEventListener('abort', () => {
      if (planned !== null && !signal.aborted)
        progress.say(
          '· no further trial is begun; those that run are finished (again: cancel them)',
        )
    })
    try {
      started = await begin({
        config,
        client,
        signal,
        drain,
        slots,
        watch: progress,
        say: (what) => progress.say(`· ${what}`),
        onPlan: (plan, jobDir) => {
          planned = plan
          progress.job(plan, jobDir)
          const { length } = plan.trials
          progress.say(
            `job ${plan.job}: ${length} ${length === 1 ? 'trial' : 'trials'} in ${jobDir}`,
          )
        },
      })
    } catch (error) {
      if (signal.aborted && planned !== null)
        note(`interrupted; go on with: closedbook resume ${(planned as Plan).job}`)
      throw error
    }
  }
  const { plan, jobDir, end } = started
  if (end.kind === 'cancelled')
    throw new RunnerError('cancelled', 'operator', `job ${plan.job} was cancelled`)
  if (end.kind === 'stopped') {
    const left = end.waiting === 1 ? '1 trial is' : `${end.waiting} trials are`
    note(`${left} left; go on with: closedbook resume ${plan.job}`)
    throw drain.aborted
      ? drain.reason
      : new RunnerError('cancelled', 'operator', `job ${plan.job} was paused by another process`)
  }
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
      `\n${renderReport(report, { color: wantsColor(process.stdout, process.env), width: terminalWidth(process.stdout) })}`,
    )
    note(`\nwritten to ${jobDir}`)
  }
  if (end.kind === 'over-budget') note(budgetText(end, plan.job))
  if (!report.complete) process.exitCode = exitCode.failure
}

function budgetText(
  { budget, waiting }: Extract<StartedJob['end'], { kind: 'over-budget' }>,
  job: string,
): string {
  const { usd, spentUsd, nextUsd } = budget
  return (
    `\nTHE BUDGET IS REACHED: ${dollars(spentUsd)} of ${dollars(usd)} are spent and the next trial may cost ${dollars(nextUsd)}; ` +
    `${waiting} planned ${waiting === 1 ? 'trial was' : 'trials were'} not run, so there is no pass@1. ` +
    `Go on with: closedbook resume ${job} --budget USD`
  )
}
