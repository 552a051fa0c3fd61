/**
 * The event stream of one lease: what was run in it, what its model answered, what it was refused. Numbered from 1,
 * kept as JSON lines, and followed by readers who can start at any number. The audit log is the record of policy;
 * this is the record of work.
 */
import { createWriteStream, type WriteStream } from 'node:fs'
import { open, truncate } from 'node:fs/promises'
import { once } from 'node:events'
import { AuditError } from '../egress/audit-error.ts'
import type { LeaseEvent } from '../protocol/lease.ts'

/** A reader holds so much of the file at once, or one line where that is longer. */
const pieceBytes = 256 * 1024
const newline = 0x0a

export class EventLog implements AsyncDisposable {
  readonly #lease: string
  readonly #file: string
  readonly #stream: WriteStream
  readonly #waiting = new Set<() => void>()
  /** Resolves when the disk refuses an event: what follows it is lost, so the lease must close. */
  readonly failed: Promise<AuditError>
  #next: number
  #ended = false

  private constructor(lease: string, file: string, next: number) {
    this.#lease = lease
    this.#file = file
    this.#next = next
    this.#stream = createWriteStream(file, { flags: 'a', mode: 0o600 })
    const { promise, resolve } = Promise.withResolvers<AuditError>()
    this.failed = promise
    this.#stream.on('error', (cause: NodeJS.ErrnoException) =>
      resolve(
        new AuditError(
          'audit_write_failed',
          'infra',
          `the record of what ran can't be written (${cause.code ?? cause.message}): free space on the disk of the state folder, or check that disk; the lease is closed`,
          { cause },
        ),
      ),
    )
  }

  static async open(lease: string, file: string): Promise<EventLog> {
    let last = 0
    let bytes = 0
    for (;;) {
      const piece = await read(file, bytes)
      if (piece === null) return new EventLog(lease, file, 1)
      if (piece.bytes === 0) break
      bytes += piece.bytes
      last = piece.events.at(-1)?.seq ?? last
    }
    // A line that a crash tore would otherwise run into the next one.
    await truncate(file, bytes)
    return new EventLog(lease, file, last + 1)
  }

  append(event: LeaseEvent['event']): void {
    if (this.#ended) return
    const line: LeaseEvent = {
      seq: this.#next++,
      time: new Date().toISOString(),
      lease: this.#lease,
      event,
    }
    this.#stream.write(`${JSON.stringify(line)}\n`)
    this.#wake()
  }

  #wake(): void {
    for (const wake of this.#waiting) wake()
    this.#waiting.clear()
  }

  /** Events from `from` on; with `follow` it goes on until the lease has closed. */
  async *read(
    from: number,
    options: { follow: boolean; signal?: AbortSignal },
  ): AsyncGenerator<LeaseEvent> {
    for await (const piece of this.pieces(from, options)) yield* piece
  }

  /** The same, some at a time; the next are read when these have been taken. */
  async *pieces(
    from: number,
    { follow, signal }: { follow: boolean; signal?: AbortSignal },
  ): AsyncGenerator<readonly LeaseEvent[]> {
    let offset = 0
    while (signal?.aborted !== true) {
      const ended = this.#ended
      using more = this.#more(signal)
      await this.flush()
      const piece = await read(this.#file, offset)
      offset += piece?.bytes ?? 0
      const wanted = piece?.events.filter(({ seq }) => seq >= from) ?? []
      if (wanted.length > 0) yield wanted
      if (piece !== null && piece.bytes > 0) continue
      if (!follow || ended) return
      await more.promise
    }
  }

  /** Resolves at the next event, or when the reader goes; dispose forgets the reader. */
  #more(signal: AbortSignal | undefined): Disposable & { readonly promise: Promise<void> } {
    const { promise, resolve } = Promise.withResolvers<void>()
    this.#waiting.add(resolve)
    const wake = (): void => resolve()
    signal?.addEventListener('abort', wake, { once: true })
    return {
      promise,
      [Symbol.dispose]: () => {
        this.#waiting.delete(resolve)
        signal?.removeEventListener('abort', wake)
      },
    }
  }

  async flush(): Promise<void> {
    if (this.#stream.closed || this.#stream.writableLength === 0) return
    // A write to a stream that is ending would destroy it, with what waits in it.
    if (this.#stream.writableEnded || this.#stream.destroyed)
      await once(this.#stream, 'close').catch(() => {})
    else await new Promise<void>((resolve) => this.#stream.write('', () => resolve()))
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#ended) return
    this.#ended = true
    this.#stream.end()
    if (!this.#stream.closed) await once(this.#stream, 'close').catch(() => {})
    this.#wake()
  }
}

/** Of a lease that is no more, some at a time; none where nothing was kept. A last line that a crash tore is left out. */
export async function* readEvents(
  file: string,
  from: number,
): AsyncGenerator<readonly LeaseEvent[]> {
  for (let offset = 0; ;) {
    const piece = await read(file, offset)
    if (piece === null || piece.bytes === 0) return
    offset += piece.bytes
    const wanted = piece.events.filter(({ seq }) => seq >= from)
    if (wanted.length > 0) yield wanted
  }
}

/** Whole lines from a line's start on; `bytes`: how much of the file they are; null where there is no file. */
async function read(
  file: string,
  offset: number,
): Promise<{ events: LeaseEvent[]; bytes: number } | null> {
  await using handle = await open(file, 'r').catch(() => null)
  if (handle === null) return null
  for (let size = pieceBytes; ; size *= 2) {
    const { buffer, bytesRead } = await handle.read(Buffer.allocUnsafe(size), 0, size, offset)
    const bytes = buffer.subarray(0, bytesRead).lastIndexOf(newline) + 1
    if (bytes === 0 && bytesRead === size) continue
    const events = buffer
      .toString('utf8', 0, bytes)
      .split('\n')
      .filter((line) => line !== '')
      .map((line) => JSON.parse(line) as LeaseEvent)
    return { events, bytes }
  }
}
