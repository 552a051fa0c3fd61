/**
 * A client of the lease API over its unix socket. Errors of the daemon come back as RemoteError with their code and
 * blame; a daemon that doesn't answer is `daemon_unreachable`. It retries nothing: only the caller knows what is safe.
 */
import { createHash } from 'node:crypto'
import { Readable } from 'node:stream'
import { text } from 'node:stream/consumers'
import { Agent, type Dispatcher } from 'undici'
import type { z } from 'zod'
import { auditEventSchema, type AuditEvent } from '../../policy/audit-event.ts'
import type { AuditVerdict } from '../../policy/audit-verify.ts'
import {
  auditSummariesSchema,
  auditVerdictsSchema,
  type AuditQuery,
  type LeaseAudit,
} from './audit.ts'
import { zodMessage } from './zod-message.ts'
import { RemoteError, type Blame } from './errors.ts'
import { openExec, type ExecIo } from './exec-client.ts'
import type { ExecEnd, ExecStartInput } from './exec-frames.ts'
import { gpuReportSchema, type GpuReport } from './gpu.ts'
import {
  canaryResultSchema,
  egressSummarySchema,
  freezeReportSchema,
  hostFactsSchema,
  leaseEventSchema,
  leaseViewSchema,
  usageSchema,
  wireErrorSchema,
  type CanaryResult,
  type EgressSummary,
  type FreezeReport,
  type HostFacts,
  type LeaseEvent,
  type LeaseRequestInput,
  type LeaseView,
  type Usage,
} from './lease.ts'

export { RemoteError } from './errors.ts'

export interface Wait {
  readonly signal?: AbortSignal | undefined
}

export interface DaemonHealth {
  readonly status: string
  readonly version: string
  readonly pid: number
  readonly engine: string
  readonly engineSocket: string
  readonly stateDir: string
  readonly leases: number
}

/** What the runner needs to know of an image. */
export interface RemoteImage {
  readonly id: string
  readonly workdir: string
  /** `NAME=value` */
  readonly env: readonly string[]
}

export type PathKind = 'file' | 'directory' | 'symlink' | 'other'

const queryOf = (values: Record<string, string>): string => new URLSearchParams(values).toString()

/** What this client can't read comes from a daemon of another version. */
function understood<T>(schema: z.ZodType<T>, answer: unknown): T {
  const parsed = schema.safeParse(answer)
  if (parsed.success) return parsed.data
  throw new RemoteError(
    'daemon_protocol',
    'infra',
    `the daemon's answer is not of this version (${zodMessage(parsed.error)}); restart it: \`closedbook down\`, then \`closedbook up\``,
    { cause: parsed.error },
  )
}

export class DaemonClient implements AsyncDisposable {
  readonly socketPath: string
  readonly #agent: Agent

  constructor(socketPath: string) {
    this.socketPath = socketPath
    this.#agent = new Agent({ connect: { socketPath }, headersTimeout: 0, bodyTimeout: 0 })
  }

