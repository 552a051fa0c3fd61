/**
 * Carries bytes both ways between two sockets until both sides have ended, one has failed, or a cap is reached.
 * Bytes are counted by the sockets themselves and read once, at the end: nothing of ours runs for each chunk.
 */
import type { Socket } from 'node:net'
import type { ByteMeter } from './byte-meter.ts'
import type { Traffic } from './context.ts'
import type { Downflow } from './downflow.ts'
import type { EgressLimits } from './limits.ts'

export interface TunnelOptions {
  readonly limits: Pick<EgressLimits, 'idleTimeoutMs' | 'lifetimeMs'>
  readonly meter: ByteMeter
  readonly signal: AbortSignal
  /** With which `upstream` was dialed. */
  readonly downflow: Downflow
}

/** `held` are the client's first bytes, which have been allowed; both sockets are paused and half-open capable. */
export function tunnel(
  client: Socket,
  upstream: Socket,
  held: Buffer,
  { limits, meter, signal, downflow }: TunnelOptions,
): Promise<Traffic> {
  const { promise, resolve } = Promise.withResolvers<Traffic>()
  let cause = 'ended'
  const stop = (why: string): void => {
    if (client.destroyed && upstream.destroyed) return
    cause = why
    client.destroy()
    upstream.destroy()
  }
  const lifetime = setTimeout(() => stop('lifetime reached'), limits.lifetimeMs)
  const metered = meter.watch(upstream, stop)
  const onAbort = (): void => stop('egress shut')
  signal.addEventListener('abort', onAbort, { once: true })

  let open = 2
  const onClose = (failed: boolean): void => {
    open -= 1
    // A side that is gone can't be answered; a side that has ended may still be.
    if (open > 0) {
      if (failed) stop('connection lost')
      return
    }
    clearTimeout(lifetime)
    metered[Symbol.dispose]()
    signal.removeEventListener('abort', onAbort)
    downflow.release()
    resolve({ bytesUp: upstream.bytesWritten, bytesDown: upstream.bytesRead, detail: cause })
  }
  for (const socket of [client, upstream]) {
    socket.setNoDelay(true)
    socket.setTimeout(0)
    if (socket.closed) onClose(false)
    else socket.once('close', onClose)
  }
  // Bytes in either direction pass through the upstream socket, so its clock is the tunnel's.
  upstream.setTimeout(limits.idleTimeoutMs, () => stop('idle'))
  if (held.length > 0) upstream.write(held)
  client.pipe(upstream)
  downflow.start(upstream, client)
  if (signal.aborted) onAbort()
  // One of them was gone before the pipes stood.
  if (client.destroyed || upstream.destroyed) stop('connection lost')
  return promise
}
