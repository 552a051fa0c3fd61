/**
 * The end of the agent phase: gateways shut, every process but PID 1 killed and proven gone, and what the kernel counted
 * read while it is still there. What the engine was just starting appears after a first round of SIGKILL, so there are
 * three.
 */
import { LeaseError } from '../errors.ts'
import type { Logger } from '../logger.ts'
import type { FreezeReport } from '../protocol/lease.ts'
import { settleAccountFiles } from './account-files.ts'
import { diskUsage } from './disk-usage.ts'
import type { ExecRecorder } from './exec-recorder.ts'
import type { LeaseParts } from './lease-parts.ts'
import type { LeasePtys } from './lease-ptys.ts'

const deadlineMs = 20_000

export interface Killed {
  readonly killed: number
  readonly rounds: number
  /** Whether nothing but PID 1 was left. */
  readonly empty: boolean
}

export interface Freezing {
  readonly lease: string
  readonly parts: LeaseParts
  readonly ptys: LeasePtys
  readonly recorder: ExecRecorder
  /** Ends the wait when the lease is closed meanwhile. */
  readonly signal: AbortSignal
  /** Brings the census up to date. */
  readonly count: () => Promise<void>
  readonly log: Logger
}

/** Throws `freeze_failed` where a process survived, `gpu_lost` where the work may not have had its GPU. */
export async function freezeSandbox(freezing: Freezing): Promise<FreezeReport> {
  const { lease, parts, ptys, recorder, signal } = freezing
  const gateways = [parts.model, parts.huggingFace]
  const shut = Promise.all(gateways.map(async (gateway) => gateway?.shut()))
  const [first] = await Promise.all([killWork(parts, signal), shut])
  await ptys.opened()
  await killWork(parts, signal)
  const settled = await recorder.idle(deadlineMs)
  const last = await killWork(parts, signal)
  const outcome = {
    killed: first.killed + last.killed,
    rounds: first.rounds + last.rounds,
    empty: settled && last.empty,
  }
  if (!outcome.empty)
    throw new LeaseError(
      'freeze_failed',
      'infra',
      `processes of lease ${lease} survived ${outcome.rounds} rounds of SIGKILL`,
    )
  const lost = await parts.gpus?.lost(parts.cgroup)
  if (lost != null)
    throw new LeaseError(
      'gpu_lost',
      'infra',
      `lease ${lease} lost a GPU: ${lost}; what ran on it doesn't count`,
    )
  await Promise.all([freezing.count(), settle(freezing)])
  const stats = parts.cgroup?.stats()
  return {
    ...outcome,
    oomKills: stats?.oomKills ?? 0,
    pidsLimitHits: stats?.pidsLimitHits ?? 0,
    memoryPeakBytes: stats?.memoryPeakBytes ?? null,
    cpuMs: stats?.cpuMs ?? null,
    diskUsedBytes: (await diskUsage(parts.upperDir))?.bytes ?? null,
    diskLimitHit: parts.disk?.hit ?? false,
  }
}

/** Every process but PID 1. */
export async function killWork({ cgroup, pid }: LeaseParts, signal: AbortSignal): Promise<Killed> {
  if (cgroup === null) return { killed: 0, rounds: 0, empty: true }
  return cgroup.killAllBut(pid, { deadlineMs, signal })
}

async function settle({ lease, parts, log }: Freezing): Promise<void> {
  await settleAccountFiles(parts.pid).catch((error: unknown) =>
    log.warn({ leaseId: lease, err: error }, 'lease.account-files'),
  )
}
