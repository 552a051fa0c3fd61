/**
 * The record of a job that was graded again (`closedbook.regrade/1`). It lies in a directory of its own, laid out like a
 * job: a plan, results with what the agent did copied from the source and verdicts that are new, and this file, which
 * says for each trial what it was before. The source is only read.
 */
import { z } from 'zod'
import { blames, reasonSchema, verdicts } from '../result.ts'

const judged = z.strictObject({
  verdict: z.enum(verdicts),
  blame: z.enum(blames).nullable(),
  reason: reasonSchema,
})

export const regradeTrialSchema = z.strictObject({
  /** In this record, and in the source. */
  trial: z.string(),
  source: z.string(),
  task: z.string(),
  configuration: z.string(),
  run: z.int().positive(),
  before: judged,
  after: judged,
  /** `graded`: its work was verified again; `kept`: there was no work to verify; `impossible`: it can't be believed. */
  how: z.enum(['graded', 'kept', 'impossible']),
  changed: z.boolean(),
})
export type RegradeTrial = z.infer<typeof regradeTrialSchema>

export const regradeSchema = z.strictObject({
  schema: z.literal('closedbook.regrade/1'),
  job: z.string(),
  source: z.strictObject({ job: z.string(), directory: z.string() }),
  createdAt: z.iso.datetime(),
  closedbookVersion: z.string(),
  /** Whose tests or image are not those that were planned. */
  tasks: z.array(
    z.strictObject({
      name: z.string(),
      testsBefore: z.string(),
      tests: z.string(),
      imageBefore: z.string(),
      image: z.string(),
    }),
  ),
  trials: z.array(regradeTrialSchema),
  /** What a report holds against the files. */
  records: z.array(z.strictObject({ trial: z.string(), result: z.string(), digest: z.string() })),
})
export type RegradeRecord = z.infer<typeof regradeSchema>
