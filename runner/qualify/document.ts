/**
 * `<task>/closedbook/qualification.json`, schema `closedbook.qualification/1`: what no-op and oracle did on the task's
 * hardware, test by test, and what it was measured against. It lies with the task, outside of its digest. A document is
 * never edited; a new qualification replaces it whole.
 */
import { createHash } from 'node:crypto'
import { access, constants, readFile } from 'node:fs/promises'
import path from 'node:path'
import { z } from 'zod'
import { zodMessage } from '../../daemon/protocol/zod-message.ts'
import { messageOf, RunnerError, systemCode } from '../errors.ts'
import { makeDirectory, writeError, writeJsonAtomic } from '../json-file.ts'
import { blames, reasonSchema, testOutcomes, verdicts } from '../result.ts'
import { evidenceFolder } from '../task/tree.ts'

export const qualificationSchemaName = 'closedbook.qualification/1'

export const evidenceFile = (taskDir: string, name: string): string =>
  path.join(taskDir, evidenceFolder, name)
export const qualificationFile = (taskDir: string): string =>
  evidenceFile(taskDir, 'qualification.json')

const digest = z.string().regex(/^sha256:[0-9a-f]{64}$/)
const milliseconds = z.number().nonnegative()

/** What evidence about a task is bound to: each of these, changed, makes it stale. */
export const boundSchema = z.strictObject({
  task: digest,
  tests: digest,
  instruction: digest,
  /** Id of the image that the containers were started by. */
  image: digest,
  /** Of an image that is built from a Dockerfile: context and what it starts from, the same on every machine. */
  recipe: digest.nullable(),
})
export type Bound = z.infer<typeof boundSchema>

export const spreadSchema = z.strictObject({
  min: milliseconds,
  median: milliseconds,
  max: milliseconds,
})
export type Spread = z.infer<typeof spreadSchema>

export const agents = ['noop', 'oracle'] as const
export type Agent = (typeof agents)[number]

const timesSchema = z.strictObject({
  total: spreadSchema,
  phases: z.record(z.string(), spreadSchema),
  suites: z.record(z.string(), spreadSchema),
})
export type Times = z.infer<typeof timesSchema>

export const findingSchema = z.strictObject({
  code: z.string(),
  /** An error keeps a task from being qualified; a warning is for its author and reviewer. */
  severity: z.enum(['error', 'warning']),
  message: z.string(),
  advice: z.string(),
  tests: z.array(z.string()),
})
export type Finding = z.infer<typeof findingSchema>

export const limitSchema = z.strictObject({
  /** As it is written in task.toml. */
  key: z.string(),
  currentSeconds: z.number().nullable(),
  proposedSeconds: z.number(),
  because: z.string(),
})
export type ProposedLimit = z.infer<typeof limitSchema>

export const hostSchema = z.strictObject({
  name: z.string(),
  engine: z.string(),
  kernel: z.string(),
  cpus: z.number(),
  gpus: z.array(z.string()),
})

const outcomes = z.array(z.enum(testOutcomes))

export const qualifiedTestSchema = z.strictObject({
  suite: z.enum(['functional', 'regression']),
  id: z.string(),
  /** One outcome a repeat, in order. */
  noop: outcomes,
  oracle: outcomes,
  flaky: z.boolean(),
})
export type QualifiedTest = z.infer<typeof qualifiedTestSchema>

export const qualificationTrialSchema = z.strictObject({
  agent: z.enum(agents),
  run: z.int().positive(),
  trial: z.string(),
  verdict: z.enum(verdicts),
  blame: z.enum(blames).nullable(),
  reason: reasonSchema,
  wallTimeMs: milliseconds,
  /** Of the bytes of its result.json. */
  result: digest,
})

export const qualificationSchema = z.strictObject({
  schema: z.literal(qualificationSchemaName),
  task: z.string(),
  qualified: z.boolean(),
  startedAt: z.iso.datetime(),
  endedAt: z.iso.datetime(),
  closedbookVersion: z.string(),
  hardware: z.enum(['cpu', 'h100']),
  host: hostSchema,
  repeats: z.int().positive(),
  concurrency: z.int().positive(),
  digests: boundSchema,
  /** sha256 of each file of the task, so that what changed can be named; empty for a task of very many files. */
  files: z.record(z.string(), z.string()),
  findings: z.array(findingSchema),
  /** Ids that the oracle's runs reported in every repeat. */
  expected: z.strictObject({ functional: z.array(z.string()), regression: z.array(z.string()) }),
  tests: z.array(qualifiedTestSchema),
  times: z.strictObject({ noop: timesSchema.nullable(), oracle: timesSchema.nullable() }),
  limits: z.array(limitSchema),
  trials: z.array(qualificationTrialSchema),
  /** Name of the directory with results, reports, patches and logs, in the state directory of the host. */
  evidence: z.string(),
})
export type Qualification = z.infer<typeof qualificationSchema>

export interface ReadQualification {
  readonly document: Qualification
  /** Of its bytes: what a review and a plan name it by. */
  readonly digest: string
}

export const sha256 = (bytes: string | Uint8Array): string =>
  `sha256:${createHash('sha256').update(bytes).digest('hex')}`

/** null where the task was never qualified. */
export async function readQualification(taskDir: string): Promise<ReadQualification | null> {
  const read = await readEvidence(qualificationFile(taskDir), qualificationSchema)
  return read === null ? null : { document: read.value, digest: read.digest }
}

export async function writeQualification(
  taskDir: string,
  document: Qualification,
): Promise<ReadQualification> {
  const checked = qualificationSchema.parse(document)
  await writeJsonAtomic(qualificationFile(taskDir), checked)
  const read = await readQualification(taskDir)
  if (read === null) throw new Error('what was just written is gone')
  return read
}

/** Before hours of trials: the place where what they show will be written. */
export async function requireEvidencePlace(taskDir: string): Promise<void> {
  const folder = path.dirname(qualificationFile(taskDir))
  await makeDirectory(folder)
  await access(folder, constants.W_OK).catch((error: unknown) => {
    throw writeError(folder, error)
  })
}

/** A file of evidence that lies with a task; null where there is none, an error where it is damaged. */
export async function readEvidence<T>(
  file: string,
  schema: z.ZodType<T>,
): Promise<{ value: T; digest: string } | null> {
  const bytes = await readFile(file).catch((error: unknown) => {
    if (systemCode(error) === 'ENOENT' || systemCode(error) === 'ENOTDIR') return null
    throw damaged(file, messageOf(error))
  })
  if (bytes === null) return null
  let value: unknown
  try {
    value = JSON.parse(bytes.toString('utf8'))
  } catch (error) {
    throw damaged(file, messageOf(error))
  }
  const parsed = schema.safeParse(value)
  if (!parsed.success) throw damaged(file, zodMessage(parsed.error))
  return { value: parsed.data, digest: sha256(bytes) }
}

const damaged = (file: string, why: string): RunnerError =>
  new RunnerError(
    'task_invalid',
    'operator',
    `${file} is damaged or of another version (${why}); put the file back, or make it again with closedbook qualify or probe`,
    { facts: { path: file } },
  )
