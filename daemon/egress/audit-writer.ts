/**
 * Lines on their way into the file of an audit log: written in batches, the next batch as soon as the one before has
 * been written, in the order in which they came. Invariant: after the first failure nothing more is written, and
 * whoever adds or flushes is told.
 */
import { writeSync } from 'node:fs'
import type { FileHandle } from 'node:fs/promises'
import { AuditError } from './audit-error.ts'

/** A burst within one turn of the event loop is written at once beyond this, so that it doesn't pile up. */
const burstCharacters = 4 * 1024 * 1024
/** So much waiting behind one unfinished write means that the disk hangs. */
const hungCharacters = 256 * 1024 * 1024

export class AuditWriter {
  /** Resolves with the first failure, if there is one. */
  readonly failed: Promise<AuditError>
  readonly #handle: FileHandle
  readonly #tellFailed: (error: AuditError) => void
  #pending: string[] = []
  #pendingCharacters = 0
  #scheduled = false
  /** The batch that is being written, and the one that gathers behind it. */
  #inFlight: Promise<void> | null = null
  #next = Promise.withResolvers<void>()
  #failure: AuditError | null = null
  #grown = Promise.withResolvers<void>()

  constructor(handle: FileHandle) {
    const failed = Promise.withResolvers<AuditError>()
    this.failed = failed.promise
    this.#tellFailed = failed.resolve
    this.#handle = handle
  }

  get failure(): AuditError | null {
    return this.#failure
  }

  /** Resolves when more has been written, or the file is closed. */
  get grown(): Promise<void> {
    return this.#grown.promise
  }

  add(line: string): void {
    this.#pending.push(line)
    this.#pendingCharacters += line.length
    if (!this.#scheduled) {
      this.#scheduled = true
      void this.#write()
    }
    if (this.#pendingCharacters > burstCharacters) this.#relieve()
  }

  /** Resolves when all that was added before has been handed to the operating system. */
  async flush(): Promise<void> {
    // Somebody waits with a byte to send: a write to the page cache takes microseconds, two changes of thread can
    // take a scheduler's slice each.
    if (this.#inFlight === null && this.#failure === null && this.#pending.length > 0) {
      this.#writeNow()
    }
    await (this.#pending.length > 0 ? this.#next.promise : this.#inFlight)
    if (this.#failure !== null) throw this.#failure
  }

  /** Writes what is left and asks the disk to keep it. */
  async close(): Promise<void> {
    try {
      await this.flush()
      await this.#handle.sync()
    } finally {
      await this.#handle.close()
      this.#grown.resolve()
    }
  }

  fail(error: AuditError): AuditError {
    this.#failure ??= error
    this.#tellFailed(this.#failure)
    return this.#failure
  }

  async #write(): Promise<void> {
    // One turn of the event loop gathers what is added in it.
    await new Promise((resolve) => setImmediate(resolve))
    while (this.#pending.length > 0) {
      const batch = this.#next
      this.#next = Promise.withResolvers()
      this.#inFlight = batch.promise
      try {
        await this.#handle.appendFile(this.#take())
      } catch (cause) {
        this.fail(writeError(cause))
        this.#take()
        this.#next.resolve()
      }
      this.#inFlight = null
      batch.resolve()
    }
    this.#scheduled = false
    const grown = this.#grown
    this.#grown = Promise.withResolvers()
    grown.resolve()
  }

  #relieve(): void {
    if (this.#inFlight === null) {
      this.#writeNow()
    } else if (this.#pendingCharacters > hungCharacters) {
      throw this.fail(writeError(Object.assign(new Error('the disk hangs'), { code: 'EBUSY' })))
    }
  }

  /** Only while no other write is under way: the order of the lines is the order of the events. */
  #writeNow(): void {
    const batch = this.#next
    this.#next = Promise.withResolvers()
    try {
      const data = Buffer.from(this.#take())
      for (let done = 0; done < data.length;) done += writeSync(this.#handle.fd, data, done)
    } catch (cause) {
      throw this.fail(writeError(cause))
    } finally {
      batch.resolve()
    }
  }

  #take(): string {
    const data = this.#pending.join('')
    this.#pending = []
    this.#pendingCharacters = 0
    return data
  }
}

function writeError(cause: unknown): AuditError {
  const code = cause instanceof Error && 'code' in cause ? String(cause.code) : 'unknown'
  const advice =
    code === 'ENOSPC' ? 'free space on the disk of the state folder' : 'check that disk'
  return new AuditError(
    'audit_write_failed',
    'infra',
    `the audit log can't be written (${code}): ${advice}; the lease is closed`,
    { cause },
  )
}
