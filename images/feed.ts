/**
 * Hands a stream to the engine and gives up when the stream breaks: a driver that pipes it into a request would wait for
 * ever for the rest.
 */
import type { Readable } from 'node:stream'

/** Settles as `use` does, or rejects with the stream's error and aborts the signal that `use` was given. */
export async function feed<T>(
  source: Readable,
  signal: AbortSignal | undefined,
  use: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const broken = new AbortController()
  const failed = new Promise<never>((_resolve, reject) => {
    source.once('error', (error) => {
      reject(error)
      broken.abort(error)
    })
  })
  const either = signal === undefined ? broken.signal : AbortSignal.any([broken.signal, signal])
  try {
    return await Promise.race([use(either), failed])
  } finally {
    source.on('error', () => {})
    source.destroy()
  }
}