  async health(wait: Wait = {}): Promise<DaemonHealth> {
    return (await this.#json('GET', '/v1/health', wait)) as DaemonHealth
  }

  async host(wait: Wait = {}): Promise<HostFacts> {
    return understood(hostFactsSchema, await this.#json('GET', '/v1/host', wait))
  }

  /** As last seen; with `probe` looked at now. */
  async gpus(options: Wait & { probe?: boolean } = {}): Promise<GpuReport> {
    const answer = await (options.probe === true
      ? this.#json('POST', '/v1/gpus/probe', options)
      : this.#json('GET', '/v1/gpus', options))
    return understood(gpuReportSchema, answer)
  }

  async inspectImage(reference: string, wait: Wait = {}): Promise<RemoteImage> {
    const query = queryOf({ reference })
    return (await this.#json('GET', `/v1/images?${query}`, wait)) as RemoteImage
  }

  async openLease(request: LeaseRequestInput, wait: Wait = {}): Promise<LeaseView> {
    return understood(
      leaseViewSchema,
      await this.#json('POST', '/v1/leases', { ...wait, body: request }),
    )
  }

  async leases(wait: Wait = {}): Promise<LeaseView[]> {
    const { leases } = (await this.#json('GET', '/v1/leases', wait)) as { leases: unknown[] }
    return leases.map((lease) => understood(leaseViewSchema, lease))
  }

  async lease(id: string, wait: Wait = {}): Promise<LeaseView> {
    return understood(leaseViewSchema, await this.#json('GET', `/v1/leases/${id}`, wait))
  }

  async renew(id: string, wait: Wait = {}): Promise<void> {
    await this.#json('POST', `/v1/leases/${id}/renew`, wait)
  }

  async freeze(id: string, wait: Wait = {}): Promise<FreezeReport> {
    return understood(freezeReportSchema, await this.#json('POST', `/v1/leases/${id}/freeze`, wait))
  }

  async prove(id: string, wait: Wait = {}): Promise<{ canaries: CanaryResult[]; ok: boolean }> {
    const answer = (await this.#json('POST', `/v1/leases/${id}/prove`, wait)) as {
      canaries: unknown
      ok: boolean
    }
    return { canaries: understood(canaryResultSchema.array(), answer.canaries), ok: answer.ok }
  }

  /** Idempotent: an unknown lease counts as closed. */
  async closeLease(id: string, reason: string, wait: Wait = {}): Promise<void> {
    const query = queryOf({ reason })
    await this.#json('DELETE', `/v1/leases/${id}?${query}`, wait)
  }

  async exec(id: string, start: ExecStartInput, io: ExecIo = {}): Promise<ExecEnd> {
    const target = { socketPath: this.socketPath, path: `/v1/leases/${id}/exec` }
    return openExec(target, start, io)
  }

  async readArchive(
    id: string,
    path: string,
    wait: Wait = {},
  ): Promise<{ kind: PathKind; tar: Readable }> {
    const query = queryOf({ path })
    const response = await this.#ask('GET', `/v1/leases/${id}/archive?${query}`, wait)
    const kind = String(response.headers['x-closedbook-path-kind'] ?? 'other') as PathKind
    // A caller that needs no byte destroys it, which would be an error that nobody handles.
    response.body.on('error', () => {})
    return { kind, tar: response.body }
  }

  async writeArchive(id: string, path: string, tar: Readable, wait: Wait = {}): Promise<void> {
    const query = queryOf({ path })
    const response = await this.#ask('PUT', `/v1/leases/${id}/archive?${query}`, {
      ...wait,
      stream: tar,
    })
    await response.body.dump()
  }

  async usage(id: string, wait: Wait = {}): Promise<Usage> {
    return understood(usageSchema, await this.#json('GET', `/v1/leases/${id}/usage`, wait))
  }

  async egress(id: string, wait: Wait = {}): Promise<EgressSummary> {
    return understood(egressSummarySchema, await this.#json('GET', `/v1/leases/${id}/egress`, wait))
  }

  /** The recorded model exchange, as JSON lines. */
  async exchanges(id: string, wait: Wait = {}): Promise<string> {
    return text((await this.#ask('GET', `/v1/leases/${id}/exchanges`, wait)).body)
  }

  async *events(
    id: string,
    options: Wait & { from?: number; follow?: boolean } = {},
  ): AsyncGenerator<LeaseEvent> {
    const query = queryOf({
      from: String(options.from ?? 1),
      follow: String(options.follow ?? false),
    })
    yield* this.#lines(`/v1/leases/${id}/events?${query}`, leaseEventSchema, options)
  }

  /**
   * Of a lease, or of all leases of a trial in the order in which they were opened. `follow`: then what comes, until
   * the lease is closed; of a trial until `signal` aborts.
   */
  async *audit(
    of: string,
    { follow = false, ...wait }: Wait & { follow?: boolean } = {},
  ): AsyncGenerator<AuditEvent> {
    const query = queryOf({ of, follow: String(follow) })
    yield* this.#lines(`/v1/audit?${query}`, auditEventSchema, wait)
  }

  /** Matching events of all leases, lease by lease in the order in which they were opened. */
  async *auditQuery(query: AuditQuery, wait: Wait = {}): AsyncGenerator<AuditEvent> {
    const given = Object.entries(query).filter(([, value]) => value !== undefined)
    const values = Object.fromEntries(given.map(([name, value]) => [name, String(value)]))
    yield* this.#lines(`/v1/audit/query?${queryOf(values)}`, auditEventSchema, wait)
  }

  async auditSummary(of: string, wait: Wait = {}): Promise<LeaseAudit[]> {
    const answer = await this.#json('GET', `/v1/audit/summary?${queryOf({ of })}`, wait)
    return understood(auditSummariesSchema, answer).leases
  }

  async auditVerify(of: string, wait: Wait = {}): Promise<AuditVerdict[]> {
    const answer = await this.#json('GET', `/v1/audit/verify?${queryOf({ of })}`, wait)
    return understood(auditVerdictsSchema, answer).leases
  }

  /** Brings a tar; returns the name under which leases mount it. */
  async putBundle(tar: Buffer, wait: Wait = {}): Promise<string> {
    const name = createHash('sha256').update(tar).digest('hex')
    const response = await this.#ask('PUT', `/v1/bundles/${name}`, {
      ...wait,
      stream: Readable.from([tar]),
    })
    await response.body.dump()
    return name
  }

  async removeBundle(name: string, wait: Wait = {}): Promise<void> {
    await this.#json('DELETE', `/v1/bundles/${name}`, wait)
  }

  async shutdown(wait: Wait = {}): Promise<void> {
    await this.#json('POST', '/v1/shutdown', wait)
  }

  async #json(
    method: Dispatcher.HttpMethod,
    path: string,
    options: Wait & { body?: unknown },
  ): Promise<unknown> {
    const response = await this.#ask(method, path, options)
    return response.body.json()
  }

  async *#lines<T>(path: string, schema: z.ZodType<T>, wait: Wait): AsyncGenerator<T> {
    const response = await this.#ask('GET', path, wait)
    let rest = ''
    for await (const chunk of piecesOf(response.body, path, wait)) {
      const lines = (rest + chunk).split('\n')
      rest = lines.pop() ?? ''
      for (const line of lines) yield understood(schema, JSON.parse(line))
    }
  }

  async #ask(
    method: Dispatcher.HttpMethod,
    path: string,
    { signal, body, stream }: Wait & { body?: unknown; stream?: Readable },
  ): Promise<Dispatcher.ResponseData> {
    let response: Dispatcher.ResponseData
    try {
      response = await this.#agent.request({
        origin: 'http://daemon',
        method,
        path,
        ...(signal === undefined ? {} : { signal }),
        ...(stream !== undefined
          ? { body: stream }
          : body === undefined
            ? {}
            : {
                body: JSON.stringify(body),
                headers: { 'content-type': 'application/json' },
              }),
      })
    } catch (error) {
      signal?.throwIfAborted()
      throw unreachable(this.socketPath, error)
    }
    if (response.statusCode < 400) return response
    const answer = wireErrorSchema.safeParse(await response.body.json().catch(() => ({})))
    if (answer.success)
      throw new RemoteError(answer.data.code, answer.data.blame as Blame, answer.data.message)
    throw new RemoteError(
      'daemon_protocol',
      'infra',
      `the daemon answered ${response.statusCode} to ${method} ${path}`,
    )
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#agent.destroy()
  }
}

function unreachable(socketPath: string, cause: unknown): RemoteError {
  const forbidden = (cause as NodeJS.ErrnoException).code === 'EACCES'
  return new RemoteError(
    forbidden ? 'not_root' : 'daemon_unreachable',
    forbidden ? 'operator' : 'infra',
    forbidden
      ? `permission denied on ${socketPath}; run this as root`
      : `no daemon answers on ${socketPath}; start one with \`closedbook up\``,
    { cause },
  )
}

/** Text as it comes; an answer that ends before its end is an error with words. */
async function* piecesOf(body: Readable, path: string, { signal }: Wait): AsyncGenerator<string> {
  try {
    yield* body.setEncoding('utf8') as AsyncIterable<string>
  } catch (error) {
    signal?.throwIfAborted()
    throw new RemoteError(
      'daemon_protocol',
      'infra',
      `the daemon broke off its answer to GET ${path}; its log has the cause`,
      { cause: error },
    )
  }
}
