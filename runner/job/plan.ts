/**
 * The locked plan of a job: every trial that will be scored, and the digests of all that can change an outcome. The
 * denominator is fixed here. Trial ids are opaque (a container's name tells nothing) and follow from job, task,
 * configuration and run, so that the same plan always names the same trials.
 */
import { createHash } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import { z } from 'zod'
import { priceSchema } from '../../daemon/protocol/lease.ts'
import { RunnerError, messageOf, systemCode } from '../errors.ts'
import { trajectoryOptionsSchema, type TrajectoryOptions } from '../harness/atif-schema.ts'
import { harnessText } from '../harness/harness.ts'
import { writeJsonAtomic } from '../json-file.ts'
import { opaque, opaqueOf } from '../opaque.ts'
import type { Task } from '../task/task.ts'
import { zodMessage } from '../../daemon/protocol/zod-message.ts'
import { canonicalJson, settingsOf, type Configuration } from './configuration.ts'
import { sealedValues, valueDifferences, type Seal } from './host-values.ts'

export const planSchemaName = 'closedbook.plan/1'
const digest = z.string().regex(/^sha256:[0-9a-f]{64}$/)

const plannedTaskSchema = z.strictObject({
  name: z.string(),
  dir: z.string(),
  area: z.string(),
  hardware: z.enum(['cpu', 'h100']),
  digest,
  testsDigest: digest,
  instructionDigest: digest,
  /** Image id that every container of the task is started by. */
  image: digest,
  /** Where its hidden tests run, when that is an image of their own. */
  verifierImage: digest.optional(),
  /** What it asks for and isn't given. */
  network: z
    .strictObject({ asked: z.enum(['public', 'allowlist']), hosts: z.array(z.string()) })
    .optional(),
  /** Variables of the host that it is given, each sealed; `host-values.ts` says how. Absent: none, or a plan of before. */
  hostEnv: z.record(z.string(), z.string()).optional(),
  /** The evidence that it was qualified; null or absent: it was not. */
  qualification: z
    .strictObject({
      digest: z.string(),
      at: z.string(),
      /** The decision made over it, where there is one. */
      review: z
        .strictObject({ decision: z.enum(['include', 'exclude']), by: z.string(), at: z.string() })
        .nullable()
        .optional(),
    })
    .nullable()
    .optional(),
})
export type PlannedTask = z.infer<typeof plannedTaskSchema>

const plannedConfigurationSchema = z.strictObject({
  name: z.string(),
  harness: z.string(),
  model: z.string().nullable(),
  /** Of everything that was set, script and policy included. */
  digest,
  /** Of what drives the model: the harness image id, or the name of a harness without one. */
  harnessDigest: digest,
  policyDigest: digest,
  price: priceSchema.nullable(),
  settings: z.record(z.string(), z.json()),
})
export type PlannedConfiguration = z.infer<typeof plannedConfigurationSchema>

const plannedTrialSchema = z.strictObject({
  trial: z.string(),
  task: z.string(),
  configuration: z.string(),
  run: z.int().positive(),
})
export type PlannedTrial = z.infer<typeof plannedTrialSchema>

export const planSchema = z.strictObject({
  schema: z.literal(planSchemaName),
  job: z.string(),
  name: z.string(),
  createdAt: z.iso.datetime(),
  closedbookVersion: z.string(),
  runs: z.int().positive(),
  tasks: z.array(plannedTaskSchema).min(1),
  configurations: z.array(plannedConfigurationSchema).min(1),
  trials: z.array(plannedTrialSchema).min(1),
  /** How trajectories are written; no outcome depends on it. */
  trajectory: trajectoryOptionsSchema.optional(),
})
export type Plan = z.infer<typeof planSchema>

export interface PlanInput {
  readonly name: string
  readonly tasks: readonly {
    readonly task: Task
    readonly image: string
    readonly verifierImage?: string | null
    readonly qualification?: PlannedTask['qualification']
  }[]
  readonly configurations: readonly {
    readonly configuration: Configuration
    readonly harnessDigest: string
  }[]
  readonly runs: number
  readonly closedbookVersion: string
  readonly now: Date
  readonly job?: string
  readonly trajectory?: TrajectoryOptions | undefined
  /** For values that tasks take from the host; absent: only whether they are set is planned. */
  readonly seal?: Seal | undefined
}

/** Sorts by time of creation: `j` + UTC seconds + four random characters. */
export function newJobId(now: Date): string {
  const stamp = now.toISOString().replace(/[-:]/g, '').replace('T', '-').slice(0, 15)
  return `j${stamp}-${opaque(4)}`
}

export function trialId(job: string, task: string, configuration: string, run: number): string {
  const hash = createHash('sha256')
    .update(JSON.stringify([job, task, configuration, run]))
    .digest()
  return `t${opaqueOf(hash, 15)}`
}

export const policyDigestOf = (policy: unknown): string =>
  `sha256:${createHash('sha256').update(canonicalJson(policy)).digest('hex')}`

/** For harnesses that have no image: noop, oracle, script. */
export const plainHarnessDigest = (
  configuration: Configuration,
  closedbookVersion: string,
): string =>
  `sha256:${createHash('sha256').update(`${configuration.harness.kind}\n${configuration.digest}\n${closedbookVersion}`).digest('hex')}`

