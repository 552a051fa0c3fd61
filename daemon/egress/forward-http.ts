/**
 * One plain HTTP request, forwarded over a connection of its own: byte counts are exact, no answer can be
 * taken for another request's, and the address is one that was vetted for this request. node:http and not the
 * reverse proxy package: that one rewrites paths and joins headers, which is right before a server of one's own
 * and wrong in a forward proxy, and an environment variable makes it go out by `fetch`, past our dialing.
 */
import { request as httpRequest, type IncomingMessage, type ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import type { Reason } from '../../policy/decision.ts'
import type { ByteMeter } from './byte-meter.ts'
import type { Traffic } from './context.ts'
import type { EgressLimits } from './limits.ts'
import { endToEnd, rawValues } from './request-head.ts'

export interface Forward {
  readonly path: string
  /** The canonical authority, for the Host header. */
  readonly authority: string
  readonly upstream: Socket
  readonly limits: Pick<EgressLimits, 'idleTimeoutMs' | 'lifetimeMs'>
  readonly meter: ByteMeter
  readonly signal: AbortSignal
  /** Answers the client in place of the upstream, if nothing has been sent yet. */
  readonly onFault: (reason: Reason) => void
}

export async function forwardHttp(
  request: IncomingMessage,
  response: ServerResponse,
  { path, authority, upstream, limits, meter, signal, onFault }: Forward,
): Promise<Traffic> {
  let cause = 'ended'
  const stop = (why: string): void => {
    cause = why
    upstream.destroy()
  }
  const lifetime = setTimeout(() => stop('lifetime reached'), limits.lifetimeMs)
  upstream.setTimeout(limits.idleTimeoutMs, () => stop('idle'))
  using _metered = meter.watch(upstream, stop)
  const onAbort = (): void =>
    stop(signal.reason instanceof Error ? signal.reason.message : 'egress shut')
  const onClientGone = (): void => {
    if (!response.writableFinished) stop('client gone')
  }
  signal.addEventListener('abort', onAbort, { once: true })
  response.once('close', onClientGone)
  try {
    // It may have gone while its host was dialed; nothing would tell of it from here on.
    if (signal.aborted) onAbort()
    signal.throwIfAborted()
    const answer = await exchange(request, upstream, path, authority)
    response.sendDate = false
    response.writeHead(
      answer.statusCode ?? 502,
      answer.statusMessage,
      endToEnd(answer, ['transfer-encoding']),
    )
    // Headers of a stream that is slow to start must not wait for its first byte.
    response.flushHeaders()
    await pour(answer, response, () => upstream.readableEnded || !endsByClosing(request, answer))
    // A client that sends all before it listens would wait for what nobody reads any more.
    request.unpipe().resume()
  } catch {
    const idle = cause === 'idle' || cause === 'lifetime reached'
    if (cause === 'ended') cause = 'upstream failed'
    if (response.headersSent) response.destroy()
    else onFault(idle ? 'upstream_timeout' : 'upstream_bad')
  } finally {
    clearTimeout(lifetime)
    signal.removeEventListener('abort', onAbort)
    response.off('close', onClientGone)
    upstream.destroy()
  }
  return { bytesUp: upstream.bytesWritten, bytesDown: upstream.bytesRead, detail: cause }
}

/**
 * Resolves when all of the answer has been taken, rejects when either side ends early. Not `stream.pipeline`: what that
 * makes for each call outlives it by several collections, and the pauses were most of the proxy's latency at p99.
 */
function pour(
  answer: IncomingMessage,
  response: ServerResponse,
  whole: () => boolean,
): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>()
  answer.once('error', reject)
  answer.once('close', () => {
    if (!answer.readableEnded) reject(new Error('the answer ended early'))
  })
  response.once('error', reject)
  response.once('close', () => reject(new Error('the client is gone')))
  response.once('finish', resolve)
  answer.once('end', () => {
    if (whole()) response.end()
    else reject(new Error('the answer was cut'))
  })
  answer.pipe(response, { end: false })
  return promise
}

/** The runtime takes it for whole also when its connection was reset, or was ended by us. */
function endsByClosing({ method }: IncomingMessage, answer: IncomingMessage): boolean {
  const bare = method === 'HEAD' || answer.statusCode === 204 || answer.statusCode === 304
  return (
    !bare &&
    rawValues(answer, 'content-length').length === 0 &&
    rawValues(answer, 'transfer-encoding').length === 0
  )
}

/** Sends the request on; resolves with the head of the answer. */
function exchange(
  request: IncomingMessage,
  upstream: Socket,
  path: string,
  authority: string,
): Promise<IncomingMessage> {
  const { promise, resolve, reject } = Promise.withResolvers<IncomingMessage>()
  const hasBody =
    rawValues(request, 'content-length').length > 0 ||
    rawValues(request, 'transfer-encoding').length > 0
  const headers = ['Host', authority, ...endToEnd(request, ['host']), 'Connection', 'close']
  // Without this the runtime would send an empty chunked body where there was none.
  if (!hasBody && request.method !== 'GET' && request.method !== 'HEAD') {
    headers.push('Content-Length', '0')
  }
  const outgoing = httpRequest({
    method: request.method ?? 'GET',
    path,
    headers,
    setHost: false,
    createConnection: () => upstream,
  })
  // It comes paused, and the runtime doesn't start a socket that was paused.
  outgoing.on('socket', () => upstream.resume())
  outgoing.on('response', resolve)
  outgoing.on('error', reject)
  outgoing.on('close', () => reject(new Error('closed before an answer')))
  request.on('error', () => outgoing.destroy())
  if (hasBody) {
    request.pipe(outgoing)
    // Whoever waits for an answer before it sends the body would wait for ever.
    outgoing.flushHeaders()
  } else outgoing.end()
  return promise
}
