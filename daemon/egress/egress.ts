/**
 * Serves the listeners of one lease's sealed network. They listen already, in the sandbox's namespace; here they get
 * their handlers. Every attempt goes through `decide()` and into the audit log before a byte flows. Dispose
 * ends every connection, and whatever still comes is closed at once: the owner of the namespace closes the listeners.
 */
import type { RemoteInfo, Socket as UdpSocket } from 'node:dgram'
import { setMaxListeners } from 'node:events'
import type { Server, Socket } from 'node:net'
import type { AuditEvent } from '../../policy/audit-event.ts'
import { deny } from '../../policy/decision.ts'
import { policyHash } from '../../policy/hash.ts'
import type { Policy } from '../../policy/policy.ts'
import { isPublic } from '../../policy/address.ts'
import type { AuditLog, AuditRules } from './audit-log.ts'
import { ByteMeter } from './byte-meter.ts'
import { destination, record, type EgressContext } from './context.ts'
import { dialTcp } from './dial.ts'
import { DnsListener } from './dns.ts'
import { HttpListener } from './http-listener.ts'
import { defaultLimits, Gate, limitsOf, type EgressLimits } from './limits.ts'
import { Pace } from './pace.ts'
import { Route, type Dial, type Resolve } from './route.ts'
import { serveTransparentTls } from './transparent-tls.ts'
import { serveTripwire } from './tripwire.ts'

export interface EgressListeners {
  /** 127.0.0.1:3128, the forward proxy. */
  readonly proxy: Server
  /** 0.0.0.0:443. */
  readonly tls: Server
  /** 0.0.0.0:80. */
  readonly http: Server
  /** 0.0.0.0:53. */
  readonly dnsTcp: Server
  readonly dnsUdp: UdpSocket
  /** 0.0.0.0:61999: other TCP off loopback is sent here by the kernel. */
  readonly tripwire: Server
}

export interface EgressOptions {
  readonly policy: Policy
  readonly audit: AuditLog
  /** What the log goes by beside the policy, which it stamps into each event. */
  readonly auditRules?: Omit<AuditRules, 'policy'>
  /** Called only for names that policy allows. */
  readonly resolve: Resolve
  readonly dial?: Dial
  /** Whether an address may be dialed; absent: only public ones. */
  readonly vet?: (address: string) => boolean
  readonly limits?: Partial<EgressLimits>
  /** True where the owner of the namespace records direct attempts by address and port: the tripwire only refuses. */
  readonly counted?: boolean
  /** Bytes that the lease had moved before a restart of the daemon. */
  readonly spentBytes?: number
  /** Shared by all leases of a daemon. */
  readonly gate?: Gate
  /** A fault of ours or of a listener; traffic that it concerned has been cut. */
  readonly onFault?: (error: unknown) => void
  readonly signal?: AbortSignal
}

export interface Egress extends AsyncDisposable {
  /** Sockets from the sandbox that are open. */
  readonly openSockets: number
  /** The allowed name that was answered with this address, for the records of whoever sees only addresses. */
  nameOf(address: string): string | null
}

export function serveEgress(listeners: EgressListeners, options: EgressOptions): Egress {
  const { policy, audit, resolve, dial = dialTcp, vet = isPublic } = options
  const limits: EgressLimits = {
    ...defaultLimits,
    ...limitsOf(policy.limits),
    ...options.limits,
  }
  const onFault = options.onFault ?? ((): void => undefined)
  const { auditRules } = options
  // The smaller of what the daemon and the policy grant.
  const maxBytes = Math.min(auditRules?.maxBytes ?? Infinity, policy.audit?.maxBytes ?? Infinity)
  audit.govern({ ...auditRules, policy: policyHash(policy), maxBytes })
  const controller = new AbortController()
  const { signal } = controller
  // One listener a tunnel; their number has a limit of its own.
  setMaxListeners(0, signal)
  const gate = new Gate(limits.concurrent, options.gate)
  const route = new Route({ policy, resolve, dial, vet, limits })
  const meter = new ByteMeter(limits, options.spentBytes)
  const context: EgressContext = {
    ...{ policy, audit, route, limits, gate, meter, signal },
    pace: new Pace(),
  }
  const sockets = new Set<Socket>()
  const undo: (() => void)[] = []

  /** A fault in serving one socket ends that socket, and only that. */
  const guard = (socket: Socket, work: Promise<void>): void => {
    work.catch((error: unknown) => {
      socket.destroy()
      if (!signal.aborted) onFault(error)
    })
  }
  const http = new HttpListener(context, guard)
  const dns = new DnsListener(context)

  const turnAway = (socket: Socket, protocol: AuditEvent['protocol']): void => {
    const attempt = { protocol, host: null, address: destination(socket), port: null }
    record(context, attempt, deny('limit_conns'), 'too many sockets open')
    socket.resetAndDestroy()
  }
  const listen = (
    server: Server,
    protocol: AuditEvent['protocol'],
    serve: (socket: Socket) => Promise<void> | void,
  ): void => {
    // What the runtime's constructor would have been told, had the server been made here.
    Object.assign(server, { allowHalfOpen: true, noDelay: true, pauseOnConnect: false })
    const onConnection = (socket: Socket): void => {
      socket.on('error', () => undefined)
      if (signal.aborted) {
        socket.destroy()
        return
      }
      sockets.add(socket)
      socket.setMaxListeners(0)
      socket.once('close', () => sockets.delete(socket))
      const full = sockets.size > limits.sockets
      const run = async (): Promise<void> => (full ? turnAway(socket, protocol) : serve(socket))
      guard(socket, run())
    }
    server.on('connection', onConnection)
    server.on('error', onFault)
    undo.push(() => server.off('error', onFault).on('error', () => undefined))
  }
  listen(listeners.proxy, 'connect', (socket) => http.adopt(socket, 'proxy'))
  listen(listeners.http, 'http', (socket) => http.adopt(socket, 'direct'))
  listen(listeners.tls, 'tls', (socket) => serveTransparentTls(context, socket))
  if (options.counted === true) {
    listeners.tripwire.on('connection', (socket) => {
      socket.on('error', () => undefined)
      socket.resetAndDestroy()
    })
  } else {
    listen(listeners.tripwire, 'tcp', (socket) =>
      serveTripwire(context, socket, (a) => dns.nameOf(a)),
    )
  }
  listen(listeners.dnsTcp, 'dns', (socket) => dns.serveTcp(socket))

  const onMessage = (message: Buffer, from: RemoteInfo): void => {
    try {
      dns.serveUdp(listeners.dnsUdp, message, from)
    } catch (error) {
      onFault(error)
    }
  }
  listeners.dnsUdp.on('message', onMessage).on('error', onFault)
  undo.push(() =>
    listeners.dnsUdp
      .off('message', onMessage)
      .off('error', onFault)
      .on('error', () => undefined),
  )

  const shut = (): void => {
    if (signal.aborted) return
    controller.abort()
    options.signal?.removeEventListener('abort', shut)
    for (const step of undo) step()
    http.close()
    for (const socket of sockets) socket.destroy()
  }
  if (options.signal?.aborted === true) shut()
  else options.signal?.addEventListener('abort', shut, { once: true })

  return {
    get openSockets() {
      return sockets.size
    },
    nameOf: (address) => dns.nameOf(address),
    [Symbol.asyncDispose]: async () => {
      shut()
      // Close records are written as the sockets close, a turn of the event loop later.
      while (sockets.size > 0) await new Promise((turn) => setImmediate(turn))
      await new Promise((turn) => setImmediate(turn))
    },
  }
}
