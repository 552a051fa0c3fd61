/** Where the bytes of an object come from, as far as the cache needs to know. */
import type { Readable } from 'node:stream'

export interface SourceAnswer {
  /** Where the body begins: as asked, or 0 from a source that serves no ranges or has another version now. */
  readonly from: number
  /** Of the source's own making; asked to be the same when a fetch is resumed. */
  readonly etag: string | null
  readonly body: Readable
}

export interface SourceAsk {
  readonly from: number
  readonly etag: string | null
  readonly signal: AbortSignal
}

/** Throws SourceError where it knows whether asking again makes sense; any other error is taken for a passing fault. */
export type Source = (ask: SourceAsk) => Promise<SourceAnswer>

export class SourceError extends Error {
  /** null: asking again is pointless. 0: at once or after the cache's own pause. */
  readonly retryAfterMs: number | null

  constructor(message: string, options: { retryAfterMs: number | null; cause?: unknown }) {
    super(message, { cause: options.cause })
    this.name = 'SourceError'
    this.retryAfterMs = options.retryAfterMs
  }
}

/** What came is not what the digest names. */
export class DigestError extends Error {
  constructor(key: string) {
    super(`the bytes that came are not ${key}`)
    this.name = 'DigestError'
  }
}

/** There is no room for the object: for now, or ever. */
export class CacheFullError extends Error {
  readonly forever: boolean

  constructor(forever: boolean, message: string) {
    super(message)
    this.name = 'CacheFullError'
    this.forever = forever
  }
}
