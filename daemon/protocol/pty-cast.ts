/**
 * Recordings: asciicast v2 with output (`o`), sizes (`r`), markers (`m`) and, as the last line, the exit (`x`). Times are
 * absolute seconds, so that a lost line shifts no other. A last line that a crash tore is no line.
 */
import { z } from 'zod'

export const castHeaderSchema = z.looseObject({
  version: z.literal(2),
  width: z.int().positive(),
  height: z.int().positive(),
  timestamp: z.number().optional(),
  title: z.string().optional(),
  env: z.record(z.string(), z.string()).optional(),
})
export type CastHeader = z.infer<typeof castHeaderSchema>

const castEventSchema = z.tuple([z.number().nonnegative(), z.string(), z.string()])
export interface CastEvent {
  /** Seconds since the start. */
  readonly time: number
  readonly code: string
  readonly data: string
}

export interface Cast {
  readonly header: CastHeader
  readonly events: readonly CastEvent[]
  /** The last line was torn, and is left out. */
  readonly torn: boolean
}

export const castLine = (seconds: number, code: string, data: string): string =>
  `[${seconds.toFixed(3)}, "${code}", ${JSON.stringify(data)}]\n`

/** Throws SyntaxError with the line that is wrong. */
export function parseCast(text: string): Cast {
  const lines = text.split('\n')
  const rest = lines.pop() ?? ''
  const torn = rest.trim() !== '' && parseEvent(rest) === null
  if (rest.trim() !== '' && !torn) lines.push(rest)
  const header = castHeaderSchema.safeParse(parsed(lines[0] ?? ''))
  if (!header.success) throw new SyntaxError('line 1 is no header of asciicast v2')
  const events: CastEvent[] = []
  for (const [index, line] of lines.entries()) {
    if (index === 0 || line.trim() === '') continue
    const event = parseEvent(line)
    if (event === null) throw new SyntaxError(`line ${index + 1} is no event of asciicast v2`)
    events.push(event)
  }
  return { header: header.data, events, torn }
}

function parseEvent(line: string): CastEvent | null {
  const event = castEventSchema.safeParse(parsed(line))
  if (!event.success) return null
  const [time, code, data] = event.data
  return { time, code, data }
}

function parsed(line: string): unknown {
  try {
    return JSON.parse(line)
  } catch {
    return null
  }
}
