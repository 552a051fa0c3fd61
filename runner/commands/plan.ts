/** `closedbook plan`: what `run` would lock, with digests and what it may cost at most, without running anything. */
import type { Command } from 'commander'
import Table from 'cli-table3'
import type { Plan } from '../job/plan.ts'
import { dollars, durationText } from '../report/terminal.ts'
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
        print(
          `${plan.trials.length} trials = ${plan.tasks.length} tasks x ${plan.configurations.length} configurations x ${plan.runs} runs, ${limits.trialsAtOnce} at a time`,
        )
        print(
          `at most ${dollars(costUsd)}${limits.budgetUsd === null ? '' : ` (the budget stops it at ${dollars(limits.budgetUsd)})`} and ${durationText((seconds * 1000) / limits.trialsAtOnce)} of agents`,
        )
      }),
    )
}

const short = (digest: string): string => digest.replace('sha256:', '').slice(0, 12)

function show(plan: Plan): void {
  const tasks = new Table({ head: ['task', 'hardware', 'digest', 'image', 'qualified'], style })
  for (const { name, hardware, digest, image, qualification } of plan.tasks)
    tasks.push([name, hardware, short(digest), short(image), qualification?.at ?? 'no'])
  const configurations = new Table({
    head: ['configuration', 'harness', 'model', 'digest', 'harness digest', 'policy'],
    style,
  })
  for (const one of plan.configurations)
    configurations.push([
      one.name,
      one.harness,
      one.model ?? '',
      short(one.digest),
      short(one.harnessDigest),
      short(one.policyDigest),
    ])
  print(`${tasks.toString()}\n${configurations.toString()}`)
}

const style = { head: [], border: [] }
