/**
 * Turns what the driver throws into EngineError. An abort by the caller passes through as the caller's own reason:
 * it is no fault of the engine.
 */
import { addAbortSignal } from 'node:stream'
import type { Readable } from 'node:stream'
import { EngineError } from '../errors.ts'
import type { EngineErrorCode } from '../errors.ts'

/** What was asked for: it decides what a 404 means and what the message says. */
export interface Ask {
  /** Completes "The engine could not …". */
  readonly action: string
  readonly container?: string
  readonly image?: string
  /** A path inside the container. */
  readonly path?: string
  readonly socketPath: string
}

interface DriverFault {
  readonly statusCode?: number
  readonly code?: string
  readonly message: string
}

function faultOf(thrown: unknown): DriverFault {
  if (!(thrown instanceof Error)) return { message: String(thrown) }
  const { statusCode, code } = thrown as { statusCode?: unknown; code?: unknown }
  return {
    message: thrown.message.replace(/^\(HTTP code \d+\) [^-]*- /, '').trim(),
    ...(typeof statusCode === 'number' ? { statusCode } : {}),
    ...(typeof code === 'string' ? { code } : {}),
  }
}

const socketFaults: ReadonlySet<string> = new Set([
  'ENOENT',
  'ECONNREFUSED',
  'ECONNRESET',
  'EACCES',
  'EPERM',
  'EPIPE',
  'ENOTSOCK',
  'UND_ERR_SOCKET',
])

function classify(fault: DriverFault, ask: Ask): [EngineErrorCode, string] {
  const { message, statusCode } = fault
  if (/no space left on device|disk quota exceeded/i.test(message) || fault.code === 'ENOSPC')
    return [
      'disk_full',
      `The engine could not ${ask.action}: its disk is full. Free space under its data root (docker system df shows what holds it).`,
    ]
  if (statusCode === undefined && fault.code !== undefined && socketFaults.has(fault.code))
    return [
      'engine_unreachable',
      `No container engine answers at ${ask.socketPath} (${fault.code}). Run \`closedbook up\`, or start Docker and check that this user may open the socket.`,
    ]
  if (statusCode === 404 && ask.path !== undefined && !/no such container/i.test(message))
    return ['path_missing', `The container has no path ${ask.path}.`]
  if (statusCode === 404 && ask.image !== undefined)
    return [
      'image_missing',
      `The engine has no image ${ask.image}. Pull or build it first, then try again.`,
    ]
  if (statusCode === 404 && ask.container !== undefined)
    return ['container_gone', `The container ${ask.container} no longer exists.`]
  if (ask.container !== undefined && /is not running/i.test(message))
    return ['container_gone', `The container ${ask.container} is not running.`]
  return ['engine_refused', `The engine could not ${ask.action}: ${message}`]
}

export function engineError(thrown: unknown, ask: Ask): EngineError {
  if (thrown instanceof EngineError) return thrown
  const fault = faultOf(thrown)
  const [code, message] = classify(fault, ask)
  const blame = code === 'path_missing' ? 'caller' : code === 'image_missing' ? 'operator' : 'infra'
  return new EngineError(code, blame, message, {
    cause: thrown,
    facts: fault.statusCode === undefined ? {} : { status: fault.statusCode },
  })
}

export function hasStatus(thrown: unknown, status: number): boolean {
  return thrown instanceof EngineError
    ? thrown.facts['status'] === status
    : faultOf(thrown).statusCode === status
}

/**
 * Runs one driver call under a deadline and the caller's signal. Throws the signal's reason when the caller aborted,
 * EngineError otherwise.
 */
export async function ask<T>(
  what: Ask,
  limits: { signal?: AbortSignal | undefined; deadlineMs?: number },
  call: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  limits.signal?.throwIfAborted()
  const own = new AbortController()
  const { deadlineMs } = limits
  const timer =
    deadlineMs === undefined
      ? undefined
      : setTimeout(() => {
          own.abort(
            new EngineError(
              'engine_timeout',
              'infra',
              `The engine did not ${what.action} within ${Math.round(deadlineMs / 1000)} s. Look at its log; restart it if it hangs.`,
            ),
          )
        }, deadlineMs)
  const signal =
    limits.signal === undefined ? own.signal : AbortSignal.any([own.signal, limits.signal])
  try {
    return await Promise.race([call(signal), aborted(signal)])
  } catch (thrown) {
    signal.throwIfAborted()
    throw engineError(thrown, what)
  } finally {
    clearTimeout(timer)
  }
}

/** For a stream that the driver returned: destroys it when the caller aborts. */
export function endOnAbort<S extends Readable>(stream: S, signal: AbortSignal | undefined): S {
  return signal === undefined ? stream : addAbortSignal(signal, stream)
}

/** Rejects with the signal's reason: the driver's own handling of a signal ends at the response's headers. */
function aborted(signal: AbortSignal): Promise<never> {
  return new Promise((_, reject) => {
    signal.addEventListener('abort', () => reject(signal.reason as Error), { once: true })
  })
}
