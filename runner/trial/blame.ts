/**
 * What a thrown fault means for a trial, by phase and code. What the agent caused is a failure; faults of infrastructure
 * and providers void the execution, and it is run again; faults of the task or the operator void it and are not run
 * again, for a repetition would end the same way. Pure. (How a harness ended is told by `classifyEnd`.)
 */
import type { Blame } from '../../daemon/protocol/errors.ts'
import type { Phase, TrialBlame } from '../result.ts'

export type TrialPhase = Exclude<Phase, 'queue'> | 'record'

export interface FaultRuling {
  readonly verdict: 'failed' | 'void'
  readonly blame: TrialBlame
  /** Whether another execution may end differently. */
  readonly retry: boolean
}

const ruling = (blame: TrialBlame, retry = false): FaultRuling => ({
  verdict: blame === 'agent' ? 'failed' : 'void',
  blame,
  retry,
})

/** Codes whose blame depends on the phase they appear in, or that say more than the blame they carry. */
const byCode: Readonly<
  Record<string, (phase: TrialPhase, blame: Blame) => FaultRuling | undefined>
> = {
  // Room on this host, not anything wrong: wait and try again.
  lease_no_capacity: () => ruling('infra', true),
  gpu_unavailable: () => ruling('infra', true),
  // A plan that names an image which the host doesn't have, or not by digest, stays wrong.
  image_missing: () => ruling('operator'),
  image_not_pinned: () => ruling('task'),
  image_build_failed: () => ruling('task'),
  spec_refused: () => ruling('task'),
  lease_refused: (_phase, blame) => ruling(blame === 'task' ? 'task' : 'operator'),
  // The lease ran out while the agent still worked: its own time limit should have come first.
  lease_expired: (phase) => ruling(phase === 'agent' ? 'operator' : 'infra', phase !== 'agent'),
  config_invalid: () => ruling('operator'),
  cancelled: () => ruling('operator'),
}

export function ruleFault(
  phase: TrialPhase,
  fault: { readonly code: string; readonly blame: Blame },
): FaultRuling {
  const special = Object.hasOwn(byCode, fault.code) ? byCode[fault.code] : undefined
  const found = special?.(phase, fault.blame)
  if (found !== undefined) return found
  switch (fault.blame) {
    case 'agent':
      // Before it began and after it was frozen an agent can cause nothing but a bad tree.
      return phase === 'lease' || phase === 'close' || phase === 'record'
        ? ruling('infra', true)
        : ruling('agent')
    case 'infra':
      return ruling('infra', true)
    case 'task':
      return ruling('task')
    case 'operator':
      return ruling('operator')
    case 'caller':
      // We sent the daemon something that it refuses: our bug, and it will refuse it again.
      return ruling('infra')
  }
}
