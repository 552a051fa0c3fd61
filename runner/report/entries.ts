/**
 * What a report is made from, wherever it was read: one entry for each planned trial, with its result or why there is
 * none. A job's plan fixes the entries; result files alone are taken for the full grid of what they name (every task
 * with every run of every configuration of a job), and a hole in it counts as an unscored trial.
 */
import type { Plan } from '../job/plan.ts'
import type { TrialResult } from '../result.ts'
import type { BlockedRow } from './blocked.ts'
import type { Notice } from './notices.ts'
import { qualificationOf, type TaskQualification } from './qualification.ts'

export interface TaskFacts {
  readonly name: string
  readonly digest: string
  readonly image: string | null
  readonly area: string
  readonly hardware: string
  /** null where only results are known, or the plan doesn't say. */
  readonly qualification: TaskQualification | null
  /** A network that it asks for, and is not given. */
  readonly network: { readonly asked: string; readonly hosts: readonly string[] } | null
}

export interface ConfigurationFacts {
  readonly name: string
  readonly model: string | null
  readonly harness: string
  readonly settings: TrialResult['configuration']['settings']
  readonly harnessDigest: string
}

export type Outcome =
  | { readonly kind: 'result'; readonly result: TrialResult }
  | { readonly kind: 'none' }
  /** A file that can't be read or believed. */
  | { readonly kind: 'unusable'; readonly why: string }

export interface Entry {
  readonly job: string
  readonly trial: string
  readonly task: TaskFacts
  /** null: a file that tells nothing, so that it may be any configuration's. */
  readonly configuration: ConfigurationFacts | null
  readonly run: number
  readonly outcome: Outcome
  /** Absolute path of its result. */
  readonly file: string | null
}

export interface JobFacts {
  readonly job: string
  readonly name: string
  readonly createdAt: string
  readonly closedbookVersion: string
  readonly directory: string | null
}

export interface ReportInput {
  readonly from: 'plan' | 'files'
  readonly jobs: readonly JobFacts[]
  readonly entries: readonly Entry[]
  readonly blocked: readonly BlockedRow[]
  readonly notices: readonly Notice[]
}

export function entriesOfPlan(
  plan: Plan,
  outcomeOf: (trial: string) => { readonly outcome: Outcome; readonly file: string | null },
): Entry[] {
  const tasks = new Map(plan.tasks.map((task) => [task.name, taskOfPlan(task)]))
  const configurations = new Map(plan.configurations.map((one) => [one.name, one]))
  return plan.trials.map(({ trial, task, configuration, run }) => ({
    job: plan.job,
    trial,
    task: tasks.get(task) ?? unknownTask(task),
    configuration: configurations.get(configuration) ?? null,
    run,
    ...outcomeOf(trial),
  }))
}

const taskOfPlan = (task: Plan['tasks'][number]): TaskFacts => ({
  name: task.name,
  digest: task.digest,
  image: task.image,
  area: task.area,
  hardware: task.hardware,
  qualification: qualificationOf(task),
  network: task.network ?? null,
})

export const unknownTask = (name: string): TaskFacts => ({
  name,
  digest: 'unknown',
  image: null,
  area: 'unspecified',
  hardware: 'unknown',
  qualification: null,
  network: null,
})

/** A result file: what it holds, or what could still be made out of it. */
export type FileReading =
  | {
      readonly ok: true
      readonly file: string
      readonly digest: string
      readonly result: TrialResult
    }
  | {
      readonly ok: false
      readonly file: string
      readonly why: string
      readonly salvaged: {
        readonly job: string | null
        readonly trial: string | null
        readonly task: string | null
        readonly configuration: string | null
        readonly run: number | null
      }
    }

