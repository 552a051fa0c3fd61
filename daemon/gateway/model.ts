/**
 * The model gateway of one lease: plain HTTP on a listener in the sandbox's namespace, the only way from there to a
 * model. Every request is decided, written to the audit, then obeyed; what was used is metered from the provider's
 * own figures. The listener is the identity of the lease, so what the sandbox sends as a key means nothing.
 *
 * An upstream serves the APIs of its kind; a recording those that it holds.
 *
 * Statuses of refusals follow what clients do with them (openai, anthropic, mini-SWE-agent over litellm: measured): 401 and 404
 * end a run at once, while 400, 402, 403, 413, 422, 429 and 5xx are asked again for minutes. So a spent budget and a
 * shut gateway are 401, and a request that policy refuses, which would be refused again, is 404. Paths that no client
 * of this API uses are 403. Provider faults keep the provider's status, since those are worth asking again.
 */
import { refuseMalformed } from './malformed.ts'
import http from 'node:http'
import type net from 'node:net'
import type { Duplex } from 'node:stream'
import type { Reason } from '../../policy/decision.ts'
import { isSearchGrounded } from '../../policy/model-request.ts'
import { LeaseError } from '../errors.ts'
import type { ModelGatewaySpec, Usage } from '../protocol/lease.ts'
import type { RecordedCall } from '../protocol/recording.ts'
import { printable } from '../../policy/printable.ts'
import type { ModelApi } from './api.ts'
import { modelApis } from './apis.ts'
import { Calls, type GatewayAudit, type ModelCallEvent } from './calls.ts'
import { ExchangeLog } from './exchange-log.ts'
import { Meter } from './meter.ts'
import type { PastCalls } from './past-calls.ts'
import { ProviderUpstream } from './provider.ts'
import { ReplayUpstream } from './replay.ts'
import { Reply } from './reply.ts'
import type { Upstream } from './upstream.ts'

export interface ModelGatewayDeps {
  /** Listening in the sandbox's namespace; stays the caller's to close. */
  readonly server: net.Server
  readonly audit: GatewayAudit
  /** The recording to serve where the spec says `replay`. */
  readonly replay: readonly RecordedCall[] | null
  /** Of a gateway that this one goes on for. */
  readonly past?: PastCalls | null
  /** Where exchanges go, if the spec wants them recorded. */
  readonly exchangesFile: string
  readonly onCall: (event: ModelCallEvent) => void
  /** Aborted: the gateway shuts. */
  readonly signal: AbortSignal
}

/** A query changes nothing of what is answered here, so it may be there: clients page through models. */
const modelsPath = /^(?:\/v1)?\/models(?:\/(?<id>[^?]+))?(?:\?.*)?$/
const maxConnections = 64

export class ModelGateway implements AsyncDisposable {
  readonly #spec: ModelGatewaySpec
  readonly #deps: ModelGatewayDeps
  readonly #upstream: Upstream
  readonly #log: ExchangeLog | null
  readonly #meter: Meter
  readonly #calls: Calls
  readonly #apis: readonly ModelApi[]
  readonly #http: http.Server
  readonly #sockets = new Set<Duplex>()
  readonly #stop = new AbortController()
  #shutting: Promise<void> | null = null

  /** Throws LeaseError `lease_refused` for a spec that can't be a closed book or has no recording to serve. */
  static async open(spec: ModelGatewaySpec, deps: ModelGatewayDeps): Promise<ModelGateway> {
    const upstream = upstreamOf(spec, deps)
    const log = spec.record
      ? await ExchangeLog.open(deps.exchangesFile, deps.past?.exchanges)
      : null
    return new ModelGateway(spec, deps, upstream, log)
  }

