/**
 * What a viewer gets next: pure, so that the rule can be read and tested. Viewers never push back. One that is more than
 * 1 MiB behind loses its place; once it has taken what was sent, it gets a snapshot and goes on from there. One that
 * acknowledges has at most 1 MiB under way; one that doesn't, what its socket takes. A lossless viewer keeps its place,
 * and the session waits for it; without an acknowledgement in 10 s it is one like the others.
 */
import { outputWindowBytes } from '../protocol/pty-frames.ts'

export const behindLimitBytes = 1024 * 1024
/** A session that waits for a lossless viewer goes on below this. */
export const resumeBelowBytes = 512 * 1024
/** What may lie unwritten in a viewer's socket. */
export const socketWindowBytes = 256 * 1024
export const pieceBytes = 64 * 1024
export const coalesceMs = 5
export const losslessPatienceMs = 10_000
/** Input beyond this waits with its sender. */
export const inputLimitBytes = 256 * 1024

export interface Place {
  /** Offset of the next byte for this viewer. */
  readonly sent: number
  /** Up to where it said it has taken them; `sent` for one that says nothing. */
  readonly acked: number
  /** Bytes that its socket has not written yet. */
  readonly queued: number
  readonly lossless: boolean
  /** It lost its place and waits for a snapshot. */
  readonly lost: boolean
}

export interface Log {
  readonly start: number
  readonly end: number
}

export type Step =
  | { readonly do: 'wait' }
  | { readonly do: 'lose' }
  | { readonly do: 'snapshot' }
  | { readonly do: 'send'; readonly bytes: number }

const wait: Step = { do: 'wait' }

export function nextStep(place: Place, log: Log): Step {
  const underWay = place.sent - place.acked
  // Only when everything before has been taken: a snapshot a second that nobody sees would be a flood of its own.
  if (place.lost) return place.queued === 0 && underWay === 0 ? { do: 'snapshot' } : wait
  const behind = log.end - place.sent
  if (behind > behindLimitBytes && !place.lossless) return { do: 'lose' }
  if (place.sent < log.start) return { do: 'lose' }
  if (behind === 0 || place.queued >= socketWindowBytes || underWay >= outputWindowBytes)
    return wait
  return { do: 'send', bytes: Math.min(behind, pieceBytes, outputWindowBytes - underWay) }
}

/** Small output that follows on other output waits a moment for more; the first after a pause goes at once. */
export function delayMs(behindBytes: number, sinceLastSendMs: number): number {
  if (behindBytes >= pieceBytes || sinceLastSendMs >= coalesceMs) return 0
  return coalesceMs - sinceLastSendMs
}

/** How far behind a lossless viewer is, for the session that waits for it. */
export const lagOf = (place: Pick<Place, 'acked'>, log: Log): number => log.end - place.acked
