/** `closedbook logs [-f] TRIAL`: the steps of a trial's newest execution, as they were or as they come. */
import { watch } from 'node:fs'
import path from 'node:path'
import type { Command } from 'commander'
import { newestExecution, requireTrial, type FoundTrial } from '../job/find-trial.ts'
import { ledgerFile } from '../job/layout.ts'
import { readLedger } from '../job/ledger.ts'
import { foldTrial } from '../job/trial-state.ts'
import { renderStep } from '../report/render-step.ts'
import { wantsColor } from '../report/terminal.ts'
import { readSteps } from '../trial/evidence.ts'
import { note, print, printJson, withContext } from './context.ts'

const pollMs = 300

export function addLogs(program: Command): void {
  program
    .command('logs')
    .description('the steps of a trial: what the model said, what it ran, what was blocked')
    .argument('<trial>', 'id or the beginning of one')
    .option('-f, --follow', 'go on until the trial is recorded')
    .option('--json', 'one JSON step a line')
    .action(async (text: string, options: { follow?: boolean }, command: Command) =>
      withContext(command, async ({ config, json, signal }) => {
        const found = await requireTrial(config.jobsDir, text)
        const color = wantsColor(process.stdout, process.env)
        let shown = { execution: '', steps: 0 }
        while (!signal.aborted) {
          const done = await isSettled(found)
          const execution = await newestExecution(found)
          if (execution !== null && execution !== shown.execution) {
            if (shown.execution !== '') note('· another execution has begun')
            shown = { execution, steps: 0 }
          }
          let seen = 0
          if (execution !== null)
            for await (const step of readSteps(execution)) {
              seen += 1
              if (seen <= shown.steps) continue
              if (json) printJson(step)
              else print(renderStep(step, { color }))
            }
          shown.steps = Math.max(shown.steps, seen)
          if (done || options.follow !== true) break
          await changed(execution ?? found.trialDir, signal)
        }
        if (shown.steps === 0 && !json) note('no step yet')
      }),
    )
}

async function isSettled({ jobDir, planned }: FoundTrial): Promise<boolean> {
  const { records } = await readLedger(ledgerFile(jobDir))
  return foldTrial(planned.trial, records).status === 'recorded'
}

/** Wakes when a file of the directory changed, and after a moment in any case: not every file system tells. */
async function changed(directory: string, signal: AbortSignal): Promise<void> {
  await new Promise<void>((resolve) => {
    const watcher = watch(path.resolve(directory), { persistent: false })
    const done = (): void => {
      clearTimeout(timer)
      watcher.close()
      resolve()
    }
    const timer = setTimeout(done, pollMs)
    watcher.once('change', done)
    watcher.once('error', done)
    signal.addEventListener('abort', done, { once: true })
  })
}
