/**
 * The event stream of one lease: what was run in it, what its model answered, what it was refused. Numbered from 1,
 * kept as JSON lines, and followed by readers who can start at any number. The audit log is the record of policy;
 * this is the record of work.
 */
import { createReadStream, createWriteStream, type WriteStream } from 'node:fs'
import { truncate } from 'node:fs/promises'
import { once } from 'node:events'
import { buffer } from 'node:stream/consumers'
import type { LeaseEvent } from '../protocol/lease.ts'

export class EventLog implements AsyncDisposable {
  readonly #lease: string
  readonly #file: string
  readonly #stream: WriteStream
  readonly #waiting = new Set<() => void>()
  #next: number
  #ended = false

  private constructor(lease: string, file: string, next: number) {
    this.#lease = lease
    this.#file = file
    this.#next = next
    this.#stream = createWriteStream(file, { flags: 'a', mode: 0o600 })
    this.#stream.on('error', () => {})
  }

  static async open(lease: string, file: string): Promise<EventLog> {
    const { events, bytes } = await read(file)
    // A line that a crash tore would otherwise run into the next one.
    if (bytes !== null) await truncate(file, bytes)
    return new EventLog(lease, file, (events.at(-1)?.seq ?? 0) + 1)
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
    let next = from
    let offset = 0
    while (true) {
      const ended = this.#ended
      const more = new Promise<void>((resolve) => {
        this.#waiting.add(resolve)
        options.signal?.addEventListener('abort', () => resolve(), { once: true })
      })
      await this.flush()
      const { events, bytes } = await read(this.#file, offset)
      offset += bytes ?? 0
      for (const event of events)
        if (event.seq >= next) {
          next = event.seq + 1
          yield event
        }
      if (!options.follow || ended || options.signal?.aborted === true) return
      await more
    }
  }

  async flush(): Promise<void> {
    if (this.#stream.destroyed || this.#stream.writableLength === 0) return
    await new Promise<void>((resolve) => this.#stream.write('', () => resolve()))
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#ended) return
    this.#ended = true
    this.#stream.end()
    if (!this.#stream.closed) await once(this.#stream, 'close').catch(() => {})
    this.#wake()
  }
}

/** Whole lines only: a last line that a crash tore is left out. */
export async function readEvents(file: string): Promise<LeaseEvent[]> {
  return (await read(file)).events
}

/** From a line's start; `bytes`: how much of the file the events are; null where there is no file. */
async function read(
  file: string,
  offset = 0,
): Promise<{ events: LeaseEvent[]; bytes: number | null }> {
  let content: Buffer
  try {
    content = await buffer(createReadStream(file, { start: offset }))
  } catch {
    return { events: [], bytes: null }
  }
  const bytes = content.lastIndexOf('\n') + 1
  const events = content
    .toString('utf8', 0, bytes)
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line) as LeaseEvent)
  return { events, bytes }
}
