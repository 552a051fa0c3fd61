/**
 * `closedbook logs [-f] TRIAL`: the steps of a trial's newest execution, as they were or as they come; from its files,
 * or where they are not here from the board of the daemon that is meant.
 */
import { watch, type FSWatcher } from 'node:fs'
import { stat } from 'node:fs/promises'
import path from 'node:path'
import type { Command } from 'commander'
import type { DaemonClient } from '../../daemon/protocol/client.ts'
import { RemoteError } from '../../daemon/protocol/errors.ts'
import { targetName } from '../../daemon/protocol/target.ts'
import { findPublished, publishedSteps, type PublishedTrial } from '../board/read-trial.ts'
import type { RunnerConfig } from '../config.ts'
import { RunnerError } from '../errors.ts'
import { findTrial, newestExecution, type FoundTrial } from '../job/find-trial.ts'
import { ledgerFile } from '../job/layout.ts'
import { readLedger } from '../job/ledger.ts'
import { foldTrial } from '../job/trial-state.ts'
import { renderStep } from '../report/render-step.ts'
import { wantsColor } from '../report/terminal.ts'
import { evidenceNames, readSteps } from '../trial/evidence.ts'
import type { Step } from '../step-log.ts'
import { note, print, printJson, withContext, type Context } from './context.ts'

const pollMs = 300
const anotherExecution = '· another execution has begun'

interface Asked extends Pick<Context, 'json' | 'signal' | 'client'> {
  readonly follow: boolean
  readonly show: (step: Step) => void
}

export function addLogs(program: Command): void {
  program
    .command('logs')
    .description(
      'the steps of a trial: what the model said, what it ran, what was blocked; of a trial of another host by --url',
    )
    .argument('<trial>', 'id or the beginning of one')
    .option('-f, --follow', 'go on until the trial is recorded')
    .option('--json', 'one JSON step a line')
    .action(async (text: string, options: { follow?: boolean }, command: Command) =>
      withContext(command, async ({ config, json, signal, client }) => {
        const color = wantsColor(process.stdout, process.env)
        let shown = 0
        const asked: Asked = {
          ...{ json, signal, client, follow: options.follow === true },
          show: (step) => {
            shown += 1
            if (json) printJson(step)
            else print(renderStep(step, { color }))
          },
        }
        const found = await findTrial(config.jobsDir, text)
        if (found !== null) await fromFiles(found, asked)
        else await fromBoard(await requirePublished(text, config, client), asked)
        if (shown === 0 && !json) note('no step yet')
      }),
    )
}

async function fromFiles(found: FoundTrial, { follow, signal, show }: Asked): Promise<void> {
  let shown = { execution: '', steps: 0 }
  const before = { ledger: '', steps: '' }
  let done = false
  while (!signal.aborted) {
    // what has not changed is not read again
    const ledger = await stateOf(ledgerFile(found.jobDir))
    if (ledger !== before.ledger) done = await isSettled(found)
    before.ledger = ledger
    const execution = await newestExecution(found)
    if (execution !== null && execution !== shown.execution) {
      if (shown.execution !== '') note(anotherExecution)
      shown = { execution, steps: 0 }
    }
    let seen = 0
    const steps = execution === null ? '' : await stateOf(path.join(execution, evidenceNames.steps))
    if (execution !== null && `${execution} ${steps}` !== before.steps)
      for await (const step of readSteps(execution)) {
        seen += 1
        if (seen > shown.steps) show(step)
      }
    before.steps = `${execution} ${steps}`
    shown.steps = Math.max(shown.steps, seen)
    if (done || !follow) return
    await changed(execution ?? found.trialDir, signal)
  }
}

/** What the daemon has of it: a trial of another host, or of another directory. */
async function requirePublished(
  text: string,
  { jobsDir, url }: Pick<RunnerConfig, 'jobsDir' | 'url'>,
  client: DaemonClient,
): Promise<PublishedTrial> {
  const published = await findPublished(client, text).catch((error: unknown) => {
    // without a daemon files are all there is
    if (url === undefined && error instanceof RemoteError && error.code === 'daemon_unreachable')
      return null
    throw error
  })
  if (published !== null) return published
  throw new RunnerError(
    'trial_unknown',
    'operator',
    `no trial in ${jobsDir} or on the board of ${targetName(client.target)} has an id that is or begins with ${JSON.stringify(text)}; \`closedbook ps latest\` shows those of ${jobsDir}`,
  )
}

async function fromBoard(trial: PublishedTrial, asked: Asked): Promise<void> {
  const { client, follow, signal, show } = asked
  let last = ''
  let lost = false
  for await (const { execution, step } of publishedSteps(client, trial, {
    ...{ follow, signal },
    onState: (state, retryMs) => {
      if (state === 'lost' && !lost) note(`· connection lost; next try in ${retryMs} ms`)
      else if (state === 'connected' && lost) note('· connected again')
      lost = state === 'lost'
    },
    onSilence: (since) =>
      note(`· its runner was not heard of since ${since}; if it is dead, resume the job there`),
  })) {
    if (last !== '' && execution !== last) note(anotherExecution)
    last = execution
    show(step)
  }
}

async function isSettled({ jobDir, planned }: FoundTrial): Promise<boolean> {
  const { records } = await readLedger(ledgerFile(jobDir))
  return foldTrial(planned.trial, records).status === 'recorded'
}

const stateOf = async (file: string): Promise<string> =>
  stat(file).then(
    ({ ino, size, mtimeMs }) => `${ino} ${size} ${mtimeMs}`,
    () => 'not there',
  )

/**
 * Wakes when a file of the directory changed, and after a moment in any case: not every file system tells, and a trial
 * that waits for its turn has no directory yet.
 */
async function changed(directory: string, signal: AbortSignal): Promise<void> {
  await new Promise<void>((resolve) => {
    const watcher = watcherOf(path.resolve(directory))
    const done = (): void => {
      clearTimeout(timer)
      signal.removeEventListener('abort', done)
      watcher?.close()
      resolve()
    }
    const timer = setTimeout(done, pollMs)
    watcher?.once('change', done)
    watcher?.once('error', done)
    signal.addEventListener('abort', done, { once: true })
  })
}

function watcherOf(directory: string): FSWatcher | null {
  try {
    return watch(directory, { persistent: false })
  } catch {
    return null
  }
}
