/** Reading asciicast v2, leniently: what is no line of it is passed over. Pure. */
export interface CastEvent {
  readonly time: number
  readonly code: string
  readonly data: string
}

export interface Cast {
  readonly cols: number
  readonly rows: number
  /** Seconds since 1970; null where the recording does not say. */
  readonly startedAt: number | null
  readonly events: readonly CastEvent[]
  readonly duration: number
}

export function readCast(text: string): Cast | null {
  const [first = '', ...rest] = text.split('\n')
  const header = parsed(first) as {
    version?: unknown
    width?: unknown
    height?: unknown
    timestamp?: unknown
  } | null
  if (header === null || header.version !== 2) return null
  const events: CastEvent[] = []
  for (const line of rest) {
    const value = parsed(line)
    if (!Array.isArray(value)) continue
    const [time, code, data] = value as unknown[]
    if (typeof time === 'number' && typeof code === 'string')
      events.push({ time, code, data: typeof data === 'string' ? data : '' })
  }
  return {
    cols: sizeOf(header.width, 120),
    rows: sizeOf(header.height, 40),
    startedAt: typeof header.timestamp === 'number' ? header.timestamp : null,
    events,
    duration: events.at(-1)?.time ?? 0,
  }
}

const sizeOf = (value: unknown, fallback: number): number =>
  typeof value === 'number' && value >= 2 && value <= 1000 ? Math.trunc(value) : fallback

function parsed(line: string): unknown {
  try {
    return JSON.parse(line)
  } catch {
    return null
  }
}

/** Of a resize event, `COLSxROWS`. */
export function castSize(data: string): { cols: number; rows: number } | null {
  const [, cols, rows] = /^(\d{1,4})x(\d{1,4})$/.exec(data) ?? []
  return cols === undefined || rows === undefined
    ? null
    : { cols: sizeOf(Number(cols), 80), rows: sizeOf(Number(rows), 24) }
}
