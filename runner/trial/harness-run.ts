/** What a harness is to the agent phase: what it needs opened, and the work that it does there. */
import type { Exit } from '../../daemon/protocol/exec-frames.ts'
import type { LeaseRequestInput } from '../../daemon/protocol/lease.ts'
import { hardLimitSeconds } from '../harness/mini-swe-agent.ts'
import type { ExecutionContext } from './context.ts'
import type { HeldLease } from './held-lease.ts'

/** What a harness does in its sandboxes; one for each kind. */
export interface HarnessRun {
  /** Requests to be merged into those of the task's lease. */
  readonly task: Partial<LeaseRequestInput>
  /** The lease of a harness beside the task; null for one that works inside it. */
  readonly harness: LeaseRequestInput | null
  /** Runs to its end; null where there is nothing to run. */
  readonly work: ((sandboxes: Sandboxes, signal: AbortSignal) => Promise<HarnessEnd>) | null
}

export interface Sandboxes {
  readonly task: Promise<HeldLease>
  readonly harness: HeldLease | null
}

export interface HarnessEnd {
  readonly exit: Exit
  readonly timedOut: boolean
  /** Ended by us since nothing was heard of it. */
  readonly hung?: boolean
  /** The harness's own account, as bytes; null where it left none or has none. */
  readonly trajectory: Uint8Array | null
  /** Settings that the harness says it used otherwise than we set them. */
  readonly ignoredSettings?: (reported: unknown) => readonly string[]
}

/** The time of the agent phase: the configuration's limit or the task's, whichever is shorter. */
export const agentTimeMs = ({ configuration, task }: ExecutionContext): number =>
  Math.min(configuration.limits.wallTimeSeconds, task.agent.timeoutSeconds ?? Infinity) * 1000

/** When we end a harness from outside that keeps the time itself: its own end comes first. */
export const agentLimitMs = ({ configuration, task }: ExecutionContext): number => {
  const limit = hardLimitSeconds(configuration.limits)
  return Math.min(limit, (task.agent.timeoutSeconds ?? Infinity) + 60) * 1000
}