export function makePlan(input: PlanInput): Plan {
  requireDistinct(
    'task',
    input.tasks.map(({ task }) => task.name),
  )
  requireDistinct(
    'configuration',
    input.configurations.map(({ configuration }) => configuration.name),
  )
  const job = input.job ?? newJobId(input.now)
  const tasks = input.tasks.map(({ task, image, verifierImage, qualification }) => ({
    ...plannedTask(task, image, verifierImage, input.seal),
    ...(qualification !== undefined && { qualification }),
  }))
  const configurations = input.configurations.map(({ configuration, harnessDigest }) =>
    plannedConfiguration(configuration, harnessDigest),
  )
  const trials: PlannedTrial[] = []
  for (let run = 1; run <= input.runs; run++)
    for (const configuration of configurations)
      for (const task of tasks)
        trials.push({
          trial: trialId(job, task.name, configuration.name, run),
          task: task.name,
          configuration: configuration.name,
          run,
        })
  return planSchema.parse({
    schema: planSchemaName,
    job,
    name: input.name,
    createdAt: input.now.toISOString(),
    closedbookVersion: input.closedbookVersion,
    runs: input.runs,
    tasks,
    configurations,
    trials,
    ...(input.trajectory !== undefined && { trajectory: input.trajectory }),
  })
}

export const plannedTask = (
  task: Task,
  image: string,
  verifierImage: string | null = null,
  seal: Seal | null = null,
): PlannedTask => {
  const hostEnv = sealedValues(task, seal)
  return {
    name: task.name,
    dir: task.dir,
    area: task.area,
    hardware: task.hardware,
    digest: task.digest,
    testsDigest: task.testsDigest,
    instructionDigest: task.instructionDigest,
    image,
    ...(verifierImage !== null && { verifierImage }),
    ...(task.network !== null && {
      network: { asked: task.network.asked, hosts: [...task.network.hosts] },
    }),
    ...(hostEnv !== null && { hostEnv }),
  }
}

export const plannedConfiguration = (
  configuration: Configuration,
  harnessDigest: string,
): PlannedConfiguration => ({
  name: configuration.name,
  harness: harnessText(configuration.harness),
  model: configuration.model?.name ?? null,
  digest: configuration.digest,
  harnessDigest,
  policyDigest: policyDigestOf(configuration.policy),
  price: configuration.model?.price ?? null,
  settings: settingsOf(configuration),
})

function requireDistinct(what: string, names: readonly string[]): void {
  const twice = names.find((name, index) => names.indexOf(name) !== index)
  if (twice === undefined) return
  throw new RunnerError(
    'config_invalid',
    'operator',
    `two ${what}s are called "${twice}"; a result names its ${what}, so rename one or leave it out`,
  )
}

export const writePlan = (path: string, plan: Plan): Promise<void> =>
  writeJsonAtomic(path, planSchema.parse(plan))

export async function readPlan(path: string): Promise<Plan> {
  const text = await readFile(path, 'utf8').catch((error: unknown) => {
    const missing = systemCode(error) === 'ENOENT' || systemCode(error) === 'ENOTDIR'
    throw new RunnerError(
      missing ? 'job_unknown' : 'plan_invalid',
      'operator',
      missing
        ? `no plan at ${path}; check the job's name`
        : `can't read ${path}: ${messageOf(error)}`,
      { cause: error },
    )
  })
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch (error) {
    throw new RunnerError('plan_invalid', 'operator', `${path} is not JSON: ${messageOf(error)}`, {
      cause: error,
    })
  }
  const parsed = planSchema.safeParse(value)
  if (parsed.success) return parsed.data
  throw new RunnerError(
    'plan_invalid',
    'operator',
    `${path} is not a ${planSchemaName}: ${zodMessage(parsed.error)}`,
    {
      cause: parsed.error,
    },
  )
}

/** A resumed job must be the job that was planned: throws `plan_changed` and names every difference. */
export function requireUnchanged(
  plan: Plan,
  current: {
    readonly tasks: readonly PlannedTask[]
    readonly configurations: readonly PlannedConfiguration[]
  },
): void {
  const changes = [
    ...differences('task', plan.tasks, current.tasks, ['digest', 'image', 'verifierImage']),
    ...plan.tasks.flatMap(({ name, hostEnv }) => {
      const now = current.tasks.find((task) => task.name === name)
      return now === undefined ? [] : valueDifferences(name, hostEnv, now.hostEnv)
    }),
    ...differences('configuration', plan.configurations, current.configurations, [
      'digest',
      'harnessDigest',
      'policyDigest',
    ]),
  ]
  if (changes.length === 0) return
  throw new RunnerError(
    'plan_changed',
    'operator',
    `job ${plan.job} can't go on: ${changes.join('; ')}. Put the planned version back, or start a new job`,
    { facts: { job: plan.job, changes } },
  )
}

function differences<T extends { readonly name: string }>(
  what: string,
  planned: readonly T[],
  current: readonly T[],
  keys: readonly (keyof T & string)[],
): string[] {
  return planned.flatMap((then) => {
    const now = current.find((item) => item.name === then.name)
    if (now === undefined) return [`${what} ${then.name} is gone`]
    return keys
      .filter((key) => then[key] !== now[key])
      .map(
        (key) =>
          `the ${key} of ${what} ${then.name} was ${String(then[key])} and is ${String(now[key])}`,
      )
  })
}
