/**
 * The audit log of one lease: JSON lines, `seq` from 1 without a gap, across restarts too, each with the hash of the
 * line before. `append` is synchronous and never drops; lines are written in batches (audit-writer.ts).
 * `flush` resolves when everything appended so far has left the process, and is awaited before an allowed
 * byte flows. After the first failure nothing more can be appended: the owner must close the lease.
 */
import { open, type FileHandle } from 'node:fs/promises'
import type { AuditEvent, AuditRecord } from '../../policy/audit-event.ts'
import {
  AuditSummary,
  type AuditCounts,
  type AuditTotals,
  type Counted,
} from '../../policy/audit-summary.ts'
import { lineHash } from '../../policy/audit-verify.ts'
import { printable } from '../../policy/printable.ts'
import { DenialAggregate, type AggregateRules } from './audit-aggregate.ts'
import { AuditMarks, removeClosing, writeClosing, type AuditClosing } from './audit-closing.ts'
import { AuditError } from './audit-error.ts'
import { AuditWriter } from './audit-writer.ts'
import { readAuditLines } from './read-audit.ts'

export interface AuditRules {
  /** Hash of the policy in force, stamped into each event. */
  readonly policy?: string
  /** A log that would grow beyond this fails, so that a flood stops the lease and not the host. */
  readonly maxBytes?: number
  /** Equal denials beyond a number are counted and written once a second; absent: each is a line. */
  readonly aggregate?: AggregateRules
}

export interface AuditLogOptions extends AuditRules {
  readonly lease: string
  readonly trial: string | null
  /** Called in `append`, after the event has its place in the log. It must not throw. */
  readonly onEvent?: (event: AuditEvent) => void
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
// oxlint-disable-next-line no-control-regex
const unprintable = /[^\u0020-\u007e]/

/** What an existing log says of itself. */
class Found {
  seq = 0
  connection = 0
  bytes = 0
  head: string | null = null
  chained = false
  readonly summary = new AuditSummary()
  readonly marks = new AuditMarks()

  add(event: AuditEvent, text: string, end: number): void {
    this.seq = event.seq
    this.bytes = end
    this.head = lineHash(text)
    this.chained ||= event.prev !== undefined
    this.connection = Math.max(this.connection, event.connection ?? 0)
    this.summary.add(event)
    this.marks.add(event)
  }
}

export class AuditLog {
  /** While true, events are marked as made by our own proof. */
  canary = false
  /** Resolves with the first failure, if there is one. */
  readonly failed: Promise<AuditError>
  readonly file: string
  readonly #writer: AuditWriter
  readonly #options: AuditLogOptions
  readonly #found: Found
  #rules: AuditRules
  #aggregate: DenialAggregate | null = null
  #closed = false

  private constructor(file: string, handle: FileHandle, options: AuditLogOptions, found: Found) {
    this.#writer = new AuditWriter(handle)
    this.failed = this.#writer.failed
    this.file = file
    this.#options = options
    this.#found = found
    this.#rules = options
    this.govern(options)
  }

  /** Goes on where an existing log of this lease ends; a torn last line is cut off, which is itself an event. */
  static async open(file: string, options: AuditLogOptions): Promise<AuditLog> {
    await using undo = new AsyncDisposableStack()
    const handle = undo.use(await open(file, 'a', 0o640))
    const found = new Found()
    for await (const { event, text, end } of readAuditLines(file, 0)) {
      const fault = faultOf(event, found, options.lease)
      if (fault !== null)
        throw new AuditError(
          'audit_corrupt',
          'infra',
          `the audit log is not whole: ${fault}; keep the file and close the lease`,
          { facts: { file } },
        )
      found.add(event, text, end)
    }
    const { size } = await handle.stat()
    const torn = size - found.bytes
    if (torn > 0) await handle.truncate(found.bytes)
    if (size > 0) await removeClosing(file)
    const log = new AuditLog(file, handle, options, found)
    if (torn > 0) {
      const detail = `a torn last line of ${torn} bytes was cut off`
      log.append({ kind: 'lifecycle', protocol: 'none', action: 'none', reason: null, detail })
    }
    undo.move()
    return log
  }

  /** What holds from here on; what is not named stays. */
  govern(rules: AuditRules): void {
    this.#rules = { ...this.#rules, ...rules }
    if (rules.aggregate === undefined) return
    this.#endAggregate()
    this.#aggregate = new DenialAggregate(
      {
        write: (record) => void this.#append(record, false),
        count: (record) => this.#found.summary.count(countedOf(record)),
      },
      rules.aggregate,
    )
  }

  /** Bytes of the log with all that was appended. */
  get bytes(): number {
    return this.#found.bytes
  }

  /** A number that joins the events of one connection; never used twice in a log. */
  nextConnection(): number {
    this.#found.connection += 1
    return this.#found.connection
  }

