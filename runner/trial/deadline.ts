/** A limit on work of ours that hangs only when a host does: past it the execution is void by infra, and run again. */
import { RunnerError } from '../errors.ts'

export async function withinLimit<T>(
  { signal, limitMs, what }: { signal: AbortSignal; limitMs: number; what: string },
  work: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  signal.throwIfAborted()
  const limit = AbortSignal.timeout(limitMs)
  const both = AbortSignal.any([signal, limit])
  try {
    return await Promise.race([work(both), aborted(both)])
  } catch (error) {
    signal.throwIfAborted()
    if (!limit.aborted) throw error
    throw new RunnerError(
      'collect_failed',
      'infra',
      `${what} did not end within ${limitMs / 1000} s; the execution is run again`,
      { cause: error },
    )
  }
}

/** Not everything that is waited for looks at a signal. */
const aborted = (signal: AbortSignal): Promise<never> =>
  new Promise((_resolve, reject) => {
    signal.addEventListener('abort', () => reject(signal.reason as Error), { once: true })
  })
