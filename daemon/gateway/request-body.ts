/**
 * Reads the body of a request that a sandbox sent, which may be built to hurt. Size and structure are bounded before
 * anything is parsed, and what is parsed must mean the same when it is written again: a number that a double can't
 * hold is refused. Of keys that are there twice the last one counts, for us and (since we send on what we parsed)
 * for the provider.
 */
import type { IncomingMessage } from 'node:http'

export const maxBodyBytes = 32 * 1024 * 1024
const maxDepth = 100
const maxValues = 500_000

export type Read<T> =
  | { readonly ok: true; readonly value: T }
  | {
      readonly ok: false
      readonly reason: 'body_invalid' | 'limit_bytes'
      readonly message: string
    }

const bad = (message: string): Read<never> => ({ ok: false, reason: 'body_invalid', message })

/** Bodies of one sandbox that are held at the same time; what exceeds this is refused, not queued. */
export const maxHeldBytes = 64 * 1024 * 1024

/** Reads the bodies of one sandbox within its share of memory. `release` a body's length when its call is over. */
export class BodyReader {
  #held = 0

  /** Of a body that is too large the rest is read and dropped, so that its sender hears why. */
  async read(
    request: IncomingMessage,
    { timeoutMs }: { timeoutMs: number },
  ): Promise<Read<Buffer>> {
    const encoding = request.headers['content-encoding'] ?? 'identity'
    const timer = setTimeout(() => request.destroy(), timeoutMs)
    const chunks: Buffer[] = []
    let total = 0
    let kept = 0
    let full = false
    try {
      for await (const chunk of request as AsyncIterable<Buffer>) {
        total += chunk.length
        if (full) {
          if (total > 4 * maxBodyBytes) break
        } else if (total > maxBodyBytes || this.#held + chunk.length > maxHeldBytes) {
          full = true
          chunks.length = 0
          this.release(kept)
          kept = 0
        } else {
          chunks.push(chunk)
          kept += chunk.length
          this.#held += chunk.length
        }
      }
    } catch {
      this.release(kept)
      return bad('the body did not arrive whole')
    } finally {
      clearTimeout(timer)
    }
    if (full)
      return {
        ok: false,
        reason: 'limit_bytes',
        message: `a body may have ${maxBodyBytes} bytes, all bodies at once ${maxHeldBytes}`,
      }
    if (encoding !== 'identity') {
      this.release(kept)
      return bad('a body with content-encoding is not read')
    }
    return { ok: true, value: Buffer.concat(chunks) }
  }

  release(bytes: number): void {
    this.#held -= bytes
  }
}

export function parseBody(bytes: Buffer): Read<unknown> {
  const unfit = structureOf(bytes)
  if (unfit !== null) return bad(unfit)
  let text: string
  try {
    text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes)
  } catch {
    return bad('the body is not valid UTF-8')
  }
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch {
    return bad('the body is not valid JSON')
  }
  return keepsItsNumbers(value) ? { ok: true, value } : bad('the body holds a number beyond 2^53')
}

/** One pass over the raw bytes, so that a hostile structure costs no memory; strings may be as long as they like. */
function structureOf(bytes: Buffer): string | null {
  let depth = 0
  let values = 0
  let inString = false
  for (let i = 0; i < bytes.length; i += 1) {
    const byte = bytes[i]
    if (inString) {
      if (byte === 0x5c) i += 1
      else if (byte === 0x22) inString = false
    } else if (byte === 0x22) inString = true
    else if (byte === 0x5b || byte === 0x7b) {
      depth += 1
      values += 1
      if (depth > maxDepth) return `the body is nested deeper than ${maxDepth}`
    } else if (byte === 0x5d || byte === 0x7d) depth -= 1
    else if (byte === 0x2c) values += 1
    if (values > maxValues) return `the body has more than ${maxValues} values`
  }
  return null
}

/** Recursion is safe here: the depth was bounded. */
function keepsItsNumbers(value: unknown): boolean {
  if (typeof value === 'number')
    return Number.isFinite(value) && (!Number.isInteger(value) || Number.isSafeInteger(value))
  if (typeof value !== 'object' || value === null) return true
  return Object.values(value).every(keepsItsNumbers)
}
