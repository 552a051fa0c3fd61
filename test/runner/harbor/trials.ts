/** Single trials of task directories against a real daemon, without a job around them: what trials need, and no store. */
import { mkdir } from 'node:fs/promises'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { taskImageId, verifierImageId } from '../../../runner/host/images.ts'
import { resolveConfiguration } from '../../../runner/job/configuration.ts'
import { makePlan, plainHarnessDigest } from '../../../runner/job/plan.ts'
import type { TrialResult } from '../../../runner/result.ts'
import { loadTask } from '../../../runner/task/load.ts'
import type { LoadOptions } from '../../../runner/task/options.ts'
import { trialResult } from '../../../runner/trial/record.ts'
import { PristineCache } from '../../../runner/trial/pristine-cache.ts'
import { executeTrial, type Measured } from '../../../runner/trial/trial.ts'
import type { TestDaemon } from '../../support/daemon.ts'

export const harborTask = (name: string): string =>
  fileURLToPath(new URL(`../../fixtures/harbor/${name}`, import.meta.url))

export interface TriedTask {
  readonly result: TrialResult
  readonly measured: Measured
  /** Of its one execution: evidence, and `harbor/` in it. */
  readonly directory: string
  readonly notes: readonly string[]
}

let count = 0
const letters = 'abcdefghijkmnpqrstuvwxyz'
const opaque = (): string =>
  `l${Array.from({ length: 15 }, () => letters[Math.floor(Math.random() * letters.length)]).join('')}`

/** One trial, one execution; `configuration` as in a job file. */
export async function tryTask(
  daemon: TestDaemon,
  dir: string,
  configuration: Readonly<Record<string, unknown>>,
  options: LoadOptions & { readonly baseDir?: string } = {},
): Promise<TriedTask> {
  const { client, stateDir } = daemon
  const host = { client, stateDir, say: () => {} }
  const task = await loadTask(dir, options)
  const one = await resolveConfiguration(configuration, {
    path: 'the test',
    defaultName: 'one',
    baseDir: options.baseDir ?? dir,
  })
  const plan = makePlan({
    name: 'harbor',
    tasks: [
      {
        task,
        image: await taskImageId(task, host),
        verifierImage: await verifierImageId(task, host),
      },
    ],
    configurations: [{ configuration: one, harnessDigest: plainHarnessDigest(one, '0') }],
    runs: 1,
    closedbookVersion: '0',
    now: new Date(),
  })
  const [planned] = plan.trials
  if (planned === undefined) throw new Error('a plan of one trial')
  const directory = path.join(stateDir, 'tries', `${(count += 1)}`, 'x1-test')
  await mkdir(path.dirname(directory), { recursive: true })
  const notes: string[] = []
  const measured = await executeTrial({
    plan,
    planned,
    tasks: new Map([[task.name, task]]),
    configurations: new Map([[one.name, one]]),
    client,
    signal: new AbortController().signal,
    execution: 'x1-test',
    directory,
    leases: {
      task: opaque(),
      harness: opaque(),
      pristine: opaque(),
      functional: opaque(),
      regression: opaque(),
    },
    pristine: new PristineCache(),
    queueMs: 0,
    watch: {
      started: () => {},
      phase: () => {},
      step: () => {},
      note: (_trial, text) => void notes.push(text),
      faulted: () => {},
      recorded: () => {},
    },
  })
  const { startedAt, endedAt, blame, reason } = measured
  const executions = [{ execution: 'x1-test', leases: [], startedAt, endedAt, blame, reason }]
  return {
    result: trialResult({ plan, planned, measured, executions }),
    measured,
    directory,
    notes,
  }
}
