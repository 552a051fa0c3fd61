/** `closedbook probe`: cheats against tasks; status 1 where one gets through, or where honest work is judged otherwise. */
import os from 'node:os'
import type { Command } from 'commander'
import { RunnerError } from '../errors.ts'
import { exitCode } from '../exit-codes.ts'
import { loadConfiguration } from '../job/configuration.ts'
import { readCheats } from '../probe/cheat.ts'
import { probeFile } from '../probe/document.ts'
import { probe } from '../probe/probe.ts'
import { renderProbe } from '../probe/render.ts'
import { wantsColor } from '../report/terminal.ts'
import { loadTask } from '../task/load.ts'
import { note, print, printJson, withContext } from './context.ts'
import { addHarborFlags, harborOptionsOf, type HarborFlags } from './harbor-flags.ts'
import { wholeNumber, withProgress } from './qualify.ts'

interface ProbeFlags extends HarborFlags {
  only?: string
  list?: boolean
  model?: string
  modelRuns?: number
  concurrency?: number
  hostName?: string
  fresh?: boolean
}

export function addProbe(program: Command): void {
  addHarborFlags(program.command('probe'))
    .description(
      'try scripted cheats against tasks, as agents; none may pass, find out or get away',
    )
    .argument('[task...]', 'task directories')
    .option('--only <names>', 'some of the cheats, separated by commas')
    .option('--list', 'show what there is')
    .option('--model <config>', 'a configuration whose model is told to cheat, besides')
    .option('--model-runs <n>', 'runs of that model; default 1', wholeNumber('--model-runs'))
    .option('--concurrency <n>', 'trials at a time', wholeNumber('--concurrency'))
    .option('--fresh', 'start over where an interrupted one would be gone on with')
    .option('--host-name <name>', 'what to call this host in the evidence; default: its name')
    .option('--json', 'print one JSON line a task')
    .action(async (dirs: string[], flags: ProbeFlags, command: Command) =>
      withContext(command, async ({ client, config, json, signal }) => {
        const only = flags.only?.split(',').map((name) => name.trim()) ?? null
        if (flags.list === true) return listCheats(only, json)
        if (dirs.length === 0)
          throw new RunnerError('usage', 'operator', 'name a task directory, or ask for --list')
        const model = flags.model === undefined ? null : await loadConfiguration(flags.model)
        if (model !== null && model.harness.kind !== 'mini-swe-agent')
          throw new RunnerError(
            'usage',
            'operator',
            '--model needs a configuration of harness mini-swe-agent',
          )
        const tasks = []
        for (const dir of dirs) tasks.push(await loadTask(dir, harborOptionsOf(flags)))
        for (const task of tasks) {
          const { document, directory } = await withProgress((progress) =>
            probe(
              task,
              {
                only,
                concurrency:
                  flags.concurrency ?? Math.max(1, Math.min(4, os.availableParallelism())),
                hostName: flags.hostName ?? null,
                model,
                modelRuns: flags.modelRuns ?? 1,
                fresh: flags.fresh === true,
              },
              {
                client,
                stateDir: config.stateDir,
                signal,
                watch: progress,
                say: (text) => progress.say(`· ${text}`),
                onPlan: (plan, recorded) => progress.plan(plan.trials.length, recorded),
              },
            ),
          )
          if (!document.ok) process.exitCode = exitCode.failure
          if (json) printJson({ ...document, document: probeFile(task.dir), evidence: directory })
          else {
            print(renderProbe(document, { color: wantsColor(process.stdout, process.env) }))
            note(`written to ${probeFile(task.dir)}; evidence in ${directory}`)
          }
        }
      }),
    )
}

async function listCheats(only: readonly string[] | null, json: boolean): Promise<void> {
  for (const { name, tries, must, digest } of await readCheats(only))
    if (json) printJson({ name, tries, must, digest })
    else print(`${name.padEnd(22)} ${tries}`)
}
