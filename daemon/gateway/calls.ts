/**
 * The model calls of one lease, each from the request to its record: read, decide, admit within the budget, audit,
 * relay, meter, record. Every call that was admitted ends in the meter exactly once, whatever happens.
 */
import type { IncomingMessage, ServerResponse } from 'node:http'
import type { AuditRecord } from '../../policy/audit-event.ts'
import type { Reason } from '../../policy/decision.ts'
import { isObject } from '../../policy/model-check.ts'
import { printable } from '../../policy/printable.ts'
import type { LeaseEvent } from '../protocol/lease.ts'
import { noTokens } from '../protocol/model-cost.ts'
import type { ModelApi } from './api.ts'
import type { ExchangeLog } from './exchange-log.ts'
import type { Claim, Meter } from './meter.ts'
import { reasonOf } from './problem.ts'
import { type Fault, type Outcome, relay } from './relay.ts'
import { errorBody, Reply } from './reply.ts'
import { BodyReader, parseBody, type Read } from './request-body.ts'
import { type Answer, type Ask, type Upstream, UpstreamError } from './upstream.ts'

export type ModelCallEvent = Extract<LeaseEvent['event'], { type: 'model.call' }>

/** What the gateway needs of a lease's audit log. */
export interface GatewayAudit {
  append(record: AuditRecord): unknown
  /** A number that joins a decision with its close. */
  nextConnection(): number
  /** Resolves when what was appended has left the process. */
  flush(): Promise<void>
}

const maxCallsAtOnce = 32
const bodyTimeoutMs = 60_000

export interface CallsOptions {
  readonly model: string
  readonly parameters: Readonly<Record<string, unknown>>
  /** An upstream that has said nothing for so long when the gateway shuts hangs: the time was not the agent's. */
  readonly patienceMs: number
  readonly firstNumber: number
  readonly upstream: Upstream
  readonly meter: Meter
  readonly log: ExchangeLog | null
  readonly audit: GatewayAudit
  readonly onCall: (event: ModelCallEvent) => void
  /** Aborted when the gateway shuts. */
  readonly signal: AbortSignal
}

/** One request on its way: where its answer goes and what the audit says of it. */
interface Visit {
  readonly api: ModelApi
  readonly request: IncomingMessage
  readonly reply: Reply
  readonly connection: number
  detail: string
}

export class Calls {
  readonly #options: CallsOptions
  readonly #bodies = new BodyReader()
  #atOnce = 0
  #numbers: number

  constructor(options: CallsOptions) {
    this.#options = options
    this.#numbers = options.firstNumber
  }

  /** Never rejects. */
  async serve(api: ModelApi, request: IncomingMessage, response: ServerResponse): Promise<void> {
    const visit = {
      api,
      request,
      reply: new Reply(response, { named: api.named }),
      connection: this.#options.audit.nextConnection(),
      detail: `${request.method} ${request.url}`,
    }
    const gone = new AbortController()
    response.once('close', () => gone.abort())
    this.#atOnce += 1
    try {
      if (this.#options.signal.aborted) this.#refuseShut(visit)
      else if (this.#atOnce > maxCallsAtOnce)
        this.#refuse(visit, 429, 'limit_conns', `more than ${maxCallsAtOnce} calls at once`)
      else await this.#read(visit, gone.signal)
    } catch {
      // The audit or our own code failed: closed, with nothing said of why.
      if (!visit.reply.started)
        visit.reply.json(
          500,
          errorBody('fault', 'gateway_error', 'the gateway failed'),
          {},
          'internal_error',
        )
      else response.destroy()
    } finally {
      this.#atOnce -= 1
    }
  }

  async #read(visit: Visit, gone: AbortSignal): Promise<void> {
    const body = await this.#bodies.read(visit.request, { timeoutMs: bodyTimeoutMs })
    if (!body.ok) return this.#refuse(visit, 404, body.reason, body.message)
    try {
      const ask = this.#decide(parseBody(body.value), visit)
      if (ask !== null) await this.#admit(ask, visit, body.value.length, gone)
    } finally {
      this.#bodies.release(body.value.length)
    }
  }

  #decide(parsed: Read<unknown>, visit: Visit): Ask | null {
    if (!parsed.ok) {
      this.#refuse(visit, 404, parsed.reason, parsed.message)
      return null
    }
    const body = parsed.value
    if (isObject(body))
      visit.detail += ` model=${JSON.stringify(body['model'] ?? null).slice(0, 120)}`
    const { api, request } = visit
    const { model, parameters } = this.#options
    const decision = api.decide({ model, parameters }, body, request.headers)
    if (decision.action === 'deny' || !isObject(body)) {
      this.#refuse(visit, 404, decision.reason, decision.message)
      return null
    }
    const { url = '' } = request
    return {
      api,
      path: `${api.path}${url.includes('?') ? url.slice(url.indexOf('?')) : ''}`,
      model: this.#options.model,
      body,
      headers: api.headers(request.headers),
      stream: body['stream'] === true,
      assistantTurns: api.assistantTurns(body),
    }
  }

