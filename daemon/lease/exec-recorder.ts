/** Turns what an exec does into entries of the lease's event stream: argv, exit, exact totals, head and tail. */
import { StringDecoder } from 'node:string_decoder'
import type { ExecEnd, ExecStart } from '../protocol/exec-frames.ts'
import type { EventLog } from './event-log.ts'

const keepBytes = 4096

interface Running {
  head: Buffer
  tail: Buffer
  bytes: number
}

export class ExecRecorder {
  readonly #events: EventLog
  readonly #onEnd: () => void
  readonly #running = new Map<string, Running>()
  readonly #waiting = new Set<() => void>()

  constructor(events: EventLog, onEnd: () => void) {
    this.#events = events
    this.#onEnd = onEnd
  }

  get active(): number {
    return this.#running.size
  }

  /** Resolves with true once nothing runs, with false when something still does after that time. */
  async idle(limitMs: number): Promise<boolean> {
    if (this.#running.size === 0) return true
    const ended = Promise.withResolvers<void>()
    this.#waiting.add(ended.resolve)
    const limit = setTimeout(ended.resolve, limitMs)
    await ended.promise
    clearTimeout(limit)
    return this.#running.size === 0
  }

  #over(exec: string): void {
    this.#running.delete(exec)
    if (this.#running.size > 0) return
    for (const wake of this.#waiting) wake()
    this.#waiting.clear()
  }

  /** Its start is in the stream already: the daemon was restarted meanwhile. */
  adopted(exec: string): void {
    this.#running.set(exec, { head: Buffer.alloc(0), tail: Buffer.alloc(0), bytes: 0 })
  }

  started(exec: string, start: Pick<ExecStart, 'argv' | 'label'>): void {
    this.adopted(exec)
    this.#events.append({
      type: 'exec.start',
      exec,
      argv: start.argv.map((word) => (word.length > 8192 ? `${word.slice(0, 8192)}…` : word)),
      label: start.label ?? null,
    })
  }

  output(exec: string, bytes: Buffer): void {
    const running = this.#running.get(exec)
    if (running === undefined) return
    running.bytes += bytes.length
    const room = keepBytes - running.head.length
    if (room > 0) running.head = Buffer.concat([running.head, bytes.subarray(0, room)])
    const rest = room > 0 ? bytes.subarray(room) : bytes
    if (rest.length > 0)
      running.tail = Buffer.concat([
        running.tail.subarray(Math.max(0, running.tail.length + rest.length - keepBytes)),
        rest.subarray(Math.max(0, rest.length - keepBytes)),
      ])
  }

  ended(end: ExecEnd): void {
    const running = this.#running.get(end.exec)
    this.#over(end.exec)
    this.#events.append({
      type: 'exec.end',
      exec: end.exec,
      exit: end.exit,
      cause: end.cause,
      durationMs: end.durationMs,
      outputBytes: end.stdout.totalBytes + end.stderr.totalBytes,
      head: text(running?.head),
      tail: text(running?.tail),
    })
    this.#onEnd()
  }

  /** It never started, or the engine was lost: there is no end to tell. */
  failed(exec: string, message: string): void {
    this.#over(exec)
    this.#events.append({
      type: 'exec.end',
      exec,
      exit: 'unknown',
      cause: 'engine_lost',
      durationMs: 0,
      outputBytes: 0,
      head: message,
      tail: '',
    })
    this.#onEnd()
  }
}

const text = (bytes: Buffer = Buffer.alloc(0)): string => new StringDecoder('utf8').end(bytes)