  /** Of a denial that is only counted, the event returned is the last one like it. */
  append(record: AuditRecord): AuditEvent {
    this.#requireOpen()
    const aggregate = this.#aggregate
    const canary = record.canary ?? this.canary
    if (aggregate === null || record.kind !== 'decision' || record.action !== 'deny' || canary)
      return this.#append(record, true)
    return aggregate.take(record, () => this.#append(record, true))
  }

  #requireOpen(): void {
    if (this.#writer.failure !== null) throw this.#writer.failure
    if (this.#closed) throw closedError()
  }

  /** `counts`: it is not in the summary yet. */
  #append(record: AuditRecord, counts: boolean): AuditEvent {
    this.#requireOpen()
    const event = this.#complete(record)
    const line = JSON.stringify(event)
    const bytes = Buffer.byteLength(line) + 1
    const found = this.#found
    const { maxBytes } = this.#rules
    if (found.bytes + bytes > (maxBytes ?? Infinity)) {
      throw this.#writer.fail(
        new AuditError(
          'audit_full',
          'agent',
          `the audit log of the lease has reached its limit of ${maxBytes} bytes; the lease is closed`,
        ),
      )
    }
    found.seq = event.seq
    found.bytes += bytes
    found.head = lineHash(line)
    found.marks.add(event)
    found.summary.note(event)
    if (counts) found.summary.count(event)
    this.#writer.add(`${line}\n`)
    this.#options.onEvent?.(event)
    return event
  }

  /** Resolves when all that was appended before has been handed to the operating system. */
  flush(): Promise<void> {
    return this.#writer.flush()
  }

  /** The same, with what has only been counted so far: for whoever is about to read the file. */
  async settle(): Promise<void> {
    if (!this.#closed) this.#aggregate?.drain()
    await this.flush()
  }

  summary(): AuditCounts {
    return this.#found.summary.view()
  }

  totals(): AuditTotals {
    return this.#found.summary.totals()
  }

  async *events(filter: AuditFilter = {}): AsyncIterable<AuditEvent> {
    let offset = 0
    if (filter.follow !== true) await this.settle()
    for (;;) {
      const { grown } = this.#writer
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

  /** Writes what is left, asks the disk to keep it, and notes beside it how it ended. Idempotent. */
  async close(): Promise<void> {
    if (this.#closed) return
    try {
      this.#endAggregate()
    } finally {
      this.#closed = true
      await this.#writer.close()
    }
    if (this.#found.seq > 0) await writeClosing(this.file, this.#closing())
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close()
  }

  #endAggregate(): void {
    const aggregate = this.#aggregate
    this.#aggregate = null
    aggregate?.stop()
    if (this.#writer.failure === null) aggregate?.drain()
  }

  #closing(): AuditClosing {
    const { lease, trial } = this.#options
    const { bytes, head, marks } = this.#found
    return { v: 1, lease, trial, bytes, head, ...marks.view(), totals: this.totals() }
  }

  /** In the order of the schema, so that an exported line has the same bytes. */
  #complete(record: AuditRecord): AuditEvent {
    const { host, detail, connection, first, last } = record
    const event: AuditEvent = {
      seq: this.#found.seq + 1,
      time: new Date().toISOString(),
      lease: this.#options.lease,
      trial: this.#options.trial,
      kind: record.kind,
      protocol: record.protocol,
      host: host === undefined || host === null ? null : safe(host, maxHost),
      address: record.address ?? null,
      port: record.port ?? null,
      action: record.action,
      reason: record.reason,
      count: record.count ?? 1,
      bytesUp: record.bytesUp ?? 0,
      bytesDown: record.bytesDown ?? 0,
    }
    if (connection !== undefined) event.connection = connection
    if (detail !== undefined) event.detail = safe(detail, maxDetail)
    if (record.canary ?? this.canary) event.canary = true
    if (first !== undefined) event.first = first
    if (last !== undefined) event.last = last
    if (this.#rules.policy !== undefined) event.policy = this.#rules.policy
    event.prev = this.#found.head
    return event
  }
}

/** Whoever handed it over should have escaped it; what wasn't is escaped here. */
const safe = (text: string, max: number): string =>
  unprintable.test(text) ? printable(text, max) : text.slice(0, max)

const countedOf = (record: AuditRecord): Counted => ({
  kind: record.kind,
  protocol: record.protocol,
  host: record.host ?? null,
  address: record.address ?? null,
  port: record.port ?? null,
  action: record.action,
  reason: record.reason,
  count: record.count ?? 1,
})

function faultOf(event: AuditEvent, found: Found, lease: string): string | null {
  if (event.seq !== found.seq + 1 || event.lease !== lease)
    return `event ${event.seq} of ${event.lease} follows event ${found.seq} of ${lease}`
  if (event.prev === undefined ? found.chained : event.prev !== found.head)
    return `event ${event.seq} was made after another line than the one before it`
  return null
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
