/** The job file: tasks x configurations x runs. Paths and globs in it are relative to the file. */
import { glob, stat } from 'node:fs/promises'
import { basename, dirname, join, resolve } from 'node:path'
import { z } from 'zod'
import { configFailure, readDocument } from '../document.ts'
import { zodMessage } from '../../daemon/protocol/zod-message.ts'
import { trajectoryOptionsSchema, type TrajectoryOptions } from '../harness/atif-schema.ts'
import { harborOptionsSchema, type HarborOptions } from '../task/options.ts'
import { policySchema } from '../../policy/policy.ts'
import { taskModes, type TaskMode } from '../qualify/gate.ts'
import {
  limitsSchema,
  loadConfiguration,
  resolveConfiguration,
  type Configuration,
  type ConfigurationDefaults,
} from './configuration.ts'

const trialsAtOnce = z.int().min(1).max(1000)

export const jobFileSchema = z.strictObject({
  name: z.string().min(1).max(100).optional(),
  tasks: z.array(z.string().min(1)).min(1).describe('task directories, or globs of them'),
  configurations: z
    .array(z.union([z.string().min(1), z.record(z.string(), z.unknown())]))
    .min(1)
    .describe('files, or configurations written out'),
  runs: z.int().min(1).max(1000).default(3),
  concurrency: z
    .union([
      trialsAtOnce,
      z.strictObject({
        trials: trialsAtOnce.default(1).describe('of the job'),
        perConfiguration: trialsAtOnce.optional(),
        perEndpoint: trialsAtOnce
          .optional()
          .describe('that talk to one model endpoint, those of other jobs counted'),
      }),
    ])
    .default(1)
    .describe('trials at a time'),
  require: z
    .enum(taskModes)
    .optional()
    .describe(
      'which tasks may be tried: qualified ones (default for a model), those that a review included, or any',
    ),
  budget: z
    .strictObject({ usd: z.number().positive() })
    .optional()
    .describe('no trial is begun that could go beyond it; trials that run are counted'),
  limits: limitsSchema
    .partial()
    .optional()
    .describe('for every configuration that does not say otherwise'),
  policy: z
    .union([z.string().min(1), policySchema])
    .optional()
    .describe('for every configuration without one'),
  prices: z.string().min(1).optional().describe('table of prices, for every model without a price'),
  out: z.string().min(1).optional().describe('directory of the job; default: in jobsDir'),
  harbor: harborOptionsSchema
    .optional()
    .describe('what only the operator may decide about tasks in plain Harbor form'),
  trajectory: trajectoryOptionsSchema.optional().describe('how trajectories are written'),
})

export interface JobSpec {
  readonly name: string
  readonly taskDirs: readonly string[]
  readonly configurations: readonly Configuration[]
  readonly runs: number
  readonly concurrency: {
    readonly trials: number
    readonly perConfiguration?: number | undefined
    readonly perEndpoint?: number | undefined
  }
  readonly require: TaskMode | null
  readonly budgetUsd: number | null
  readonly out: string | null
  readonly harbor: HarborOptions | null
  readonly trajectory: TrajectoryOptions | null
}

export async function loadJobFile(path: string): Promise<JobSpec> {
  const parsed = jobFileSchema.safeParse(await readDocument(path, 'job file'))
  if (!parsed.success) throw configFailure(path, zodMessage(parsed.error), parsed.error)
  const { data } = parsed
  const baseDir = dirname(resolve(path))
  const defaults: ConfigurationDefaults = {
    limits: data.limits,
    policy: typeof data.policy === 'string' ? resolve(baseDir, data.policy) : data.policy,
    prices: data.prices === undefined ? undefined : resolve(baseDir, data.prices),
  }
  const configurations: Configuration[] = []
  for (const [index, item] of data.configurations.entries())
    configurations.push(
      typeof item === 'string'
        ? await loadConfiguration(resolve(baseDir, item), { defaults })
        : await resolveConfiguration(item, {
            path: `${path}: configurations[${index}]`,
            defaultName: `configuration-${index + 1}`,
            baseDir,
            overrides: { defaults },
          }),
    )
  return {
    name: data.name ?? basename(path).replace(/\.(ya?ml|json)$/, ''),
    taskDirs: await findTasks(path, data.tasks, baseDir),
    configurations,
    runs: data.runs,
    concurrency:
      typeof data.concurrency === 'number' ? { trials: data.concurrency } : data.concurrency,
    require: data.require ?? null,
    budgetUsd: data.budget?.usd ?? null,
    out: data.out === undefined ? null : resolve(baseDir, data.out),
    harbor: data.harbor ?? null,
    trajectory: data.trajectory ?? null,
  }
}

/** Directories that hold a task.toml, sorted, each once. A pattern that finds none is an error, not a smaller job. */
export async function findTasks(
  where: string,
  patterns: readonly string[],
  baseDir: string,
): Promise<readonly string[]> {
  const found = new Set<string>()
  for (const pattern of patterns) {
    const matches: string[] = []
    if (!/[*?[{]/.test(pattern)) matches.push(pattern)
    else for await (const match of glob(pattern, { cwd: baseDir })) matches.push(match)
    const dirs: string[] = []
    for (const match of matches) {
      const dir = resolve(baseDir, match)
      const isTask = await stat(join(dir, 'task.toml')).then(
        (facts) => facts.isFile(),
        () => false,
      )
      if (isTask) dirs.push(dir)
    }
    if (dirs.length === 0)
      throw configFailure(
        where,
        `tasks: "${pattern}" names no directory with a task.toml (looked in ${baseDir}); correct the path or remove it`,
      )
    for (const dir of dirs) found.add(dir)
  }
  return [...found].sort()
}
