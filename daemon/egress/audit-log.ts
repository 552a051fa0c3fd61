/**
 * The audit log of one lease: JSON lines, `seq` from 1 without a gap, across restarts too. `append` is synchronous
 * and never drops; lines are written in batches, the next batch as soon as the one before has been written.
 * `flush` resolves when everything appended so far has left the process, and is awaited before an allowed
 * byte flows. After the first failure nothing more can be appended: the owner must close the lease.
 */
import { writeSync } from 'node:fs'
import { open, type FileHandle } from 'node:fs/promises'
import type { AuditEvent, AuditRecord } from '../../policy/audit-event.ts'
import type { EgressSummary } from '../protocol/lease.ts'
import { AuditError } from './audit-error.ts'
import { AuditSummary } from './audit-summary.ts'
import { readAuditLines } from './read-audit.ts'

export interface AuditLogOptions {
  readonly lease: string
  readonly trial: string | null
  /** Called in `append`, after the event has its place in the log. It must not throw. */
  readonly onEvent?: (event: AuditEvent) => void
  /** A log that would grow beyond this fails, so that a flood stops the lease and not the host. */
  readonly maxBytes?: number
}

export interface AuditFilter {
  /** First sequence number. */
  readonly from?: number
  readonly kinds?: readonly AuditEvent['kind'][]
  readonly actions?: readonly AuditEvent['action'][]
  /** Goes on with what comes, until the log is closed or `signal` aborts. */
  readonly follow?: boolean
  readonly signal?: AbortSignal
}

const maxHost = 512
const maxDetail = 1024
/** A burst within one turn of the event loop is written at once beyond this, so that it doesn't pile up. */
const burstCharacters = 4 * 1024 * 1024
/** So much waiting behind one unfinished write means that the disk hangs. */
const hungCharacters = 256 * 1024 * 1024

export class AuditLog {
  /** While true, events are marked as made by our own proof. */
  canary = false
  /** Resolves with the first failure, if there is one. */
  readonly failed: Promise<AuditError>
  readonly file: string
  readonly #handle: FileHandle
  readonly #options: AuditLogOptions
  readonly #summary: AuditSummary
  readonly #tellFailed: (error: AuditError) => void
  #seq: number
  #connection: number
  #bytes: number
  #pending: string[] = []
  #pendingCharacters = 0
  #scheduled = false
  /** The batch that is being written, and the one that gathers behind it. */
  #inFlight: Promise<void> | null = null
  #next = Promise.withResolvers<void>()
  #failure: AuditError | null = null
  #closed = false
  #grown = Promise.withResolvers<void>()

  private constructor(
    file: string,
    handle: FileHandle,
    options: AuditLogOptions,
    found: { seq: number; connection: number; bytes: number; summary: AuditSummary },
  ) {
    const failed = Promise.withResolvers<AuditError>()
    this.failed = failed.promise
    this.#tellFailed = failed.resolve
    this.file = file
    this.#handle = handle
    this.#options = options
    this.#seq = found.seq
    this.#connection = found.connection
    this.#bytes = found.bytes
    this.#summary = found.summary
  }

  /** Goes on where an existing log of this lease ends; a torn last line is cut off, which is itself an event. */
  static async open(file: string, options: AuditLogOptions): Promise<AuditLog> {
    await using undo = new AsyncDisposableStack()
    const handle = undo.use(await open(file, 'a', 0o640))
    const found = { seq: 0, connection: 0, bytes: 0, summary: new AuditSummary() }
    for await (const { event, end } of readAuditLines(file, 0)) {
      if (event.seq !== found.seq + 1 || event.lease !== options.lease) {
        throw new AuditError(
          'audit_corrupt',
          'infra',
          `event ${event.seq} of ${event.lease} follows event ${found.seq} of ${options.lease} in the audit log; keep the file and close the lease`,
          { facts: { file } },
        )
      }
      found.seq = event.seq
      found.bytes = end
      found.connection = Math.max(found.connection, event.connection ?? 0)
      found.summary.add(event)
    }
    const { size } = await handle.stat()
    const torn = size - found.bytes
    if (torn > 0) await handle.truncate(found.bytes)
    const log = new AuditLog(file, handle, options, found)
    if (torn > 0) {
      const detail = `a torn last line of ${torn} bytes was cut off`
      log.append({ kind: 'lifecycle', protocol: 'none', action: 'none', reason: null, detail })
    }
    undo.move()
    return log
  }

  /** A number that joins the events of one connection; never used twice in a log. */
  nextConnection(): number {
    this.#connection += 1
    return this.#connection
  }

