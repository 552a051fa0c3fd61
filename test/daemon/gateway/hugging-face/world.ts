/** A lease's Hugging Face gateway on loopback, with a cache and a stand-in Hub of the test's own, and its audit kept. */
import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import http from 'node:http'
import net, { type AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { ArtifactCache } from '../../../../daemon/gateway/artifact-cache/artifact-cache.ts'
import { HuggingFaceGateway } from '../../../../daemon/gateway/hugging-face/gateway.ts'
import { Hub, type HubOptions } from '../../../../daemon/gateway/hugging-face/hub.ts'
import type { AuditRecord } from '../../../../policy/audit-event.ts'
import { huggingFaceSchema, type HuggingFacePolicy } from '../../../../policy/hugging-face.ts'
import { StandInHub } from '../../../support/hub.ts'

export const upstreamToken = 'hf_0123456789abcdefghijklmnopqrstuvwx'

export interface Received {
  readonly status: number
  readonly headers: http.IncomingHttpHeaders
  readonly body: Buffer
}

export interface Asked {
  readonly method?: string
  readonly headers?: http.OutgoingHttpHeaders
  readonly body?: string | Buffer
}

export interface WorldOptions {
  readonly maxBytes?: number
  readonly lingerMs?: number
  readonly hub?: Partial<HubOptions>
}

/** The daemon's side: what all leases share. */
export class HubWorld implements AsyncDisposable {
  readonly standIn: StandInHub
  readonly folder: string
  readonly #undo: AsyncDisposableStack
  readonly #options: WorldOptions
  cache: ArtifactCache
  hub: Hub

  private constructor(
    parts: Pick<HubWorld, 'standIn' | 'folder' | 'cache' | 'hub'>,
    options: WorldOptions,
    undo: AsyncDisposableStack,
  ) {
    this.standIn = parts.standIn
    this.folder = parts.folder
    this.cache = parts.cache
    this.hub = parts.hub
    this.#options = options
    this.#undo = undo
  }

  static async open(options: WorldOptions = {}): Promise<HubWorld> {
    await using undo = new AsyncDisposableStack()
    const folder = await mkdtemp(join(tmpdir(), 'hub-'))
    undo.defer(() => rm(folder, { recursive: true, force: true }))
    const standIn = undo.use(await StandInHub.open())
    const shared = await shareIn(folder, standIn, options)
    const world = new HubWorld({ standIn, folder, ...shared }, options, undo.move())
    world.#undo.defer(async () => {
      await world.hub[Symbol.asyncDispose]()
      await world.cache[Symbol.asyncDispose]()
    })
    return world
  }

  /** As a daemon that ends and starts again on the same directory. */
  async restart(): Promise<void> {
    await this.cache[Symbol.asyncDispose]()
    await this.hub[Symbol.asyncDispose]()
    Object.assign(this, await shareIn(this.folder, this.standIn, this.#options))
  }

  async lease(
    repos: (Partial<HuggingFacePolicy['repos'][number]> & { repo: string; revision: string })[],
    name = 'lease',
  ): Promise<LeaseGateway> {
    return LeaseGateway.open(
      this,
      huggingFaceSchema.parse({ repos }),
      join(this.folder, `${name}.pins`),
    )
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#undo.disposeAsync()
  }
}

async function shareIn(
  folder: string,
  standIn: StandInHub,
  { maxBytes = 1024 ** 3, lingerMs, hub = {} }: WorldOptions,
): Promise<{ cache: ArtifactCache; hub: Hub }> {
  const cache = await ArtifactCache.open({
    directory: join(folder, 'cache'),
    maxBytes,
    firstPauseMs: 20,
    ...(lingerMs === undefined ? {} : { lingerMs }),
  })
  const upstream = await Hub.open({
    endpoint: standIn.endpoint,
    token: upstreamToken,
    fileHosts: [standIn.fileHost],
    directory: join(folder, 'trees'),
    firstPauseMs: 20,
    ...hub,
  })
  return { cache, hub: upstream }
}

/** One lease's side. */
export class LeaseGateway implements AsyncDisposable {
  readonly gateway: HuggingFaceGateway
  readonly port: number
  readonly audit: AuditRecord[]
  readonly faults: unknown[]
  readonly #undo: AsyncDisposableStack

  private constructor(
    parts: Pick<LeaseGateway, 'gateway' | 'port' | 'audit' | 'faults'>,
    undo: AsyncDisposableStack,
  ) {
    this.gateway = parts.gateway
    this.port = parts.port
    this.audit = parts.audit
    this.faults = parts.faults
    this.#undo = undo
  }

  static async open(
    { hub, cache }: Pick<HubWorld, 'hub' | 'cache'>,
    policy: HuggingFacePolicy,
    pinsFile: string,
  ): Promise<LeaseGateway> {
    await using undo = new AsyncDisposableStack()
    const server = net.createServer().listen(0, '127.0.0.1')
    undo.defer(() => void server.close())
    await once(server, 'listening')
    const audit: AuditRecord[] = []
    const faults: unknown[] = []
    let connections = 0
    const gateway = undo.use(
      await HuggingFaceGateway.open(policy, {
        server,
        audit: {
          append: (record) => audit.push(record),
          nextConnection: () => (connections += 1),
          flush: async () => {},
        },
        hub,
        cache,
        pinsFile,
        onFault: (error) => faults.push(error),
        signal: new AbortController().signal,
      }),
    )
    const { port } = server.address() as AddressInfo
    return new LeaseGateway({ gateway, port, audit, faults }, undo.move())
  }

  get endpoint(): string {
    return `http://127.0.0.1:${this.port}`
  }

  /** The answer as soon as its head is here. */
  async begin(
    path: string,
    { method = 'GET', headers = {}, body }: Asked = {},
  ): Promise<http.IncomingMessage> {
    const request = http.request({
      host: '127.0.0.1',
      port: this.port,
      path,
      method,
      headers,
      agent: false,
    })
    request.on('error', () => {})
    request.end(body)
    const [response] = (await once(request, 'response')) as [http.IncomingMessage]
    return response
  }

  async send(path: string, asked: Asked = {}): Promise<Received> {
    const response = await this.begin(path, asked)
    const chunks: Buffer[] = []
    for await (const chunk of response as AsyncIterable<Buffer>) chunks.push(chunk)
    return {
      status: response.statusCode ?? 0,
      headers: response.headers,
      body: Buffer.concat(chunks),
    }
  }

  async json(path: string, asked: Asked = {}): Promise<unknown> {
    const { status, body } = await this.send(path, asked)
    if (status !== 200) throw new Error(`${status} ${body.toString()}`)
    return JSON.parse(body.toString())
  }

  /** `action reason` of the decisions so far. */
  decisions(): string[] {
    return this.audit
      .filter(({ kind }) => kind === 'decision')
      .map(({ action, reason }) => `${action} ${reason}`)
  }

  closes(): AuditRecord[] {
    return this.audit.filter(({ kind }) => kind === 'close')
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#undo.disposeAsync()
  }
}

/** Resolves when the condition holds; fails after five seconds. */
export async function until(condition: () => boolean): Promise<void> {
  const deadline = Date.now() + 5_000
  while (!condition()) {
    if (Date.now() > deadline) throw new Error(`waited too long for ${condition.toString()}`)
    await new Promise((resolve) => setTimeout(resolve, 5))
  }
}
