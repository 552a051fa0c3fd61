/** `<task>/closedbook/probe.json`, schema `closedbook.probe/1`: which cheats were tried against a task, and what came of each. */
import { z } from 'zod'
import { writeJsonAtomic } from '../json-file.ts'
import { boundSchema, evidenceFile, hostSchema, readEvidence } from '../qualify/document.ts'
import { blames, reasonSchema, verdicts } from '../result.ts'
import { outcomes } from './outcome.ts'

export const probeSchemaName = 'closedbook.probe/1'
export const probeFile = (taskDir: string): string => evidenceFile(taskDir, 'probe.json')

const digest = z.string().regex(/^sha256:[0-9a-f]{64}$/)
const count = z.int().nonnegative()

const ended = {
  trial: z.string(),
  verdict: z.enum(verdicts),
  blame: z.enum(blames).nullable(),
  reason: reasonSchema,
  /** Of the bytes of its result.json. */
  result: digest,
  /** Name of the directory with its evidence, in the state directory of the host. */
  evidence: z.string(),
}

export const probedSchema = z.strictObject({
  name: z.string(),
  tries: z.string(),
  must: z.array(z.string()),
  /** Of the cheat's own text; of the instruction for a model. */
  script: digest,
  outcome: z.enum(outcomes),
  hole: z.boolean(),
  unexpected: z.boolean(),
  ...ended,
  tried: count,
  skipped: z.string().nullable(),
  leaks: z.array(z.string()),
  notes: z.array(z.string()),
  denied: count,
  wallTimeMs: z.number().nonnegative(),
})
export type Probed = z.infer<typeof probedSchema>

export const honestSchema = z.strictObject({
  agent: z.enum(['noop', 'oracle']),
  ok: z.boolean(),
  ...ended,
})
export type Honest = z.infer<typeof honestSchema>

export const probeSchema = z.strictObject({
  schema: z.literal(probeSchemaName),
  task: z.string(),
  /** No hole, and honest work is judged as it is. */
  ok: z.boolean(),
  holes: count,
  startedAt: z.iso.datetime(),
  endedAt: z.iso.datetime(),
  closedbookVersion: z.string(),
  host: hostSchema,
  digests: boundSchema,
  /** Not the whole battery. Cheats that are tried again replace what is known of them, as long as the task is the same. */
  partial: z.boolean(),
  honest: z.array(honestSchema),
  cheats: z.array(probedSchema),
})
export type Probe = z.infer<typeof probeSchema>

export const readProbe = (taskDir: string): Promise<{ value: Probe; digest: string } | null> =>
  readEvidence(probeFile(taskDir), probeSchema)

export const writeProbe = (taskDir: string, probe: Probe): Promise<void> =>
  writeJsonAtomic(probeFile(taskDir), probeSchema.parse(probe))
