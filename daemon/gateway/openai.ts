/**
 * A provider with the OpenAI chat completions API. The key lives here and goes nowhere else: nothing of the sandbox's
 * headers is sent on, few of the provider's come back, and should a provider repeat the key in an answer it is blanked.
 * Streams are always asked for their usage, whether the sandbox wants it or not.
 */
import type { Readable } from 'node:stream'
import { Agent, type Dispatcher } from 'undici'
import { SseReader } from './sse.ts'
import { type Answer, type Ask, type StreamItem, type Upstream, UpstreamError } from './upstream.ts'

const maxAnswerBytes = 64 * 1024 * 1024

/** Response headers that may reach the sandbox; organisation, rate, cookie and infrastructure headers may not. */
const passedHeaders = ['retry-after', 'retry-after-ms', 'x-should-retry', 'x-request-id']

export class OpenAiUpstream implements Upstream {
  readonly host: string
  readonly port: number
  readonly #origin: string
  readonly #path: string
  readonly #key: string
  readonly #agent: Agent

  constructor(spec: { baseUrl: string; apiKey: string }, timeoutMs: number) {
    const url = new URL(spec.baseUrl)
    this.host = url.hostname
    this.port = url.port === '' ? (url.protocol === 'http:' ? 80 : 443) : Number(url.port)
    this.#origin = url.origin
    this.#path = `${url.pathname.replace(/\/+$/, '')}/chat/completions`
    this.#key = spec.apiKey
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
        return { status, headers, events: this.#events(body) }
      const text = this.#clean(await readAll(body))
      return { status, headers, body: jsonOrText(text) }
    } catch (error) {
      body.on('error', () => {}).destroy()
      throw afterHead(error)
    }
  }

  async #send(ask: Ask, signal: AbortSignal): Promise<Dispatcher.ResponseData> {
    const options = ask.body['stream_options']
    const body = ask.stream
      ? {
          ...ask.body,
          stream_options: { ...(typeof options === 'object' ? options : {}), include_usage: true },
        }
      : ask.body
    try {
      return await this.#agent.request({
        origin: this.#origin,
        path: this.#path,
        method: 'POST',
        headers: {
          authorization: `Bearer ${this.#key}`,
          'content-type': 'application/json',
          accept: ask.stream ? 'text/event-stream' : 'application/json',
          'accept-encoding': 'identity',
          'user-agent': 'closedbook',
        },
        body: JSON.stringify(body),
        signal,
      })
    } catch (error) {
      throw beforeHead(error)
    }
  }

  async *#events(
    body: Dispatcher.ResponseData['body'],
  ): AsyncGenerator<StreamItem, void, undefined> {
    const reader = new SseReader()
    let done = false
    try {
      for await (const chunk of bounded(body)) {
        for (const item of reader.read(chunk)) {
          if (item.kind === 'comment') yield item
          else if (item.data.trim() === '[DONE]') {
            done = true
            yield { kind: 'done' }
            return
          } else yield { kind: 'payload', payload: parse(this.#clean(item.data)) }
        }
      }
    } catch (error) {
      throw afterHead(error)
    } finally {
      // After [DONE] only the end of the chunked body is left; reading it keeps the connection for the next call.
      body.on('error', () => {})
      if (done) body.resume()
      else body.destroy()
    }
  }

  #clean(text: string): string {
    return text.includes(this.#key) ? text.replaceAll(this.#key, '[removed]') : text
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#agent.destroy()
  }
}

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

function jsonOrText(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return text
  }
}

function parse(data: string): unknown {
  try {
    return JSON.parse(data)
  } catch (error) {
    throw new UpstreamError(
      'upstream_invalid',
      502,
      'the provider streamed something that is not JSON',
      {
        cause: error,
      },
    )
  }
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
