/**
 * Where a set of trials lies. One that was interrupted is gone on with: the newest that has the same task, image,
 * agents and number of runs, lacks a result, and isn't being run by a living process. Recorded results stand; a trial
 * that ended void by infra is tried again.
 */
import { readFile, readdir } from 'node:fs/promises'
import path from 'node:path'
import { RunnerError } from '../errors.ts'
import { executionDir, planFile, resultFile } from '../job/layout.ts'
import { readPlan, writePlan, type Plan, type PlannedTrial } from '../job/plan.ts'
import { makeDirectory } from '../json-file.ts'
import { resultSchema, type TrialResult } from '../result.ts'
import { textDigest } from '../task/tree.ts'
import { SetLock } from './set-lock.ts'

export interface EndedTrial {
  readonly planned: PlannedTrial
  readonly result: TrialResult
  /** Of its bytes on disk. */
  readonly digest: string
  /** Of the execution that counts. */
  readonly directory: string
}

export interface OpenSet extends AsyncDisposable {
  readonly plan: Plan
  readonly directory: string
  /** What an interrupted run of it has recorded. */
  readonly ended: readonly EndedTrial[]
}

/** `make` is the plan of a new one. */
export async function openSet(
  evidence: string,
  make: Plan,
  { fresh }: { readonly fresh: boolean },
): Promise<OpenSet> {
  // There is no store here to keep a key in, so whether values of the host are the same is not known.
  const takesValues = make.tasks.some(({ hostEnv }) => hostEnv !== undefined)
  const before = fresh || takesValues ? null : await findInterrupted(evidence, make)
  if (before !== null) return before
  const directory = path.join(evidence, make.job)
  await makeDirectory(directory)
  await writePlan(planFile(directory), make)
  const lock = await SetLock.acquire(directory)
  return { plan: make, directory, ended: [], [Symbol.asyncDispose]: () => dispose(lock) }
}

const dispose = (lock: SetLock): Promise<void> => lock[Symbol.asyncDispose]()

async function findInterrupted(evidence: string, wanted: Plan): Promise<OpenSet | null> {
  const prefix = wanted.job.slice(0, wanted.job.indexOf('-') + 1)
  const names = await readdir(evidence).catch(() => [])
  for (const name of names
    .filter((one) => one.startsWith(prefix))
    .toSorted()
    .toReversed()) {
    const directory = path.join(evidence, name)
    const plan = await readPlan(planFile(directory)).catch(() => null)
    if (plan === null || contentOf(plan) !== contentOf(wanted)) continue
    // The newest like it is whole: what is asked for is another one.
    if ((await endedOf(plan, directory)).length === plan.trials.length) return null
    const lock = await SetLock.acquire(directory).catch((error: unknown) => {
      if (error instanceof RunnerError && error.code === 'job_locked') return null
      throw error
    })
    if (lock === null) continue
    // Whoever had it until now may have recorded more, up to the last.
    const ended = await endedOf(plan, directory)
    if (ended.length < plan.trials.length)
      return { plan, directory, ended, [Symbol.asyncDispose]: () => dispose(lock) }
    await dispose(lock)
    return null
  }
  return null
}

/** What makes two sets the same: all but when they were planned, and the ids that follow from that. */
function contentOf({ name, runs, closedbookVersion, tasks, configurations }: Plan): string {
  return JSON.stringify([
    ...[name, runs, closedbookVersion],
    tasks.map(({ digest, image, verifierImage = null }) => [digest, image, verifierImage]),
    configurations.map((one) => [one.name, one.digest, one.harnessDigest]),
  ])
}

/** A result that is damaged, or of something else, is none: its trial runs again. */
async function endedOf(plan: Plan, directory: string): Promise<EndedTrial[]> {
  const ended: EndedTrial[] = []
  for (const planned of plan.trials) {
    const bytes = await readFile(resultFile(directory, planned.trial)).catch(() => null)
    if (bytes === null) continue
    const result = recorded(bytes)
    if (result?.trial !== planned.trial) continue
    const counts = result.executions.at(-1)?.id
    if ((result.verdict === 'void' && result.blame === 'infra') || counts === undefined) continue
    ended.push({
      planned,
      result,
      digest: textDigest(bytes),
      directory: executionDir(directory, planned.trial, counts),
    })
  }
  return ended
}

function recorded(bytes: Buffer): TrialResult | null {
  try {
    return resultSchema.parse(JSON.parse(bytes.toString()))
  } catch {
    return null
  }
}
