/**
 * A provider of models. The key lives here and goes nowhere else: of the sandbox's headers only those that policy let
 * through are sent on, few of the provider's come back, and should a provider repeat the key in an answer it is
 * blanked. A stream must say something within the time limit: a provider that only keeps it alive has stalled.
 */
import type { Readable } from 'node:stream'
import { Agent, type Dispatcher } from 'undici'
import { LeaseError } from '../errors.ts'
import type { ModelApi } from './api.ts'
import { SseReader } from './sse.ts'
import { type Answer, type Ask, type StreamItem, type Upstream, UpstreamError } from './upstream.ts'

const maxAnswerBytes = 64 * 1024 * 1024

/** What is shorter stands in for a key at servers that need none (`EMPTY`), and is a word in any answer. */
const minSecretLength = 12

/** Response headers that may reach the sandbox; organisation, rate, cookie and infrastructure headers may not. */
const passedHeaders = [
  'retry-after',
  'retry-after-ms',
  'x-should-retry',
  'x-request-id',
  'request-id',
]

export interface ProviderSpec {
  readonly kind: ModelApi['kind']
  readonly baseUrl: string
  readonly apiKey: string
}

export class ProviderUpstream implements Upstream {
  readonly host: string
  readonly port: number
  readonly #kind: ModelApi['kind']
  readonly #origin: string
  readonly #base: string
  readonly #key: string
  readonly #timeoutMs: number
  readonly #agent: Agent

