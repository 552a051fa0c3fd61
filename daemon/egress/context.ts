/** What all listeners of one lease share, and the two or three steps that they all take. */
import type { Socket } from 'node:net'
import type { AuditRecord } from '../../policy/audit-event.ts'
import { deny, type Decision } from '../../policy/decision.ts'
import type { Policy } from '../../policy/policy.ts'
import { printable } from '../../policy/printable.ts'
import type { AuditLog } from './audit-log.ts'
import type { ByteMeter } from './byte-meter.ts'
import type { EgressLimits, Gate } from './limits.ts'
import type { Pace } from './pace.ts'
import type { Route } from './route.ts'

export interface EgressContext {
  readonly policy: Policy
  readonly audit: AuditLog
  readonly route: Route
  readonly limits: EgressLimits
  /** Tunnels and requests under way. */
  readonly gate: Gate
  /** Of answers to what is denied. */
  readonly pace: Pace
  /** What they have carried. */
  readonly meter: ByteMeter
  /** Aborts when the egress of the lease is shut. */
  readonly signal: AbortSignal
}

/** What is known of an attempt when it is recorded. */
export type Attempt = Pick<AuditRecord, 'protocol' | 'host' | 'address' | 'port' | 'connection'>

/** The way in for one allowed attempt; else the decision against it. */
export function admit({ gate, meter }: EgressContext): Disposable | Decision {
  if (meter.full) return deny('limit_bytes', 'limits')
  return gate.enter() ?? deny('limit_conns', 'limits')
}

/** Writes the decision down. Throws once the log has failed: then nothing may go on. */
export function record(
  context: EgressContext,
  attempt: Attempt,
  decision: Pick<Decision, 'action' | 'reason'>,
  detail?: string,
): void {
  const { action, reason } = decision
  context.audit.append({
    kind: 'decision',
    ...attempt,
    action,
    reason,
    ...(detail === undefined ? {} : { detail: printable(detail, 1024) }),
  })
}

export interface Traffic {
  readonly bytesUp: number
  readonly bytesDown: number
  readonly detail: string
}

export function recordClose(context: EgressContext, attempt: Attempt, traffic: Traffic): void {
  context.audit.append({ kind: 'close', ...attempt, action: 'none', reason: null, ...traffic })
}

/** The address that the sandbox used, as IPv4 where it is one. */
export function destination(socket: Socket): string | null {
  const address = socket.localAddress
  return address === undefined ? null : address.replace(/^::ffff:(?=\d+\.)/, '')
}

/** Aborts when the socket closes or the egress is shut; the listeners go when this is disposed. */
export function whileOpen(
  context: EgressContext,
  socket: Socket,
): Disposable & { signal: AbortSignal } {
  const controller = new AbortController()
  const end = (why: string): void => controller.abort(new DOMException(why, 'AbortError'))
  const gone = (): void => end('client gone')
  const shut = (): void => end('egress shut')
  socket.once('close', gone)
  context.signal.addEventListener('abort', shut, { once: true })
  if (context.signal.aborted) shut()
  else if (socket.destroyed) gone()
  return {
    signal: controller.signal,
    [Symbol.dispose]: () => {
      socket.off('close', gone)
      context.signal.removeEventListener('abort', shut)
    },
  }
}
