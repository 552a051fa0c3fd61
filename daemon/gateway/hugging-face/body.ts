/** The body of a request, as far as one is expected here: small. */
import type { IncomingMessage } from 'node:http'

const maxBytes = 1024 * 1024
const limitMs = 10_000

/**
 * Read whole, so that an answer isn't lost on bytes nobody read. null: too large, too slow or broken off; the
 * connection can't be used again then.
 */
export async function readBody(request: IncomingMessage): Promise<string | null> {
  const { 'content-length': length, 'transfer-encoding': encoding } = request.headers
  if (length === undefined && encoding === undefined) return ''
  if (Number(length ?? '0') > maxBytes || request.headers.expect !== undefined) {
    request.on('error', () => {}).resume()
    return null
  }
  const { promise, resolve } = Promise.withResolvers<string | null>()
  const chunks: Buffer[] = []
  let bytes = 0
  const timer = setTimeout(() => resolve(null), limitMs)
  request.on('data', (chunk: Buffer) => {
    bytes += chunk.length
    if (bytes <= maxBytes) chunks.push(chunk)
    else resolve(null)
  })
  request.once('end', () => resolve(Buffer.concat(chunks).toString()))
  request.once('error', () => resolve(null))
  request.once('close', () => resolve(null))
  try {
    return await promise
  } finally {
    clearTimeout(timer)
  }
}
