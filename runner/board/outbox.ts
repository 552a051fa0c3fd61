/**
 * Sends what is published, one request at a time, newest version only, in the background. A daemon that is away or
 * refuses is tried again for as long as the job goes on; nobody waits for it and nothing fails by it.
 */
import type { DaemonClient } from '../../daemon/protocol/client.ts'
import { boardLinesSchema } from '../../daemon/protocol/board.ts'
import { ClosedbookError } from '../../daemon/protocol/errors.ts'
import { messageOf } from '../errors.ts'

type Client = Pick<DaemonClient, 'call' | 'callText'>

const againAfterMs = 2_000
const flushMs = 15_000
/** What no later try would change. */
const hopeless = new Set(['bad_request', 'too_large', 'forbidden', 'not_found', 'unauthenticated'])

export class Outbox implements AsyncDisposable {
  readonly #client: Client
  readonly #onTrouble: (message: string) => void
  readonly #documents = new Map<string, () => unknown>()
  readonly #lines = new Map<string, { sent: number; waiting: string[] }>()
  /** What is left is sent, and nothing is tried twice. */
  readonly #closing = new AbortController()
  readonly #ending = new AbortController()
  #pumping: Promise<void> | null = null
  #told = false

  constructor(client: Client, onTrouble: (message: string) => void = () => {}) {
    this.#client = client
    this.#onTrouble = onTrouble
  }

  /** `make` is called when its turn has come. */
  put(kind: string, id: string, make: () => unknown): void {
    this.#documents.set(`${kind}/${id}`, make)
    this.#start()
  }

  line(kind: string, id: string, line: string): void {
    const key = `${kind}/${id}`
    const known = this.#lines.get(key) ?? { sent: 0, waiting: [] }
    this.#lines.set(key, known)
    known.waiting.push(line)
    this.#start()
  }

  /** Sends what is left, unless the daemon doesn't take it. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#closing.abort()
    const limit = setTimeout(() => this.#ending.abort(), flushMs)
    limit.unref()
    await this.#pumping
    clearTimeout(limit)
    this.#ending.abort()
  }

  #start(): void {
    if (this.#ending.signal.aborted) return
    this.#pumping ??= this.#pump().finally(() => (this.#pumping = null))
  }

  async #pump(): Promise<void> {
    const { signal } = this.#ending
    while (!signal.aborted) {
      const next = this.#next()
      if (next === null) return
      try {
        await next.send(AbortSignal.any([signal, AbortSignal.timeout(30_000)]))
      } catch (error) {
        this.#tell(error)
        if (isHopeless(error)) continue
        if (this.#closing.signal.aborted) return
        next.again()
        await pause(againAfterMs, this.#closing.signal)
      }
    }
  }

  #next(): { send: (signal: AbortSignal) => Promise<void>; again: () => void } | null {
    for (const [key, log] of this.#lines) {
      if (log.waiting.length === 0) continue
      return { send: (signal) => this.#sendLines(key, log, signal), again: () => {} }
    }
    for (const [key, make] of this.#documents) {
      this.#documents.delete(key)
      return {
        send: async (signal) => {
          const body = await make()
          await this.#client.call('PUT', `/v1/board/${key}`, { body, signal })
        },
        again: () => {
          if (!this.#documents.has(key)) this.#documents.set(key, make)
        },
      }
    }
    return null
  }

  async #sendLines(
    key: string,
    log: { sent: number; waiting: string[] },
    signal: AbortSignal,
  ): Promise<void> {
    const piece = log.waiting.slice(0, 100)
    const path = `/v1/board/${key}/lines?from=${log.sent + 1}`
    const text = `${piece.join('\n')}\n`
    try {
      boardLinesSchema.parse(await this.#client.callText('POST', path, text, { signal }))
      log.sent += piece.length
      log.waiting.splice(0, piece.length)
    } catch (error) {
      // lines that are refused must not hold up what is behind them
      if (isHopeless(error)) log.waiting.length = 0
      throw error
    }
  }

  #tell(error: unknown): void {
    if (this.#told || this.#ending.signal.aborted) return
    this.#told = true
    this.#onTrouble(`the dashboard lags behind: ${messageOf(error)}`)
  }
}

const isHopeless = (error: unknown): boolean =>
  error instanceof ClosedbookError && hopeless.has(error.code)

async function pause(ms: number, signal: AbortSignal): Promise<void> {
  await new Promise<void>((resolve) => {
    const timer = setTimeout(resolve, ms)
    signal.addEventListener(
      'abort',
      () => {
        clearTimeout(timer)
        resolve()
      },
      { once: true },
    )
  })
}