  private constructor(
    spec: ModelGatewaySpec,
    deps: ModelGatewayDeps,
    upstream: Upstream,
    log: ExchangeLog | null,
  ) {
    this.#spec = spec
    this.#deps = deps
    this.#upstream = upstream
    this.#log = log
    this.#meter = new Meter(spec, deps.past)
    this.#apis = modelApis.filter(({ kind }) => ['replay', kind].includes(spec.upstream.kind))
    this.#calls = new Calls({
      model: spec.model,
      parameters: spec.parameters,
      patienceMs: spec.upstreamTimeoutMs / 2,
      firstNumber: deps.past?.exchanges ?? 0,
      upstream,
      meter: this.#meter,
      log,
      audit: deps.audit,
      onCall: deps.onCall,
      signal: this.#stop.signal,
    })
    this.#http = http.createServer({ keepAliveTimeout: 0, noDelay: true })
    this.#http.on('request', this.#serve)
    this.#http.on('clientError', this.#malformed)
    this.#http.on('connect', (_request, socket) => this.#malformed(new Error('CONNECT'), socket))
    deps.server.on('connection', this.#accept)
    if (deps.signal.aborted) void this.shut()
    else deps.signal.addEventListener('abort', this.#aborted, { once: true })
  }

  usage(): Usage {
    return this.#meter.usage()
  }

  /**
   * From now on calls are answered 401 `gateway_shut`. Calls in flight are broken off: what the provider bills for
   * them can't be known, and they count as failed without a fault. Resolves when all is recorded on disk.
   */
  shut(): Promise<void> {
    this.#shutting ??= this.#shut()
    return this.#shutting
  }

  async #shut(): Promise<void> {
    const ended = this.#meter.shut()
    this.#stop.abort()
    await ended
    await this.#log?.close()
    if (this.#log?.failure) this.#meter.broken('the exchanges could not be recorded')
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#deps.signal.removeEventListener('abort', this.#aborted)
    this.#deps.server.removeListener('connection', this.#accept)
    await this.shut()
    for (const socket of this.#sockets) socket.destroy()
    await this.#upstream[Symbol.asyncDispose]()
  }

  readonly #aborted = (): void => {
    void this.shut()
  }

  readonly #accept = (socket: net.Socket): void => {
    if (this.#sockets.size >= maxConnections) {
      socket.destroy()
      this.#auditLost('limit_conns', `more than ${maxConnections} connections`)
      return
    }
    this.#sockets.add(socket)
    socket.once('close', () => this.#sockets.delete(socket))
    socket.setNoDelay(true)
    this.#http.emit('connection', socket)
  }

  readonly #serve = (request: http.IncomingMessage, response: http.ServerResponse): void => {
    const { method = '', url = '' } = request
    const api = method === 'POST' ? this.#apis.find(({ paths }) => paths.has(url)) : undefined
    if (api !== undefined) {
      void this.#calls.serve(api, request, response)
      return
    }
    const reply = new Reply(response)
    const detail = `${method} ${url.slice(0, 500)}`
    const models = method === 'GET' ? modelsPath.exec(url) : null
    try {
      if (method === 'GET' && url === '/closedbook/ping') {
        // Answered when shut as well: it says that the listener is there, not that a model may be asked.
        this.#audit('allow', 'allowed_gateway', detail)
        reply.json(200, { gateway: this.#stop.signal.aborted ? 'shut' : 'open' })
      } else if (models === null) {
        this.#audit('deny', 'path_denied', detail)
        const paths = this.#apis.map(({ paths: [path] }) => path).join(', ')
        reply.refuse(403, 'path_denied', `${detail} is not served here; POST goes to ${paths}`)
      } else if (this.#stop.signal.aborted) {
        this.#audit('deny', 'gateway_shut', detail)
        reply.refuse(401, 'gateway_shut', 'the agent phase is over')
      } else this.#models(models.groups?.['id'], detail, reply)
    } catch {
      // The audit can't be written: nothing is allowed then, not even this.
      reply.refuse(500, 'internal_error', 'the gateway failed')
    }
  }

  /** The one model, in a form that clients of either provider read. */
  #models(id: string | undefined, detail: string, reply: Reply): void {
    const { model } = this.#spec
    if (id !== undefined && id !== model && id !== encodeURIComponent(model)) {
      this.#audit('deny', 'model_denied', detail)
      reply.refuse(404, 'model_denied', `only the model ${JSON.stringify(model)} may be asked`)
      return
    }
    this.#audit('allow', 'allowed_gateway', detail)
    const one = {
      id: model,
      object: 'model',
      created: 0,
      owned_by: 'closedbook',
      type: 'model',
      display_name: model,
      created_at: '1970-01-01T00:00:00Z',
    }
    reply.json(
      200,
      id === undefined
        ? { object: 'list', data: [one], has_more: false, first_id: model, last_id: model }
        : one,
    )
  }

  readonly #malformed = (error: Error, socket: Duplex): void =>
    refuseMalformed(error, socket, (detail) => this.#auditLost('bad_request', detail))

  /** Of what is refused in any case, so that a broken audit changes nothing; its owner closes the lease for that. */
  #auditLost(reason: Reason, detail: string): void {
    try {
      this.#audit('deny', reason, detail)
    } catch {
      // See above.
    }
  }

  #audit(action: 'allow' | 'deny', reason: Reason, detail: string): void {
    const record = { kind: 'decision', protocol: 'model', host: null, count: 1 } as const
    this.#deps.audit.append({ ...record, action, reason, detail: printable(detail, 1024) })
  }
}

function upstreamOf(spec: ModelGatewaySpec, deps: ModelGatewayDeps): Upstream {
  if (spec.upstream.kind === 'replay') {
    if (deps.replay !== null) return new ReplayUpstream(deps.replay, deps.past)
    throw new LeaseError(
      'lease_refused',
      'caller',
      'the model is to be replayed, but no recording was read',
    )
  }
  if (isSearchGrounded(spec.model))
    throw new LeaseError(
      'lease_refused',
      'operator',
      `the model ${JSON.stringify(spec.model)} answers from a search of the web; name one that does not`,
    )
  return new ProviderUpstream(spec.upstream, spec.upstreamTimeoutMs)
}
