/** What a pty-host has done since its start, in numbers: they only grow. */
import { z } from 'zod'

const count = z.int().nonnegative()

export const tallySchema = z.strictObject({
  opened: count,
  attached: count,
  /** Put out by programs. */
  programBytes: count,
  /** Sent to those who look on: output and snapshots, without headers. */
  sentBytes: count,
  snapshots: count,
  /** Times that a viewer was told that bytes are missing for it, and how many. */
  gaps: count,
  gapBytes: count,
  /** Messages that were refused to a viewer: it typed, or asked to, and might not. */
  refused: count,
  /** Bytes of output that recordings lack. */
  unrecordedBytes: count,
})
export type Tally = z.infer<typeof tallySchema>

/** What a host answers to GET /counts. */
export const countsSchema = tallySchema.extend({
  /** Sockets of those who look on, now. */
  attachments: count.default(0),
})

export const newTally = (): Tally => ({
  opened: 0,
  attached: 0,
  programBytes: 0,
  sentBytes: 0,
  snapshots: 0,
  gaps: 0,
  gapBytes: 0,
  refused: 0,
  unrecordedBytes: 0,
})
