/**
 * What a trajectory of ours keeps to: Harbor's ATIF as its own models check it (unknown keys, ids, references, fields of
 * agents alone), and narrower where we never write what it allows: no pictures, no sound, no subagents. 1.7 and 1.8 differ
 * only in sound, so what is valid here is valid in both. Pure.
 */
import { z } from 'zod'

export const atifVersions = ['1.7', '1.8'] as const
export type AtifVersion = (typeof atifVersions)[number]
export const defaultAtifVersion: AtifVersion = '1.8'

export const trajectoryOptionsSchema = z.strictObject({
  atif: z
    .enum(atifVersions)
    .default(defaultAtifVersion)
    .describe(
      "version of Harbor's trajectory format that is written; Harbor up to 0.22 reads 1.7 at most",
    ),
})
export type TrajectoryOptions = z.infer<typeof trajectoryOptionsSchema>

/** Python's JSON readers refuse half a surrogate pair, which JavaScript's writer lets through. */
const wellFormed = (text: string): boolean => text.isWellFormed()
const text = z.string().refine(wellFormed, 'half a surrogate pair')
const count = z.int().nonnegative()
const usd = z.number().nonnegative()
const extra = z.record(z.string(), z.json()).optional()

const metricsSchema = z.strictObject({
  prompt_tokens: count,
  completion_tokens: count,
  cached_tokens: count,
  cost_usd: usd,
})

const promptSchema = z.strictObject({
  step_id: z.int(),
  source: z.enum(['system', 'user']),
  message: text,
})

const agentStepSchema = z.strictObject({
  step_id: z.int(),
  timestamp: z.iso.datetime().optional(),
  source: z.literal('agent'),
  message: text,
  reasoning_content: text.optional(),
  tool_calls: z
    .array(
      z.strictObject({
        tool_call_id: z.string().min(1),
        function_name: z.literal('bash'),
        arguments: z.strictObject({ command: text }),
      }),
    )
    .min(1)
    .optional(),
  observation: z
    .strictObject({
      results: z.array(z.strictObject({ source_call_id: z.string(), content: text })).min(1),
    })
    .optional(),
  metrics: metricsSchema.optional(),
  llm_call_count: z.int().min(0).max(1).optional(),
  extra,
})
export type AtifStep = z.infer<typeof promptSchema> | z.infer<typeof agentStepSchema>

export const atifSchema = z
  .strictObject({
    schema_version: z.enum(atifVersions.map((version) => `ATIF-v${version}` as const)),
    session_id: z.string().min(1),
    agent: z.strictObject({ name: text, version: text, model_name: text.optional() }),
    steps: z.array(z.discriminatedUnion('source', [promptSchema, agentStepSchema])).min(1),
    final_metrics: z.strictObject({
      total_prompt_tokens: count,
      total_completion_tokens: count,
      total_cached_tokens: count,
      total_cost_usd: usd,
      total_steps: z.int().positive(),
    }),
  })
  .superRefine(({ steps, final_metrics: total }, context) => {
    const wrong = (path: (string | number)[], message: string) =>
      context.addIssue({ code: 'custom', path, message })
    for (const [index, step] of steps.entries()) {
      if (step.step_id !== index + 1)
        wrong(['steps', index, 'step_id'], `${step.step_id}, and it is number ${index + 1}`)
      if (step.source === 'agent')
        for (const problem of agentProblems(step)) wrong(['steps', index], problem)
    }
    if (total.total_steps !== steps.length)
      wrong(['final_metrics', 'total_steps'], `there are ${steps.length}`)
  })
export type Atif = z.infer<typeof atifSchema>

function agentProblems(step: z.infer<typeof agentStepSchema>): string[] {
  const calls = (step.tool_calls ?? []).map((call) => call.tool_call_id)
  const answered = step.observation?.results.map((result) => result.source_call_id) ?? []
  return [
    ...(new Set(calls).size < calls.length ? ['two tool calls have one id'] : []),
    ...answered
      .filter((id) => !calls.includes(id))
      .map((id) => `an observation of ${id}, which is no call of this step`),
    ...(step.llm_call_count === 0 &&
    (step.metrics !== undefined || step.reasoning_content !== undefined)
      ? ['metrics or reasoning of a step without a model call']
      : []),
  ]
}

/** Empty where the document keeps to the format. */
export const atifProblems = (document: unknown): readonly string[] =>
  (atifSchema.safeParse(document).error?.issues ?? []).map(
    ({ path, message }) => `${path.join('.')}: ${message}`,
  )