  append(record: AuditRecord): AuditEvent {
    if (this.#failure !== null) throw this.#failure
    if (this.#closed) throw closedError()
    const event = this.#complete(record)
    const line = `${JSON.stringify(event)}\n`
    const bytes = Buffer.byteLength(line)
    if (this.#bytes + bytes > (this.#options.maxBytes ?? Infinity)) {
      throw this.#fail(
        new AuditError(
          'audit_full',
          'agent',
          `the audit log of the lease has reached its limit of ${this.#options.maxBytes} bytes; the lease is closed`,
        ),
      )
    }
    this.#seq = event.seq
    this.#bytes += bytes
    this.#pending.push(line)
    this.#pendingCharacters += line.length
    this.#summary.add(event)
    if (!this.#scheduled) {
      this.#scheduled = true
      void this.#write()
    }
    if (this.#pendingCharacters > burstCharacters) this.#relieve()
    this.#options.onEvent?.(event)
    return event
  }

  /** Resolves when all that was appended before has been handed to the operating system. */
  async flush(): Promise<void> {
    // Somebody waits with a byte to send: a write to the page cache takes microseconds, two changes of thread can
    // take a scheduler's slice each.
    if (this.#inFlight === null && this.#failure === null && this.#pending.length > 0) {
      this.#writeNow()
    }
    await (this.#pending.length > 0 ? this.#next.promise : this.#inFlight)
    if (this.#failure !== null) throw this.#failure
  }

  summary(): EgressSummary {
    return this.#summary.view()
  }

  async *events(filter: AuditFilter = {}): AsyncIterable<AuditEvent> {
    let offset = 0
    for (;;) {
      const grown = this.#grown.promise
      const last = this.#closed
      await this.flush()
      for await (const { event, end } of readAuditLines(this.file, offset, filter.signal)) {
        offset = end
        if (matches(filter, event)) yield event
      }
      if (filter.follow !== true || last) return
      await raceAbort(grown, filter.signal)
    }
  }

  /** Writes what is left and asks the disk to keep it. Idempotent. */
  async close(): Promise<void> {
    if (this.#closed) return
    this.#closed = true
    try {
      await this.flush()
      await this.#handle.sync()
    } finally {
      await this.#handle.close()
      this.#grown.resolve()
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close()
  }

  #complete(record: AuditRecord): AuditEvent {
    const { host, detail } = record
    const event: AuditEvent = {
      seq: this.#seq + 1,
      time: new Date().toISOString(),
      lease: this.#options.lease,
      trial: this.#options.trial,
      kind: record.kind,
      protocol: record.protocol,
      host: host === undefined || host === null ? null : host.slice(0, maxHost),
      address: record.address ?? null,
      port: record.port ?? null,
      action: record.action,
      reason: record.reason,
      count: record.count ?? 1,
      bytesUp: record.bytesUp ?? 0,
      bytesDown: record.bytesDown ?? 0,
    }
    if (record.connection !== undefined) event.connection = record.connection
    if (detail !== undefined) event.detail = detail.slice(0, maxDetail)
    if (record.canary ?? this.canary) event.canary = true
    return event
  }

  async #write(): Promise<void> {
    // One turn of the event loop gathers what is appended in it.
    await new Promise((resolve) => setImmediate(resolve))
    while (this.#pending.length > 0) {
      const batch = this.#next
      this.#next = Promise.withResolvers()
      this.#inFlight = batch.promise
      try {
        await this.#handle.appendFile(this.#take())
      } catch (cause) {
        this.#fail(writeError(cause))
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
      throw this.#fail(writeError(Object.assign(new Error('the disk hangs'), { code: 'EBUSY' })))
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
      throw this.#fail(writeError(cause))
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

  #fail(error: AuditError): AuditError {
    this.#failure ??= error
    this.#tellFailed(this.#failure)
    return this.#failure
  }
}

function matches(filter: AuditFilter, event: AuditEvent): boolean {
  if (filter.from !== undefined && event.seq < filter.from) return false
  if (filter.kinds !== undefined && !filter.kinds.includes(event.kind)) return false
  return filter.actions === undefined || filter.actions.includes(event.action)
}

async function raceAbort(promise: Promise<void>, signal: AbortSignal | undefined): Promise<void> {
  if (signal === undefined) return promise
  signal.throwIfAborted()
  const aborted = Promise.withResolvers<void>()
  const onAbort = (): void => aborted.resolve()
  signal.addEventListener('abort', onAbort, { once: true })
  try {
    await Promise.race([promise, aborted.promise])
    signal.throwIfAborted()
  } finally {
    signal.removeEventListener('abort', onAbort)
  }
}

const closedError = (): AuditError =>
  new AuditError(
    'audit_closed',
    'infra',
    'the audit log of the lease is closed; open the lease again',
  )

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
