/** Who is told what happens in a job while it runs: the progress on a terminal, a dashboard. None of it may fail. */
import type { Phase, TrialReason, TrialResult } from '../result.ts'
import type { Step } from '../step-log.ts'
import type { PlannedTrial } from './plan.ts'

export interface JobWatcher {
  started(trial: PlannedTrial, execution: string): void
  phase(trial: PlannedTrial, phase: Phase): void
  step(trial: PlannedTrial, step: Step): void
  note(trial: PlannedTrial, text: string): void
  faulted(trial: PlannedTrial, reason: TrialReason, again: boolean): void
  recorded(trial: PlannedTrial, result: TrialResult): void
}
