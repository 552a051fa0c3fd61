/**
 * Every TCP connection off loopback that no other listener serves ends here: accepted, so that its address is
 * known; recorded; reset, so that the program sees a refusal and not an empty answer. The port was rewritten on the
 * way, so it is unknown here; the kernel's census has it.
 */
import type { Socket } from 'node:net'
import { decide } from '../../policy/decide.ts'
import { destination, record, type EgressContext } from './context.ts'

export function serveTripwire(
  context: EgressContext,
  socket: Socket,
  nameOf: (address: string) => string | null,
): void {
  const address = destination(socket)
  const host = address === null ? null : nameOf(address)
  const attempt = { protocol: 'tcp', host, address, port: null } as const
  try {
    record(context, attempt, decide(context.policy, { kind: 'tcp' }))
  } finally {
    socket.resetAndDestroy()
  }
}
