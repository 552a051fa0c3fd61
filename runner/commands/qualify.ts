/** `closedbook qualify`: no-op and oracle, repeatedly, on this host; status 1 where a task does not qualify. */
import { copyFile } from 'node:fs/promises'
import path from 'node:path'
import type { Command } from 'commander'
import { RunnerError } from '../errors.ts'
import { exitCode } from '../exit-codes.ts'
import { writeError } from '../json-file.ts'
import { evidenceFile, type Qualification } from '../qualify/document.ts'
import { qualify } from '../qualify/qualify.ts'
import { renderQualification } from '../qualify/render.ts'
import { wantsColor } from '../report/terminal.ts'
import { loadTask } from '../task/load.ts'
import { note, print, printJson, withContext } from './context.ts'
import { addHarborFlags, harborOptionsOf, type HarborFlags } from './harbor-flags.ts'
import { Progress } from './progress.ts'

interface QualifyFlags extends HarborFlags {
  repeats?: number
  concurrency?: number
  html?: string
  hostName?: string
  fresh?: boolean
}

/** A whole number above zero, for `option`. */
export const wholeNumber =
  (flag: string) =>
  (text: string): number => {
    const value = Number(text)
    if (Number.isInteger(value) && value > 0) return value
    throw new RunnerError('usage', 'operator', `${flag} ${text}: give a whole number above zero`)
  }

export function addQualify(program: Command): void {
  addHarborFlags(program.command('qualify'))
    .description(
      'show that tasks can be trusted: no-op must fail, oracle must pass, test by test, again and again',
    )
    .argument('<task...>', 'task directories')
    .option(
      '--repeats <n>',
      'runs of no-op and of oracle, each; default 3',
      wholeNumber('--repeats'),
    )
    .option(
      '--concurrency <n>',
      'trials at a time; default 1, so that times are clean',
      wholeNumber('--concurrency'),
    )
    .option('--fresh', 'start over where an interrupted one would be gone on with')
    .option('--html <file>', 'write the report for reviewers there too (one task)')
    .option('--host-name <name>', 'what to call this host in the evidence; default: its name')
    .option('--json', 'print one JSON line a task')
    .action(async (dirs: string[], flags: QualifyFlags, command: Command) =>
      withContext(command, async ({ client, config, json, signal }) => {
        if (flags.html !== undefined && dirs.length > 1)
          throw new RunnerError(
            'usage',
            'operator',
            '--html FILE is for one task; each has its own report in closedbook/',
          )
        const tasks = []
        for (const dir of dirs) tasks.push(await loadTask(dir, harborOptionsOf(flags)))
        for (const task of tasks) {
          const { document, digest, directory } = await withProgress((progress) =>
            qualify(
              task,
              {
                repeats: flags.repeats ?? 3,
                concurrency: flags.concurrency ?? 1,
                hostName: flags.hostName ?? null,
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
          const page = evidenceFile(task.dir, 'qualification.html')
          if (flags.html !== undefined) await copy(page, path.resolve(flags.html))
          if (!document.qualified) process.exitCode = exitCode.failure
          if (json) printJson(lineOf(document, digest, task.dir, directory))
          else {
            print(renderQualification(document, { color: wantsColor(process.stdout, process.env) }))
            note(`written to ${path.dirname(page)}; evidence in ${directory}`)
          }
        }
      }),
    )
}

export async function withProgress<T>(work: (progress: Progress) => Promise<T>): Promise<T> {
  using progress = new Progress()
  return await work(progress)
}

async function copy(from: string, to: string): Promise<void> {
  try {
    await copyFile(from, to)
  } catch (error) {
    throw writeError(to, error)
  }
}

const lineOf = (document: Qualification, digest: string, dir: string, directory: string) => ({
  task: document.task,
  qualified: document.qualified,
  digest,
  findings: document.findings,
  flaky: document.tests.filter(({ flaky }) => flaky).map(({ id }) => id),
  expected: document.expected,
  limits: document.limits,
  times: document.times,
  trials: document.trials,
  digests: document.digests,
  document: path.join(dir, 'closedbook', 'qualification.json'),
  evidence: directory,
})
