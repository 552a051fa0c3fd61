/**
 * A recorded model exchange: JSON lines, one model call a line, in the order the calls were made. The model gateway
 * writes this file for a live upstream (`record: true`) and serves it again for `upstream: {kind: "replay"}`.
 * On replay, call n is answered by line n; where the line carries a `request`, the number of assistant turns in the
 * sandbox's request must be the recorded one, else the gateway refuses with `replay_mismatch`. Counting tokens is no
 * model call: such lines are served to such requests, in an order of their own.
 */
import { z } from 'zod'

export const recordedApis = [
  'openai.chat',
  'openai.responses',
  'anthropic.messages',
  'anthropic.count',
] as const

export const recordedCallSchema = z.strictObject({
  v: z.literal(1),
  n: z.int().nonnegative(),
  api: z.enum(recordedApis),
  /** Facts of the request that a replay checks; `body` is kept for readers of a live recording. */
  request: z
    .strictObject({
      model: z.string(),
      assistantTurns: z.int().nonnegative(),
      body: z.unknown().optional(),
    })
    .optional(),
  response: z.strictObject({
    status: z.int().min(100).max(599),
    headers: z.record(z.string(), z.string()).default({}),
    /** The JSON body of a plain answer, or the `data:` payloads of a streamed one, without a final [DONE]. */
    body: z.unknown().optional(),
    events: z.array(z.unknown()).optional(),
  }),
  /** How long the upstream took; a replay answers at once unless `pace` is asked for. */
  latencyMs: z.number().nonnegative().default(0),
})
export type RecordedCall = z.infer<typeof recordedCallSchema>
