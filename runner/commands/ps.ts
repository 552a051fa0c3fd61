/** `closedbook ps`: jobs, or the trials of one job, as their ledgers have them now. */
import type { Command } from 'commander'
import { findJob, ledgerFile, listJobs, planFile } from '../job/layout.ts'
import { readLedger } from '../job/ledger.ts'
import { readPlan, type Plan } from '../job/plan.ts'
import { foldTrial, type TrialState } from '../job/trial-state.ts'
import path from 'node:path'
import { note, print, printJson, withContext } from './context.ts'

export function addPs(program: Command): void {
  program
    .command('ps')
    .description('jobs, or with a job its trials')
    .argument('[job]', 'id, the beginning of one, or "latest"')
    .option('--json', 'print JSON')
    .action(async (job: string | undefined, _options: object, command: Command) =>
      withContext(command, async ({ config, json }) => {
        if (job !== undefined) return showTrials(await findJob(config.jobsDir, job), json)
        const jobs = []
        for (const name of await listJobs(config.jobsDir)) {
          const found = await load(path.join(config.jobsDir, name)).catch(() => null)
          if (found !== null) jobs.push({ job: name, ...summary(found) })
        }
        if (json) return printJson({ jobs })
        if (jobs.length === 0) return note(`no job in ${config.jobsDir}`)
        for (const one of jobs)
          print(
            `${one.job}  ${one.name}  ${one.recorded} of ${one.trials} recorded: ${one.passed} passed, ${one.failed} failed, ${one.void} void` +
              (one.running > 0 ? `; ${one.running} running` : ''),
          )
      }),
    )
}

async function load(dir: string): Promise<{ plan: Plan; states: TrialState[] }> {
  const plan = await readPlan(planFile(dir))
  const { records } = await readLedger(ledgerFile(dir))
  return { plan, states: plan.trials.map(({ trial }) => foldTrial(trial, records, null)) }
}

function summary({ plan, states }: { plan: Plan; states: readonly TrialState[] }) {
  const withVerdict = (verdict: string): number =>
    states.filter((state) => state.status === 'recorded' && state.verdict === verdict).length
  return {
    name: plan.name,
    trials: states.length,
    recorded: states.filter(({ status }) => status === 'recorded').length,
    running: states.filter(({ status }) => status === 'running').length,
    passed: withVerdict('passed'),
    failed: withVerdict('failed'),
    void: withVerdict('void'),
  }
}

async function showTrials(dir: string, json: boolean): Promise<void> {
  const { plan, states } = await load(dir)
  const trials = plan.trials.map((planned, index) => {
    const state = states[index]
    return {
      ...planned,
      status: state?.status ?? 'pending',
      verdict: state?.status === 'recorded' ? state.verdict : null,
      executions: state?.executions.length ?? 0,
    }
  })
  if (json) return printJson({ job: plan.job, trials })
  for (const { trial, task, configuration, run, status, verdict, executions } of trials)
    print(
      `${trial}  ${task}  ${configuration}  run ${run}  ${verdict ?? status}${executions > 1 ? `  (${executions} executions)` : ''}`,
    )
}
