/**
 * Whether the runner behind a published job still lives. It publishes a sign of life, `alive/<job>`, every half minute;
 * one that was killed publishes no end, so that its job stays `running`: it is shown as not heard of. Times are the
 * daemon's own, and so must `now` be. Nothing here needs Node: browsers use this file as it is.
 */
export const signOfLifeMs = 30_000
export const silentAfterMs = 4 * signOfLifeMs

/** Of `alive/<job>`. */
export interface AliveDocument {
  readonly job: string
  readonly host: string
}

/** Of a runner that publishes no signs of life: an agent may think for hours. */
const silentWithoutSignsMs = 24 * 3_600_000

export interface Heard {
  /** Of the newest thing that was published of the job, ISO 8601; empty: of none. */
  readonly last: string
  /** There were signs of life. */
  readonly signs: boolean
}

/** When its runner was heard of last, where that is too long ago; null while it may live. */
export function silentSince({ last, signs }: Heard, nowMs: number): string | null {
  const limitMs = signs ? silentAfterMs : silentWithoutSignsMs
  return last !== '' && nowMs - Date.parse(last) > limitMs ? last : null
}
