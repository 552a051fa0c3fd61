/** Holds a connection's first bytes until they show whom it is for. The socket is paused when this returns. */
import type { Socket } from 'node:net'
import type { HelloFacts } from '../../policy/decide.ts'
import { ClientHelloReader } from './client-hello.ts'
import type { EgressLimits } from './limits.ts'

export interface HeldHello {
  readonly hello: HelloFacts
  /** Every byte received so far, none of it passed on. */
  readonly bytes: Buffer
}

export function readHello(
  socket: Socket,
  head: Buffer,
  limits: Pick<EgressLimits, 'helloTimeoutMs' | 'helloMaxBytes'>,
): Promise<HeldHello> {
  const reader = new ClientHelloReader(limits.helloMaxBytes)
  const { promise, resolve } = Promise.withResolvers<HeldHello>()
  const timer = setTimeout(() => finish({ kind: 'timeout' }), limits.helloTimeoutMs)
  const finish = (hello: HelloFacts): void => {
    clearTimeout(timer)
    socket.pause()
    socket.off('data', onData).off('end', onEnd).off('close', onEnd)
    resolve({ hello, bytes: reader.bytes })
  }
  const onData = (chunk: Buffer): void => {
    const hello = reader.push(chunk)
    if (hello !== null) finish(hello)
  }
  const onEnd = (): void => finish({ kind: 'ended' })
  if (socket.destroyed || socket.readableEnded) {
    finish({ kind: 'ended' })
    return promise
  }
  socket.on('data', onData).on('end', onEnd).on('close', onEnd)
  if (head.length > 0) onData(head)
  return promise
}
