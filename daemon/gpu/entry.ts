/** What the pool knows of one GPU, and how it is told to others. */
import type { GpuState, GpuView } from '../protocol/gpu.ts'
import type { GrantedGpu } from './grant.ts'
import type { GpuReading } from './inventory.ts'

export interface Entry {
  readonly uuid: string
  readonly name: string
  reading: GpuReading | null
  state: GpuState
  reason: string | null
  lease: string | null
  /** Its lease has closed, and it isn't known to be empty yet. */
  returned: boolean
  /** Seen while it was leased, or in the kernel's log; cleared by a later look that finds it well. */
  fault: string | null
  xid: string | null
  since: string
  probedAt: string | null
  /** Instant before which a quarantined GPU isn't taken back. */
  heldUntil: number
  /** Numbers of the last look that saw it, and of the look or act that changed it: an older look doesn't change it again. */
  seen: number
  changed: number
}

/** Fit for nothing until it has been looked at. */
export function newEntry({ uuid, name }: GrantedGpu, reading: GpuReading | null): Entry {
  return {
    uuid,
    name,
    reading,
    state: 'quarantined',
    reason: null,
    lease: null,
    returned: false,
    fault: null,
    xid: null,
    since: new Date().toISOString(),
    probedAt: null,
    heldUntil: 0,
    seen: 0,
    changed: 0,
  }
}

export const told = (entries: readonly Entry[]): string =>
  entries
    .map(({ uuid, state, lease, reason }) =>
      state === 'leased'
        ? `${uuid} has lease ${lease}`
        : `${uuid} is ${state}${reason === null ? '' : ` (${reason})`}`,
    )
    .join('; ')

export function viewOf(entry: Entry): GpuView {
  const { uuid, name, reading, state, reason, lease, since, probedAt } = entry
  return {
    uuid,
    name,
    busId: reading?.busId ?? '',
    driver: reading?.driver ?? '',
    memoryBytes: reading?.memoryBytes ?? 0,
    memoryUsedBytes: reading?.memoryUsedBytes ?? 0,
    mig: reading?.mig ?? null,
    eccUncorrected: reading?.eccUncorrected ?? null,
    computeMode: reading?.computeMode ?? '',
    state,
    reason,
    lease,
    since,
    probedAt,
  }
}
