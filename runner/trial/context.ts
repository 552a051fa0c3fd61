/** What every phase of one execution is given: one object carries the trial, its evidence, progress and the signal. */
import type { DaemonClient } from '../../daemon/protocol/client.ts'
import type { AtifVersion } from '../harness/atif-schema.ts'
import type { Configuration } from '../job/configuration.ts'
import { newLeaseId } from '../opaque.ts'
import type { Phase } from '../result.ts'
import type { Step } from '../step-log.ts'
import type { Task } from '../task/task.ts'
import type { Evidence } from './evidence.ts'
import type { PristineCache } from './pristine-cache.ts'

/** Leases of an execution, by role; ids are chosen before any is opened, so that a crash leaves none unknown. */
export interface LeaseIds {
  readonly task: string
  readonly harness: string
  readonly pristine: string
  readonly functional: string
  readonly regression: string
}

export const newLeaseIds = (): LeaseIds => ({
  task: newLeaseId(),
  harness: newLeaseId(),
  pristine: newLeaseId(),
  functional: newLeaseId(),
  regression: newLeaseId(),
})

export interface Watcher {
  phase(phase: Phase): void
  step(step: Step): void
  note(text: string): void
}

export interface ExecutionContext {
  readonly client: DaemonClient
  readonly job: string
  readonly trial: string
  readonly run: number
  readonly task: Task
  readonly configuration: Configuration
  /** Ids of the images that containers are started by. */
  readonly images: {
    readonly task: string
    readonly harness: string | null
    /** Where hidden tests run; null: in the task's. */
    readonly verifier: string | null
  }
  readonly leases: LeaseIds
  /** Of the trajectory for Harbor's tools. */
  readonly atif: AtifVersion
  readonly evidence: Evidence
  /** What went otherwise than the task says and isn't a fault; kept in the result. */
  readonly remarks: string[]
  readonly pristine: PristineCache
  readonly watch: Watcher
  readonly clock: PhaseClock
  readonly signal: AbortSignal
}

/** Milliseconds of each phase; a phase that is entered twice adds up. */
export class PhaseClock {
  readonly ms: Record<Phase, number> = {
    queue: 0,
    lease: 0,
    agent: 0,
    freeze: 0,
    collect: 0,
    verify: 0,
    close: 0,
  }

  async time<T>(phase: Phase, work: () => Promise<T>): Promise<T> {
    const started = performance.now()
    try {
      return await work()
    } finally {
      this.ms[phase] += Math.round(performance.now() - started)
    }
  }
}
