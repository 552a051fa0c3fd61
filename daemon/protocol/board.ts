/**
 * The board: JSON documents that runners publish for the dashboard, and numbered lines that grow (steps). The daemon
 * keeps and streams them and knows nothing of what they say. Each change has a number (`rev`), so that a reader who
 * was away gets what it missed, newest state only.
 */
import { z } from 'zod'

export const boardKindPattern = /^[a-z][a-z-]{0,30}$/
export const boardIdPattern = /^[A-Za-z0-9][A-Za-z0-9._-]{0,150}$/

/** Documents up to this travel with the change itself. */
export const inlineBytes = 32 * 1024

export const boardEntrySchema = z.strictObject({
  kind: z.string(),
  id: z.string(),
  rev: z.int().positive(),
  time: z.iso.datetime(),
  bytes: z.int(),
  /** Numbered lines, not a document. */
  lines: z.int().optional(),
  /** Where it was asked for, or is small. */
  document: z.json().optional(),
})
export type BoardEntry = z.infer<typeof boardEntrySchema>

export const boardListSchema = z.strictObject({
  /** What to follow changes from: `epoch-rev`. */
  at: z.string(),
  /** By the daemon's clock, as are the times of entries. */
  now: z.iso.datetime().optional(),
  entries: z.array(boardEntrySchema),
})
export type BoardList = z.infer<typeof boardListSchema>

export const boardQuerySchema = z.strictObject({
  prefix: z.string().max(200).optional(),
  suffix: z.string().max(200).optional(),
  /** With the documents themselves. */
  full: z.stringbool({ truthy: ['true'], falsy: ['false'] }).optional(),
})

export const boardPutSchema = z.strictObject({ rev: z.int().positive() })
/** How many there are now; a caller goes on from there. */
export const boardLinesSchema = z.strictObject({ lines: z.int().nonnegative() })

export const changesQuerySchema = z.strictObject({
  /** Comma-separated; absent: all. */
  kinds: z.string().max(400).optional(),
  prefix: z.string().max(200).optional(),
  /** `epoch-rev` of the last change seen; a Last-Event-ID header goes before it. Absent: from now on. */
  from: z.string().max(60).optional(),
})
