/**
 * The sandbox's side of one request: JSON, or a stream of events. Errors have the shape that clients of all APIs read,
 * `{type: 'error', error: {message, type, code}}`, with our reason in the message, in `code` and in
 * X-Closedbook-Reason. A client that went away or doesn't read changes nothing: what is written to it is then dropped or held, and the call behind
 * it goes on to its end, so that a sandbox can't leave before the bill.
 */
import type { ServerResponse } from 'node:http'
import { isObject } from '../../policy/model-check.ts'
import type { Reason } from '../../policy/decision.ts'
import { sseComment, sseDone, sseEvent } from './sse.ts'

export const errorBody = (kind: 'refusal' | 'fault', code: string, message: string): object => ({
  type: 'error',
  error: { message: `closedbook: ${code}: ${message}`, type: `closedbook_${kind}`, code },
})

/** A provider's error as it is when it has the usual shape, else one of ours that quotes its start. */
export function errorOf(body: unknown, status: number, code: string): object {
  if (isObject(body) && isObject(body['error'])) return body
  const text = typeof body === 'string' ? body : JSON.stringify(body ?? '')
  const quote = text.slice(0, 300)
  return errorBody('fault', code, `the provider answered ${status}: ${quote}`)
}

export class Reply {
  readonly #response: ServerResponse
  readonly #named: boolean
  #bytes = 0
  #lastEventAt = 0

  /** `named`: events of its streams carry their type as a name too, and no [DONE] ends them. */
  constructor(response: ServerResponse, { named = false } = {}) {
    this.#response = response
    this.#named = named
    response.on('error', () => {})
  }

  get bytes(): number {
    return this.#bytes
  }

  /** By `performance.now()`; 0 when nothing of a stream has come. */
  get lastEventAt(): number {
    return this.#lastEventAt
  }

  get started(): boolean {
    return this.#response.headersSent
  }

  json(
    status: number,
    value: unknown,
    headers: Readonly<Record<string, string>> = {},
    reason?: Reason,
  ): void {
    const body = Buffer.from(JSON.stringify(value))
    this.#response.writeHead(status, {
      ...headers,
      ...(reason === undefined ? {} : { 'x-closedbook-reason': reason }),
      'content-type': 'application/json',
      'content-length': body.length,
    })
    this.#bytes += body.length
    this.#response.end(body)
  }

  refuse(
    status: number,
    reason: Reason,
    message: string,
    headers: Record<string, string> = {},
  ): void {
    this.json(status, errorBody('refusal', reason, message), headers, reason)
  }

  event(payload: unknown, headers: Readonly<Record<string, string>>): void {
    this.#lastEventAt = performance.now()
    if (!this.started)
      this.#response.writeHead(200, {
        ...headers,
        'content-type': 'text/event-stream; charset=utf-8',
        'cache-control': 'no-cache',
      })
    this.#write(sseEvent(payload, { named: this.#named }))
  }

  comment(): void {
    if (this.started) this.#write(sseComment)
  }

  /** A stream that ends with [DONE], or its API's last event, is whole; one that ends with an error event is not. */
  endStream({ whole }: { whole: boolean }): void {
    if (whole && !this.#named) this.#write(sseDone)
    this.#response.end()
  }

  #write(text: string): void {
    if (this.#response.destroyed) return
    this.#bytes += Buffer.byteLength(text)
    this.#response.write(text)
  }
}
