/**
 * Which GPUs a lease gets. Pure: the same GPUs in the same states give the same answer, in the order of their places on
 * the bus (neighbours are the likelier to be linked), never by an index that a restart or MIG may change.
 */
import type { GpuState } from '../protocol/gpu.ts'

export interface Candidate {
  readonly uuid: string
  readonly busId: string
  readonly state: GpuState
}

export type Allocation =
  | { readonly kind: 'granted'; readonly uuids: readonly string[] }
  /** Leases hold them, and give them back. */
  | { readonly kind: 'busy' }
  /** Even with every lease closed there would be too few. */
  | { readonly kind: 'unavailable' }
  | { readonly kind: 'never' }

export function allocate(gpus: readonly Candidate[], wanted: number): Allocation {
  if (wanted > gpus.length) return { kind: 'never' }
  const inState = (state: GpuState): readonly Candidate[] =>
    gpus.filter((gpu) => gpu.state === state)
  const free = inState('free')
  if (free.length >= wanted)
    return {
      kind: 'granted',
      uuids: free
        .toSorted((a, b) => compare(a.busId, b.busId) || compare(a.uuid, b.uuid))
        .slice(0, wanted)
        .map(({ uuid }) => uuid),
    }
  return free.length + inState('leased').length >= wanted
    ? { kind: 'busy' }
    : { kind: 'unavailable' }
}

const compare = (a: string, b: string): number => (a < b ? -1 : a > b ? 1 : 0)