  async #admit(ask: Ask, visit: Visit, bytesUp: number, gone: AbortSignal): Promise<void> {
    const { api, body } = ask
    const admission = await this.#options.meter.admit(
      { inputTokens: bytesUp, outputTokens: api.outputLimit(body), free: api.free },
      { signal: gone },
    )
    switch (admission.kind) {
      case 'gone':
        return
      case 'shut':
        return this.#refuseShut(visit)
      case 'spent':
        return this.#refuse(visit, 401, 'budget_spent', `the budget is spent: ${admission.words}`)
      case 'started':
        return this.#start(ask, visit, bytesUp, admission.claim)
    }
  }

  /** The meter counts this call as running: it must be told the end. */
  async #start(ask: Ask, visit: Visit, bytesUp: number, claim: Claim): Promise<void> {
    let start: (options: { signal: AbortSignal }) => Promise<Answer>
    try {
      await this.#options.log?.written()
      if (this.#options.log?.failure) throw new Error('exchanges can no longer be recorded')
      start = this.#options.upstream.prepare(ask)
      this.#audit(visit, 'allow', 'allowed_gateway', visit.detail)
    } catch (error) {
      this.#options.meter.failed(claim, faultOf(error))
      if (!(error instanceof UpstreamError)) throw error
      const reason = reasonOf(error.code)
      this.#audit(visit, 'deny', reason, `${visit.detail}: ${error.message}`)
      visit.reply.json(error.status, errorBody('fault', error.code, error.message), {}, reason)
      return
    }
    const n = this.#numbers
    this.#numbers += 1
    let outcome: Outcome
    let tookMs: number
    try {
      await this.#options.audit.flush()
      const from = performance.now()
      outcome = this.#orHung(
        from,
        visit.reply,
        await relay(start, ask, visit.reply, {
          signal: this.#options.signal,
          answeredBefore: this.#options.meter.calls > 0,
        }),
      )
      tookMs = Math.round((performance.now() - from) * 10) / 10
      this.#record(n, ask, outcome, tookMs)
    } catch (error) {
      this.#options.meter.failed(claim, faultOf(error))
      throw error
    }
    if (outcome.tokens === null) this.#options.meter.failed(claim, outcome.fault)
    else this.#options.meter.answered(claim, outcome.tokens)
    if (!ask.api.free) this.#tell(n, ask.api, outcome, tookMs)
    this.#options.audit.append({
      kind: 'close',
      protocol: 'model',
      action: 'none',
      reason: outcome.fault === null ? null : reasonOf(outcome.fault.code),
      host: this.#options.upstream.host,
      port: this.#options.upstream.port,
      connection: visit.connection,
      bytesUp,
      bytesDown: visit.reply.bytes,
    })
  }

  #orHung(from: number, reply: Reply, outcome: Outcome): Outcome {
    const { signal, patienceMs } = this.#options
    if (!signal.aborted || outcome.tokens !== null || outcome.fault !== null) return outcome
    const silentMs = performance.now() - Math.max(from, reply.lastEventAt)
    if (silentMs < patienceMs) return outcome
    const message = `the provider had said nothing for ${Math.round(silentMs / 1000)} s when the agent's time ended`
    return { ...outcome, fault: { code: 'upstream_timeout', message, status: null } }
  }

  #record(n: number, ask: Ask, { response }: Outcome, latencyMs: number): void {
    const { api, model, assistantTurns, body } = ask
    const request = { model, assistantTurns, body }
    this.#options.log?.append({ v: 1, n, api: api.name, request, response, latencyMs })
  }

  #tell(n: number, api: ModelApi, { status, tokens, answer }: Outcome, latencyMs: number): void {
    const used = tokens ?? noTokens
    this.#options.onCall({
      type: 'model.call',
      n,
      status,
      ...used,
      costUsd: this.#options.meter.costOf(used),
      latencyMs,
      ...(answer === null ? { text: '', commands: [] } : api.sayingsOf(answer)),
    })
  }

  #refuse(visit: Visit, status: number, reason: Reason, message: string): void {
    this.#options.meter.refused()
    this.#audit(visit, 'deny', reason, `${visit.detail}: ${message}`)
    visit.reply.refuse(status, reason, message)
  }

  #refuseShut(visit: Visit): void {
    this.#refuse(visit, 401, 'gateway_shut', 'the agent phase is over')
  }

  #audit(visit: Visit, action: 'allow' | 'deny', reason: Reason, detail: string): void {
    this.#options.audit.append({
      kind: 'decision',
      protocol: 'model',
      action,
      reason,
      host: this.#options.upstream.host,
      port: this.#options.upstream.port,
      count: 1,
      connection: visit.connection,
      detail: printable(detail, 1024),
    })
  }
}

function faultOf(error: unknown): Fault {
  if (error instanceof UpstreamError)
    return { code: error.code, message: error.message, status: error.status }
  return { code: 'gateway_error', message: 'the gateway itself failed', status: 500 }
}