  /** Throws LeaseError `lease_refused` for a key that can't be sent. */
  constructor(spec: ProviderSpec, timeoutMs: number) {
    if (!/^[\x21-\x7e]+$/.test(spec.apiKey))
      throw new LeaseError(
        'lease_refused',
        'operator',
        'the key of the provider holds a blank, a line break or a character that is not ASCII; give the key alone',
      )
    const url = new URL(spec.baseUrl)
    this.host = url.hostname
    this.port = url.port === '' ? (url.protocol === 'http:' ? 80 : 443) : Number(url.port)
    this.#kind = spec.kind
    this.#origin = url.origin
    this.#base = url.pathname.replace(/\/+$/, '')
    this.#key = spec.apiKey
    this.#timeoutMs = timeoutMs
    // Keep-alive stays at undici's 4 s: common model servers close idle connections after 5 s, and a call that is
    // sent into a closing connection can't safely be sent again.
    this.#agent = new Agent({
      allowH2: false,
      headersTimeout: timeoutMs,
      bodyTimeout: timeoutMs,
      connect: { timeout: Math.min(timeoutMs, 20_000) },
    })
  }

  prepare(ask: Ask): (options: { signal: AbortSignal }) => Promise<Answer> {
    return ({ signal }) => this.#call(ask, signal)
  }

  async #call(ask: Ask, signal: AbortSignal): Promise<Answer> {
    const response = await this.#send(ask, signal)
    const { statusCode: status, body } = response
    try {
      const headers: Record<string, string> = {}
      for (const name of passedHeaders) {
        const value = response.headers[name]
        if (typeof value === 'string' && !value.includes(this.#key)) headers[name] = value
      }
      const encoding = response.headers['content-encoding'] ?? 'identity'
      if (encoding !== 'identity')
        throw new UpstreamError(
          'upstream_invalid',
          502,
          `the provider encoded its answer though it was asked not to`,
        )
      const type = String(response.headers['content-type'] ?? '')
      if (status >= 200 && status < 300 && /^text\/event-stream\b/i.test(type))
        return { status, headers, events: this.#events(body, ask.api) }
      return { status, headers, body: this.#jsonOrText(await readAll(body)) }
    } catch (error) {
      body.on('error', () => {}).destroy()
      throw afterHead(error)
    }
  }

  async #send(ask: Ask, signal: AbortSignal): Promise<Dispatcher.ResponseData> {
    try {
      return await this.#agent.request({
        origin: this.#origin,
        path: `${this.#base}${ask.path}`,
        method: 'POST',
        headers: {
          ...ask.headers,
          ...this.#credentials(),
          'content-type': 'application/json',
          accept: ask.stream ? 'text/event-stream' : 'application/json',
          'accept-encoding': 'identity',
          'user-agent': 'closedbook',
        },
        body: JSON.stringify(ask.api.outgoing(ask.body)),
        signal,
      })
    } catch (error) {
      throw beforeHead(error)
    }
  }

  #credentials(): Record<string, string> {
    return this.#kind === 'openai'
      ? { authorization: `Bearer ${this.#key}` }
      : { 'x-api-key': this.#key }
  }

  async *#events(
    body: Dispatcher.ResponseData['body'],
    api: ModelApi,
  ): AsyncGenerator<StreamItem, void, undefined> {
    const reader = new SseReader()
    const stall = setTimeout(() => body.destroy(stalled()), this.#timeoutMs)
    let done = false
    try {
      for await (const chunk of bounded(body)) {
        for (const item of reader.read(chunk)) {
          if (item.kind === 'comment') {
            yield item
            continue
          }
          if (item.data.trim() === '[DONE]') {
            done = true
            yield { kind: 'done' }
            return
          }
          const payload = this.#parse(item.data)
          if (!api.isPing(payload)) stall.refresh()
          done = api.isLast(payload)
          yield { kind: 'payload', payload }
          if (done) return
        }
      }
    } catch (error) {
      throw afterHead(error)
    } finally {
      clearTimeout(stall)
      // After its last event only the end of the chunked body is left; reading it keeps the connection for the next
      // call.
      body.on('error', () => {})
      if (done) body.resume()
      else body.destroy()
    }
  }

  #jsonOrText(text: string): unknown {
    try {
      return this.#parsed(text)
    } catch {
      return this.#blank(text)
    }
  }

  #parse(data: string): unknown {
    try {
      return this.#parsed(data)
    } catch (cause) {
      const words = 'the provider streamed something that is not JSON'
      throw new UpstreamError('upstream_invalid', 502, words, { cause })
    }
  }

  /** Blanked before it is parsed, and after it where an escape could have hidden the key. */
  #parsed(text: string): unknown {
    const value: unknown = JSON.parse(this.#blank(text))
    return text.includes('\\') ? this.#blankIn(value) : value
  }

  #blankIn(value: unknown): unknown {
    if (typeof value === 'string') return this.#blank(value)
    if (Array.isArray(value)) return value.map((one) => this.#blankIn(one))
    if (typeof value !== 'object' || value === null) return value
    return Object.fromEntries(
      Object.entries(value).map(([key, one]) => [this.#blank(key), this.#blankIn(one)]),
    )
  }

  #blank(text: string): string {
    if (this.#key.length < minSecretLength) return text
    return text.includes(this.#key) ? text.replaceAll(this.#key, '[removed]') : text
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#agent.destroy()
  }
}

const stalled = (): UpstreamError =>
  new UpstreamError('upstream_timeout', 504, 'the provider kept its stream open and said nothing')

async function* bounded(body: Readable): AsyncGenerator<Uint8Array, void, undefined> {
  let total = 0
  for await (const chunk of body.iterator({
    destroyOnReturn: false,
  }) as AsyncIterable<Uint8Array>) {
    total += chunk.length
    if (total > maxAnswerBytes)
      throw new UpstreamError('upstream_invalid', 502, 'the provider sent more than 64 MiB')
    yield chunk
  }
}

async function readAll(body: Readable): Promise<string> {
  const chunks: Uint8Array[] = []
  for await (const chunk of bounded(body)) chunks.push(chunk)
  return Buffer.concat(chunks).toString('utf8')
}

const codeOf = (error: unknown): string =>
  error instanceof Error && 'code' in error && typeof error.code === 'string'
    ? error.code
    : 'unknown'

const timeouts = new Set([
  'UND_ERR_HEADERS_TIMEOUT',
  'UND_ERR_BODY_TIMEOUT',
  'UND_ERR_CONNECT_TIMEOUT',
  'ETIMEDOUT',
])

function beforeHead(error: unknown): UpstreamError {
  const code = codeOf(error)
  return timeouts.has(code)
    ? new UpstreamError('upstream_timeout', 504, `the provider did not answer in time (${code})`, {
        cause: error,
      })
    : new UpstreamError(
        'upstream_unreachable',
        502,
        `the provider could not be reached (${code})`,
        { cause: error },
      )
}

function afterHead(error: unknown): UpstreamError {
  if (error instanceof UpstreamError) return error
  const code = codeOf(error)
  return timeouts.has(code)
    ? new UpstreamError('upstream_timeout', 504, `the provider stopped sending (${code})`, {
        cause: error,
      })
    : new UpstreamError('upstream_broken', 502, `the provider broke off its answer (${code})`, {
        cause: error,
      })
}
