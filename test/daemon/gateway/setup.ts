/** A gateway on a loopback listener, with its audit and events kept, and a client that sends what it is told to. */
import { once } from 'node:events'
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import http from 'node:http'
import net, { type AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { ModelGateway } from '../../../daemon/gateway/model.ts'
import type { ModelCallEvent } from '../../../daemon/gateway/calls.ts'
import { modelGatewaySchema, type ModelGatewaySpec } from '../../../daemon/protocol/lease.ts'
import { recordedCallSchema, type RecordedCall } from '../../../daemon/protocol/recording.ts'
import type { AuditRecord } from '../../../policy/audit-event.ts'
import { apiKey as defaultKey } from './provider.ts'

export const price = {
  inputPerMillionUsd: 1.1,
  cachedInputPerMillionUsd: 0.11,
  outputPerMillionUsd: 4.4,
}

/** With the rate that an upstream of kind anthropic must have. */
const fullPrice = { ...price, cacheWriteInputPerMillionUsd: 1.375 }

export interface Received {
  readonly status: number
  readonly headers: http.IncomingHttpHeaders
  readonly text: string
}

export interface Options {
  readonly baseUrl?: string
  /** Whose API the provider has. */
  readonly kind?: 'openai' | 'anthropic'
  readonly apiKey?: string
  readonly replay?: readonly RecordedCall[]
  readonly exchangesFile?: string
  readonly spec?: Partial<
    Pick<ModelGatewaySpec, 'budget' | 'upstreamTimeoutMs' | 'record' | 'model'>
  >
}

export class Sandbox implements AsyncDisposable {
  readonly gateway: ModelGateway
  readonly port: number
  readonly audit: AuditRecord[]
  readonly calls: ModelCallEvent[]
  readonly owner: AbortController
  readonly #file: string
  readonly #undo: AsyncDisposableStack

  private constructor(
    parts: Pick<Sandbox, 'gateway' | 'port' | 'audit' | 'calls' | 'owner'>,
    file: string,
    undo: AsyncDisposableStack,
  ) {
    this.gateway = parts.gateway
    this.port = parts.port
    this.audit = parts.audit
    this.calls = parts.calls
    this.owner = parts.owner
    this.#file = file
    this.#undo = undo
  }

  static async open({
    baseUrl,
    kind = 'openai',
    apiKey = defaultKey,
    replay,
    spec = {},
    ...rest
  }: Options): Promise<Sandbox> {
    await using undo = new AsyncDisposableStack()
    const directory = await mkdtemp(join(tmpdir(), 'gateway-'))
    undo.defer(() => rm(directory, { recursive: true }))
    const server = net.createServer().listen(0, '127.0.0.1')
    undo.defer(() => void server.close())
    await once(server, 'listening')
    let connections = 0
    const audit: AuditRecord[] = []
    const calls: ModelCallEvent[] = []
    const owner = new AbortController()
    const exchangesFile = rest.exchangesFile ?? join(directory, 'exchanges.jsonl')
    const upstream =
      baseUrl === undefined ? { kind: 'replay', bundle: 'b', path: 'p' } : { kind, baseUrl, apiKey }
    const gateway = await ModelGateway.open(
      modelGatewaySchema.parse({ upstream, model: 'm-1', price: fullPrice, ...spec }),
      {
        server,
        audit: {
          append: (record) => audit.push(record),
          nextConnection: () => (connections += 1),
          flush: async () => {},
        },
        replay: replay ?? null,
        exchangesFile,
        onCall: (event) => calls.push(event),
        signal: owner.signal,
      },
    )
    undo.use(gateway)
    const { port } = server.address() as AddressInfo
    return new Sandbox({ gateway, port, audit, calls, owner }, exchangesFile, undo.move())
  }

  /** Shuts the gateway and reads what it recorded. */
  async recording(): Promise<RecordedCall[]> {
    await this.gateway.shut()
    const lines = (await readFile(this.#file, 'utf8')).split('\n').filter((line) => line !== '')
    return lines.map((line) => recordedCallSchema.parse(JSON.parse(line)))
  }

  async recordingText(): Promise<string> {
    await this.gateway.shut()
    return readFile(this.#file, 'utf8')
  }

  /** The answer as soon as its head is here. */
  async begin(
    path: string,
    { method = 'POST', body, headers = {} }: Sent = {},
  ): Promise<http.IncomingMessage> {
    const request = http.request({ host: '127.0.0.1', port: this.port, path, method, headers })
    request.on('error', () => {})
    request.end(typeof body === 'string' || Buffer.isBuffer(body) ? body : JSON.stringify(body))
    const [response] = (await once(request, 'response')) as [http.IncomingMessage]
    return response
  }

  async send(path: string, sent: Sent = {}): Promise<Received> {
    const response = await this.begin(path, sent)
    const chunks: Buffer[] = []
    for await (const chunk of response as AsyncIterable<Buffer>) chunks.push(chunk)
    return {
      status: response.statusCode ?? 0,
      headers: response.headers,
      text: Buffer.concat(chunks).toString(),
    }
  }

  /** What is answered now was read after everything that was sent before. */
  async caughtUp(): Promise<void> {
    await this.send('/closedbook/ping', { method: 'GET' })
  }

  ask(fields: Record<string, unknown> = {}): Promise<Received> {
    return this.send('/v1/chat/completions', { body: request(fields), headers: clientHeaders })
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#undo.disposeAsync()
  }
}

export interface Sent {
  readonly method?: string
  readonly body?: unknown
  readonly headers?: http.OutgoingHttpHeaders
}

export const clientHeaders = {
  'content-type': 'application/json',
  authorization: 'Bearer sk-placeholder',
  'openai-organization': 'org-of-the-agent',
  'x-forwarded-for': '203.0.113.9',
}

export const request = (fields: Record<string, unknown> = {}) => ({
  model: 'm-1',
  messages: [{ role: 'user', content: 'hello' }],
  ...fields,
})

export const turns = (count: number) => [
  { role: 'user', content: 'hello' },
  ...Array.from({ length: count }).flatMap((_, n) => [
    { role: 'assistant', content: `turn ${n}` },
    { role: 'user', content: 'go on' },
  ]),
]

/** Resolves when the condition holds; fails after five seconds. */
export async function until(condition: () => boolean): Promise<void> {
  const deadline = Date.now() + 5_000
  while (!condition()) {
    if (Date.now() > deadline) throw new Error(`waited too long for ${condition.toString()}`)
    await new Promise((resolve) => setTimeout(resolve, 5))
  }
}
