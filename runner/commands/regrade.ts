/** `closedbook regrade JOB`: the stored patches of a job against the tests as they are now, without any agent. */
import os from 'node:os'
import path from 'node:path'
import { Option, type Command } from 'commander'
import { RunnerError } from '../errors.ts'
import { exitCode } from '../exit-codes.ts'
import { planFile } from '../job/layout.ts'
import { newJobId, readPlan, writePlan, type Plan, type PlannedTrial } from '../job/plan.ts'
import { readSources } from '../job/sources.ts'
import { makeDirectory } from '../json-file.ts'
import { renderRegrade } from '../regrade/render.ts'
import { regradeJob, regradePlan } from '../regrade/regrade.ts'
import { currentTasks, type ImageChoice } from '../regrade/tasks.ts'
import type { Entry } from '../report/entries.ts'
import { reportedJob } from '../report/find.ts'
import { loadJobs } from '../report/load.ts'
import { terminalWidth } from '../report/fit.ts'
import { wantsColor } from '../report/terminal.ts'
import { readResult, type TrialResult } from '../result.ts'
import { note, printJson, withContext } from './context.ts'

interface RegradeOptions {
  readonly trial: readonly string[]
  readonly image?: ImageChoice
  readonly out?: string
  readonly concurrency?: number
}

const count = (text: string): number => {
  const value = Number(text)
  if (Number.isInteger(value) && value > 0) return value
  throw new RunnerError('usage', 'operator', `--concurrency: ${text} is not a whole number above 0`)
}

export function addRegrade(program: Command): void {
  program
    .command('regrade')
    .description("grade a job's stored patches again with the tests as they are now; no agent runs")
    .argument('[job]', 'id, the beginning of one, "latest", or a path', 'latest')
    .option(
      '--trial <trial>',
      'only this one, or those that begin so; may be repeated',
      (trial: string, all: readonly string[]) => [...all, trial],
      [],
    )
    .addOption(
      new Option('--image <which>', 'where the image of a task changed: which to grade in').choices(
        ['planned', 'current'],
      ),
    )
    .option('--concurrency <n>', 'trials at a time', count)
    .option('--out <dir>', 'directory of the new record; default: a new one in the jobs directory')
    .option('--json', 'print JSON (closedbook.regrade/1)')
    .addHelpText(
      'after',
      '\nThe source is only read. The new record is laid out as a job: report and compare take it like one.\nExit status is 1 when a trial could not be graded again.',
    )
    .action(async (job: string, options: RegradeOptions, command: Command) =>
      withContext(command, async ({ config, client, json, signal }) => {
        const source = await reportedJob(config, job)
        const plan = await readPlan(planFile(source))
        const results = await recordedResults(source, plan, options.trial)
        const trials = plan.trials.filter(({ trial }) => results.has(trial))
        const names = new Set(trials.map(({ task }) => task))
        const tasks = await currentTasks(plan, names, await readSources(source).catch(() => null), {
          client,
          signal,
          stateDir: config.stateDir,
          say: (text) => note(`· ${text}`),
          choice: options.image ?? null,
        })
        const now = new Date()
        const next = regradePlan(plan, tasks, trials, { job: newJobId(now), now })
        const directory = path.resolve(options.out ?? path.join(config.jobsDir, next.job))
        await makeDirectory(directory)
        await writePlan(planFile(directory), next)
        const record = await regradeJob({
          client,
          signal,
          source: { plan, directory: source },
          results,
          tasks,
          plan: next,
          directory,
          concurrency: options.concurrency ?? Math.min(4, os.availableParallelism()),
          onTrial: ({ task, configuration, run, before, after }, done, of) =>
            note(
              `· ${done} of ${of}: ${task}, ${configuration}, run ${run}: ${before.verdict}${before.verdict === after.verdict ? '' : ` -> ${after.verdict}`}`,
            ),
        })
        if (json) printJson({ ...record, directory })
        else {
          process.stdout.write(
            renderRegrade(record, {
              color: wantsColor(process.stdout, process.env),
              width: terminalWidth(process.stdout),
            }),
          )
          note(`\nwritten to ${directory}`)
        }
        if (record.trials.some(({ how }) => how === 'impossible'))
          process.exitCode = exitCode.failure
      }),
    )
}

/** Whole, by trial: those that are recorded and are what was recorded. */
async function recordedResults(
  source: string,
  plan: Plan,
  wanted: readonly string[],
): Promise<ReadonlyMap<string, TrialResult>> {
  const { entries } = await loadJobs([source])
  const chosen = entries.filter(
    ({ trial }) => wanted.length === 0 || wanted.some((start) => trial.startsWith(start)),
  )
  for (const start of wanted)
    if (!plan.trials.some(({ trial }: PlannedTrial) => trial.startsWith(start)))
      throw new RunnerError('trial_unknown', 'operator', `job ${plan.job} has no trial ${start}`)
  const usable = chosen.flatMap(({ trial, outcome, file }: Entry) => {
    if (outcome.kind === 'unusable') note(`· left out: ${outcome.why}`)
    return outcome.kind === 'result' && file !== null ? [{ trial, file }] : []
  })
  if (usable.length === 0)
    throw new RunnerError(
      'result_missing',
      'operator',
      `job ${plan.job} has no recorded result to grade again${wanted.length > 0 ? ` among ${wanted.join(', ')}` : ''}`,
    )
  return new Map(
    await Promise.all(
      usable.map(async ({ trial, file }) => [trial, await readResult(file)] as const),
    ),
  )
}
