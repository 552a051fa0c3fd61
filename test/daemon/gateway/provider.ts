/** A stand-in provider on loopback that answers with the shapes of real ones, one behaviour a call. */
import { once } from 'node:events'
import http from 'node:http'
import type { AddressInfo } from 'node:net'

export type Behaviour = (response: http.ServerResponse, body: Record<string, unknown>) => void

export interface Seen {
  readonly path: string
  readonly headers: http.IncomingHttpHeaders
  readonly body: Record<string, unknown>
}

export const apiKey = 'sk-live-0123456789abcdef-not-for-the-sandbox'

export class StandInProvider implements AsyncDisposable {
  readonly seen: Seen[] = []
  readonly #server: http.Server
  readonly #behaviours: Behaviour[]
  connections = 0
  /** Answers that were sent to their end. */
  finished = 0

  private constructor(behaviours: Behaviour[]) {
    this.#behaviours = behaviours
    this.#server = http.createServer((request, response) => {
      response.on('finish', () => (this.finished += 1))
      const chunks: Buffer[] = []
      request.on('data', (chunk: Buffer) => chunks.push(chunk))
      request.on('end', () => {
        const body = JSON.parse(Buffer.concat(chunks).toString()) as Record<string, unknown>
        this.seen.push({ path: request.url ?? '', headers: request.headers, body })
        const behaviour = this.#behaviours.shift()
        if (behaviour === undefined) response.writeHead(500).end('nothing more to say')
        else behaviour(response, body)
      })
    })
    this.#server.on('connection', () => (this.connections += 1))
  }

  /** The nth call gets the nth behaviour. */
  static async open(behaviours: Behaviour[]): Promise<StandInProvider> {
    const provider = new StandInProvider(behaviours)
    provider.#server.listen(0, '127.0.0.1')
    await once(provider.#server, 'listening')
    return provider
  }

  get baseUrl(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}/v1`
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.closeAllConnections()
    this.#server.close()
  }
}

export const usage = (input: number, cached: number, output: number, reasoning = 0) => ({
  prompt_tokens: input,
  completion_tokens: output,
  total_tokens: input + output,
  prompt_tokens_details: { cached_tokens: cached },
  completion_tokens_details: { reasoning_tokens: reasoning },
})

export type WireUsage = ReturnType<typeof usage>

export const completion = (text: string, used: WireUsage | null, command?: string) => ({
  id: 'chatcmpl-1',
  object: 'chat.completion',
  created: 1764446400,
  model: 'm-1-2025',
  choices: [
    {
      index: 0,
      message: {
        role: 'assistant',
        content: text,
        ...(command === undefined
          ? {}
          : {
              tool_calls: [
                {
                  id: 'call_0_0',
                  type: 'function',
                  function: { name: 'bash', arguments: JSON.stringify({ command }) },
                },
              ],
            }),
      },
      finish_reason: command === undefined ? 'stop' : 'tool_calls',
    },
  ],
  ...(used === null ? {} : { usage: used }),
})

const hostHeaders = {
  'openai-organization': 'org-secret',
  'x-ratelimit-remaining-tokens': '149984',
  'set-cookie': '__cf_bm=abc',
  'x-request-id': 'req_1',
  'request-id': 'req_1',
  'anthropic-organization-id': 'org-secret',
  'anthropic-ratelimit-requests-remaining': '49',
}

export const json =
  (body: unknown, status = 200, headers: http.OutgoingHttpHeaders = {}): Behaviour =>
  (response) => {
    response.writeHead(status, { 'content-type': 'application/json', ...hostHeaders, ...headers })
    response.end(JSON.stringify(body))
  }

export const chunk = (delta: object, finish: string | null = null) => ({
  id: 'chatcmpl-2',
  object: 'chat.completion.chunk',
  created: 1764446400,
  model: 'm-1-2025',
  choices: [{ index: 0, delta, finish_reason: finish }],
})

export const usageChunk = (used: WireUsage) => ({ ...chunk({}), choices: [], usage: used })

export const textChunks = (text: string): object[] => [
  chunk({ role: 'assistant', content: '' }),
  ...text.split('').map((letter) => chunk({ content: letter })),
  chunk({}, 'stop'),
]

export const events = (payloads: readonly unknown[]): string =>
  payloads.map((payload) => `data: ${JSON.stringify(payload)}\n\n`).join('')

/** As APIs whose events have names write them. */
export const namedEvents = (payloads: readonly { type: string }[]): string =>
  payloads.map((payload) => `event: ${payload.type}\ndata: ${JSON.stringify(payload)}\n\n`).join('')

/** A whole stream, its bytes cut every `cut` bytes. */
export const sse = (payloads: readonly unknown[], { cut = 7, end = 'data: [DONE]\n\n' } = {}) =>
  stream(`: keep\n\n${events(payloads)}${end}`, cut)

export const namedSse = (payloads: readonly { type: string }[], { cut = 7 } = {}) =>
  stream(namedEvents(payloads), cut)

const stream =
  (text: string, cut: number): Behaviour =>
  (response) => {
    response.writeHead(200, { 'content-type': 'text/event-stream; charset=utf-8', ...hostHeaders })
    const bytes = Buffer.from(text)
    for (let at = 0; at < bytes.length; at += cut) response.write(bytes.subarray(at, at + cut))
    // Some providers end the response a moment after its last event.
    setTimeout(() => response.end(), 2)
  }
