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

/**
 * When its runner was heard of last, where that is too long ago; null while it lives. `heard`: times of what it has
 * published of the job, ISO 8601; for a runner that publishes no signs of life that is all there is.
 */
export function silentSince(heard: readonly string[], nowMs: number): string | null {
  const last = heard.reduce((newest, time) => (time > newest ? time : newest), '')
  if (last === '') return null
  return nowMs - Date.parse(last) > silentAfterMs ? last : null
}
