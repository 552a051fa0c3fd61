/**
 * The life of a lease as a table of legal moves. An illegal move is a bug of ours and throws a plain Error; a call
 * in the wrong state is the caller's mistake and names the action and the state.
 */
import { LeaseError } from '../errors.ts'
import type { LeaseState } from '../protocol/lease.ts'

const after = {
  admitted: ['creating', 'closing'],
  creating: ['sealing', 'ready', 'closing'],
  sealing: ['proving', 'ready', 'closing'],
  proving: ['ready', 'closing'],
  ready: ['frozen', 'closing'],
  frozen: ['closing'],
  closing: ['closed'],
  closed: [],
} as const satisfies Record<LeaseState, readonly LeaseState[]>

export function move(from: LeaseState, to: LeaseState): LeaseState {
  const legal: readonly LeaseState[] = after[from]
  if (!legal.includes(to)) throw new Error(`illegal lease move ${from} → ${to}`)
  return to
}

export function requireState(
  lease: string,
  state: LeaseState,
  allowed: readonly LeaseState[],
  action: string,
): void {
  if (allowed.includes(state)) return
  throw new LeaseError(
    'lease_wrong_state',
    'caller',
    `cannot ${action} lease ${lease}: it is ${state}, and that needs ${allowed.join(' or ')}`,
    { facts: { lease, state, action } },
  )
}
