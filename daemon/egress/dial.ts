/** The daemon's own ways to look a name up and to connect, from the host's network namespace. */
import { lookup } from 'node:dns/promises'
import { connect } from 'node:net'
import type { Dial, Resolve } from './route.ts'

/**
 * The resolver that the host is set up with. A lookup can't be taken back, so requests for the same name share the one
 * that is under way: a resolver that hangs holds no more threads than there are names.
 */
export function systemResolver(): Resolve {
  const underWay = new Map<string, Promise<readonly string[]>>()
  return (host) => {
    const known = underWay.get(host)
    if (known !== undefined) return known
    const fresh = lookup(host, { all: true, order: 'ipv4first' })
      .then((found) => found.map(({ address }) => address))
      .finally(() => underWay.delete(host))
    underWay.set(host, fresh)
    return fresh
  }
}

export const dialTcp: Dial = ({ address, port }, { signal, onread }) => {
  const { promise, resolve, reject } = Promise.withResolvers<ReturnType<typeof connect>>()
  // An address, never a name: nothing is looked up a second time here.
  const socket = connect({
    host: address,
    port,
    allowHalfOpen: true,
    noDelay: true,
    ...(onread === undefined ? {} : { onread }),
  })
  // Nothing is read before somebody wants it.
  socket.pause()
  const onAbort = (): void => void socket.destroy(signal.reason)
  const settled = (): void => signal.removeEventListener('abort', onAbort)
  socket.once('error', (error) => {
    settled()
    reject(error)
  })
  socket.once('connect', () => {
    settled()
    // A fault from here on ends in `close`, which those who use the socket watch.
    socket.on('error', () => undefined)
    resolve(socket)
  })
  signal.addEventListener('abort', onAbort, { once: true })
  if (signal.aborted) onAbort()
  return promise
}