/** One entry for each trial of the grid that the files span, in the order of job, run, configuration and task. */
export function entriesOfFiles(readings: readonly FileReading[]): Entry[] {
  const found = new Map<string, Entry>()
  const known = {
    tasks: new Map<string, TaskFacts>(),
    configurations: new Map<string, ConfigurationFacts>(),
  }
  for (const reading of readings) {
    if (!reading.ok) continue
    const entry = entryOf(reading)
    const key = keyOf(entry)
    const before = found.get(key)
    found.set(key, before === undefined ? entry : joined(before, entry))
    known.tasks.set(JSON.stringify([entry.job, entry.task.name]), entry.task)
    known.configurations.set(
      JSON.stringify([entry.job, entry.configuration?.name]),
      entry.configuration ?? never(),
    )
  }
  const lost: Entry[] = []
  for (const reading of readings) {
    if (reading.ok) continue
    const entry = damagedEntry(reading, known)
    const key = keyOf(entry)
    if (entry.configuration === null || entry.run === 0) lost.push(entry)
    else if (!found.has(key)) found.set(key, entry)
  }
  for (const hole of holes([...found.values()])) {
    // A file that tells nothing is taken for one of what is missing.
    const file = lost.shift()
    found.set(
      keyOf(hole),
      file === undefined ? hole : { ...hole, outcome: file.outcome, file: file.file },
    )
  }
  return [...found.values(), ...lost].toSorted(inOrder)
}

const never = (): never => {
  throw new TypeError('a result names its configuration')
}

const keyOf = ({ job, task, configuration, run }: Entry): string =>
  JSON.stringify([job, task.name, configuration?.name, run])

function entryOf({ result, file }: Extract<FileReading, { ok: true }>): Entry {
  const { task, configuration, digests, network } = result
  return {
    job: result.job,
    trial: result.trial,
    task: {
      ...task,
      image: digests.image,
      qualification: null,
      network: network === undefined ? null : { asked: network.asked, hosts: network.hosts },
    },
    configuration: {
      name: configuration.name,
      model: configuration.model,
      harness: configuration.harness,
      settings: configuration.settings,
      harnessDigest: digests.harness,
    },
    run: result.run,
    outcome: { kind: 'result', result },
    file,
  }
}

/** The same result twice is one; two that differ are none. */
function joined(before: Entry, next: Entry): Entry {
  const same = JSON.stringify(before.outcome) === JSON.stringify(next.outcome)
  if (same || before.outcome.kind !== 'result') return before
  return {
    ...before,
    outcome: {
      kind: 'unusable',
      why: `${before.file} and ${next.file} hold two different results of this trial`,
    },
  }
}

function damagedEntry(
  { file, why, salvaged }: Extract<FileReading, { ok: false }>,
  known: {
    tasks: ReadonlyMap<string, TaskFacts>
    configurations: ReadonlyMap<string, ConfigurationFacts>
  },
): Entry {
  const job = salvaged.job ?? 'unknown'
  const task = salvaged.task ?? 'unknown'
  const all = [...known.configurations.values()]
  const named = known.configurations.get(JSON.stringify([job, salvaged.configuration]))
  return {
    job,
    trial: salvaged.trial ?? 'unknown',
    task: known.tasks.get(JSON.stringify([job, task])) ?? unknownTask(task),
    configuration: named ?? (all.length === 1 ? (all[0] ?? null) : null),
    run: salvaged.run ?? 0,
    outcome: { kind: 'unusable', why },
    file,
  }
}

function holes(entries: readonly Entry[]): Entry[] {
  const there = new Set(entries.map(keyOf))
  const missing: Entry[] = []
  for (const own of Map.groupBy(entries, ({ job }) => job).values()) {
    const tasks = new Map(own.map((entry) => [entry.task.name, entry.task]))
    const configurations = new Map(
      own.map((entry) => [entry.configuration?.name, entry.configuration]),
    )
    const runs = own.reduce((most, { run }) => Math.max(most, run), 0)
    for (let run = 1; run <= runs; run++)
      for (const configuration of configurations.values())
        for (const task of tasks.values()) {
          const [first] = own
          if (first === undefined) continue
          const entry: Entry = {
            job: first.job,
            trial: 'unknown',
            task,
            configuration,
            run,
            outcome: { kind: 'none' },
            file: null,
          }
          if (!there.has(keyOf(entry))) missing.push(entry)
        }
  }
  return missing
}

const inOrder = (a: Entry, b: Entry): number =>
  compare(a.job, b.job) ||
  a.run - b.run ||
  compare(a.configuration?.name ?? '', b.configuration?.name ?? '') ||
  compare(a.task.name, b.task.name)

const compare = (a: string, b: string): number => (a < b ? -1 : a > b ? 1 : 0)
