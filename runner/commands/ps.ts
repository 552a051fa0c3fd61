/** `closedbook ps`: jobs, or the trials of one job, as the store has them now. A directory without a store is read too. */
import type { Command } from 'commander'
import path from 'node:path'
import { directoryOf } from '../job/find-job.ts'
import { ledgerFile, listJobs, planFile, resultFile } from '../job/layout.ts'
import { readLedger } from '../job/ledger.ts'
import { readPlan, type Plan } from '../job/plan.ts'
import { foldTrial } from '../job/trial-state.ts'
import { fitLines, leftOutText, terminalWidth, wrapLine } from '../report/fit.ts'
import { dollars, painter, wantsColor } from '../report/terminal.ts'
import { readResult } from '../result.ts'
import type { JobStanding, TrialStanding } from '../store/trials.ts'
import { note, print, printJson, withContext, type Context } from './context.ts'

export function addPs(program: Command): void {
  program
    .command('ps')
    .description('jobs, or with a job its trials')
    .argument('[job]', 'id, the beginning of one, or "latest"')
    .option('--json', 'print JSON')
    .action(async (job: string | undefined, _options: object, command: Command) =>
      withContext(command, (context) =>
        job === undefined ? showJobs(context) : showTrials(job, context),
      ),
    )
}

async function showJobs({ config, json }: Context): Promise<void> {
  const stored = await storedJobs(config)
  const known = new Set(stored.map(({ job }) => job))
  const others: JobStanding[] = []
  for (const name of await listJobs(config.jobsDir)) {
    if (known.has(name)) continue
    const found = await jobOnDisk(path.join(config.jobsDir, name)).catch(() => null)
    if (found !== null) others.push(found)
  }
  const jobs = [...others, ...stored].toSorted((a, b) => (a.job < b.job ? -1 : 1))
  if (json)
    return printJson({ jobs: jobs.map(({ jobDir, ...one }) => ({ ...one, directory: jobDir })) })
  if (jobs.length === 0) return note(`no job in ${config.jobsDir}`)
  for (const one of jobs)
    printFitting(
      `${one.job}  ${one.name}  ${one.recorded} of ${one.trials} recorded: ${one.passed} passed, ${one.failed} failed, ${one.void} void` +
        (one.running > 0 ? `; ${one.running} running` : '') +
        (one.state === 'running' || one.state === 'done' ? '' : `; ${one.state}`) +
        (one.costUsd > 0 ? `; ${dollars(one.costUsd)}` : ''),
    )
}

const printFitting = (line: string): void => print(wrapLine(line, terminalWidth(process.stdout)))

async function storedJobs(config: Context['config']): Promise<JobStanding[]> {
  const { Store } = await import('../store/store.ts')
  const store = await Store.openIfThere(config)
  if (store === null) return []
  await using _store = store
  const { allJobs } = await import('../store/trials.ts')
  const jobs = await allJobs(store.database)
  const { isGone, readWorker } = await import('../store/workers.ts')
  const shown: JobStanding[] = []
  for (const one of jobs) {
    const runner = one.runner === null ? null : await readWorker(store.database, one.runner)
    const dead = runner === null || (await isGone(runner, store.heartbeatSeconds))
    // open, and nobody there who looks after it: its runner was killed
    const state = one.state === 'open' ? (dead ? 'interrupted' : 'running') : one.state
    shown.push({ ...one, state })
  }
  return shown
}

/** A job that was copied here, or whose store is elsewhere. */
async function jobOnDisk(jobDir: string): Promise<JobStanding> {
  const plan = await readPlan(planFile(jobDir))
  const trials = await trialsOnDisk(plan, jobDir)
  const withVerdict = (verdict: string): number =>
    trials.filter((trial) => trial.verdict === verdict).length
  const withStatus = (status: string): number =>
    trials.filter((trial) => trial.status === status).length
  return {
    job: plan.job,
    name: plan.name,
    jobDir,
    state: withStatus('recorded') === trials.length ? 'done' : 'elsewhere',
    trials: trials.length,
    recorded: withStatus('recorded'),
    running: withStatus('running'),
    passed: withVerdict('passed'),
    failed: withVerdict('failed'),
    void: withVerdict('void'),
    costUsd: 0,
    runner: null,
  }
}

async function trialsOnDisk(plan: Plan, jobDir: string): Promise<TrialStanding[]> {
  const { records } = await readLedger(ledgerFile(jobDir))
  if (records.length === 0)
    return Promise.all(plan.trials.map((one) => ofResult(one.trial, jobDir)))
  return plan.trials.map(({ trial }) => {
    const state = foldTrial(trial, records)
    return {
      trial,
      status: state.status,
      verdict: state.status === 'recorded' ? state.verdict : null,
      executions: state.executions.length,
      host: null,
    }
  })
}

/** What was graded again has results and no ledger. */
async function ofResult(trial: string, jobDir: string): Promise<TrialStanding> {
  const result = await readResult(resultFile(jobDir, trial)).catch(() => null)
  return {
    trial,
    status: result === null ? 'pending' : 'recorded',
    verdict: result?.verdict ?? null,
    executions: result?.executions.length ?? 0,
    host: null,
  }
}

async function showTrials(text: string, { config, json }: Context): Promise<void> {
  const jobDir = await directoryOf(config, text)
  const plan = await readPlan(planFile(jobDir))
  const standings = (await storedTrials(plan.job, config)) ?? (await trialsOnDisk(plan, jobDir))
  const trials = plan.trials.map((planned) => {
    const found = standings.find(({ trial }) => trial === planned.trial)
    return {
      ...planned,
      status: found?.status ?? 'pending',
      verdict: found?.verdict ?? null,
      executions: found?.executions ?? 0,
      host: found?.host ?? null,
    }
  })
  if (json) return printJson({ job: plan.job, trials })
  const { lines, leftOut } = fitLines(
    trials.map(({ trial, task, configuration, run, status, verdict, executions, host }) => [
      ...[trial, task, configuration, `run ${run}`, verdict ?? status],
      executions > 1 ? `(${executions} executions)` : '',
      status === 'running' && host !== null ? `on ${host}` : '',
    ]),
    {
      columns: ['trial', 'task', 'configuration', 'run', 'verdict', 'executions', 'host'].map(
        (name) => ({ name, text: name === 'task' || name === 'configuration' || name === 'host' }),
      ),
      leaveOut: [
        ...(plan.configurations.length > 1 ? [] : ['configuration']),
        ...['executions', 'host', 'run', 'configuration'],
      ],
      width: terminalWidth(process.stdout),
    },
  )
  for (const line of lines) print(line)
  if (leftOut.length > 0)
    print(
      painter(wantsColor(process.stdout, process.env))(
        'dim',
        wrapLine(leftOutText(leftOut, '--json'), terminalWidth(process.stdout)),
      ),
    )
}

async function storedTrials(
  job: string,
  config: Context['config'],
): Promise<TrialStanding[] | null> {
  const { Store } = await import('../store/store.ts')
  const store = await Store.openIfThere(config)
  if (store === null) return null
  await using _store = store
  const { trialsOf } = await import('../store/trials.ts')
  const trials = await trialsOf(store.database, job)
  return trials.length === 0 ? null : trials
}
