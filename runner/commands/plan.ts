/** `closedbook plan`: what `run` would lock, with digests and what it may cost at most, without running anything. */
import type { Command } from 'commander'
import type { Plan } from '../job/plan.ts'
import { boxText, type Box } from '../report/box.ts'
import { terminalWidth } from '../report/fit.ts'
import { dollars, durationText, painter, plural, wantsColor } from '../report/terminal.ts'
import { note, print, printJson, withContext } from './context.ts'
import { requestOf, withJobOptions, type RunOptions } from './run.ts'

export function addPlan(program: Command): void {
  withJobOptions(
    program.command('plan').description('show the plan that `run` would lock, without running it'),
  )
    .option('--json', 'print JSON: the plan, its limits and estimates')
    .action(async (job: string | undefined, options: RunOptions, command: Command) =>
      withContext(command, async ({ config, client, json, signal }) => {
        const request = await requestOf(job, options)
        const { previewPlan } = await import('../job/start-job.ts')
        const { loadsOf } = await import('../job/load-job.ts')
        const say = (what: string): void => note(`· ${what}`)
        const { plan, loaded, limits } = await previewPlan(request, { config, client, say, signal })
        const loads = loadsOf(loaded)
        const most = loaded.configurations.map(({ configuration }) => {
          const trials = plan.trials.filter((one) => one.configuration === configuration.name)
          const each = loads.get(configuration.name)?.ceilingUsd ?? 0
          return {
            configuration: configuration.name,
            trials: trials.length,
            costUsd: each * trials.length,
            agentSeconds: configuration.limits.wallTimeSeconds * trials.length,
          }
        })
        if (json) return printJson({ plan, limits, atMost: most })
        show(plan)
        const costUsd = most.reduce((sum, one) => sum + one.costUsd, 0)
        const seconds = most.reduce((sum, one) => sum + one.agentSeconds, 0)
        // the last trials may run alone, so the longest counts in full
        const longest = Math.max(
          ...loaded.configurations.map(({ configuration }) => configuration.limits.wallTimeSeconds),
        )
        const atOnce = limits.trialsAtOnce
        const longestSeconds = (seconds + longest * (atOnce - 1)) / atOnce
        print(
          `${plural(plan.trials.length, 'trial')} = ${plural(plan.tasks.length, 'task')} x ${plural(plan.configurations.length, 'configuration')} x ${plural(plan.runs, 'run')}, ${limits.trialsAtOnce} at a time`,
        )
        print(
          `at most ${dollars(costUsd)}${limits.budgetUsd === null ? '' : ` (the budget stops it at ${dollars(limits.budgetUsd)})`} and ${durationText(longestSeconds * 1000)} of agents`,
        )
      }),
    )
}

const short = (digest: string): string => digest.replace('sha256:', '').slice(0, 12)

const named = (...names: string[]): Box['columns'] => names.map((name) => ({ name }))

function show(plan: Plan): void {
  const tasks: Box = {
    columns: named('task', 'hardware', 'digest', 'image', 'qualified'),
    rows: plan.tasks.map(({ name, hardware, digest, image, qualification }) => {
      return [name, hardware, short(digest), short(image), qualification?.at ?? 'no']
    }),
    leaveOut: ['image', 'digest', 'qualified', 'hardware'],
  }
  const configurations: Box = {
    columns: named('configuration', 'harness', 'model', 'digest', 'harness digest', 'policy'),
    rows: plan.configurations.map((one) => [
      one.name,
      one.harness,
      one.model ?? '',
      short(one.digest),
      short(one.harnessDigest),
      short(one.policyDigest),
    ]),
    leaveOut: ['harness digest', 'policy', 'digest'],
  }
  const view = {
    paint: painter(process.stdout.isTTY && wantsColor(process.stdout, process.env)),
    width: terminalWidth(process.stdout),
  }
  for (const box of [tasks, configurations]) print(boxText(box, view))
}
