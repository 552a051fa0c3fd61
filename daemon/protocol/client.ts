/**
 * A client of the lease API over its unix socket, or over TLS with a token (target.ts). Errors of the daemon come back as RemoteError with their code and
 * blame; a daemon that doesn't answer is `daemon_unreachable`. It retries nothing: only the caller knows what is safe.
 */
import { createHash } from 'node:crypto'
import { Readable } from 'node:stream'
import { text } from 'node:stream/consumers'
import type { Agent, Dispatcher } from 'undici'
import { z } from 'zod'
import { auditEventSchema, type AuditEvent } from '../../policy/audit-event.ts'
import type { AuditVerdict } from '../../policy/audit-verify.ts'
import {
  auditSummariesSchema,
  auditVerdictsSchema,
  type AuditQuery,
  type LeaseAudit,
} from './audit.ts'
import {
  agentOf,
  checkTarget,
  credentialsOf,
  originOf,
  targetName,
  type DaemonTarget,
} from './target.ts'
import { understood } from './understood.ts'
import { RemoteError, type Blame } from './errors.ts'
import { openExec, type ExecIo } from './exec-client.ts'
import type { ExecEnd, ExecStartInput } from './exec-frames.ts'
import { followStream, type FollowOptions } from './stream-client.ts'
import type { StreamItem } from './stream-frames.ts'
import { gpuReportSchema, type GpuReport } from './gpu.ts'
import { PtyAttachment, type AttachOptions } from './pty-client.ts'
import { ptyViewSchema, ptyViewsSchema, type PtyOpenInput, type PtyView } from './pty.ts'
import {
  canaryResultSchema,
  egressSummarySchema,
  fileChangeSchema,
  freezeReportSchema,
  hostFactsSchema,
  leaseEventSchema,
  leaseViewSchema,
  usageSchema,
  wireErrorSchema,
  type CanaryResult,
  type EgressSummary,
  type FileChange,
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
  /** Of its dashboard; null: it serves the unix socket alone. */
  readonly url: string | null
}

/** What the runner needs to know of an image. */
export interface RemoteImage {
  readonly id: string
  readonly workdir: string
  readonly user: string
  readonly entrypoint: readonly string[]
  /** `NAME=value` */
  readonly env: readonly string[]
}

export type PathKind = 'file' | 'directory' | 'symlink' | 'other'

const queryOf = (values: Record<string, string>): string => new URLSearchParams(values).toString()

export class DaemonClient implements AsyncDisposable {
  readonly target: DaemonTarget
  readonly #agent: Agent

  /** Throws `bad_request` for an address that no token may be sent to. */
  constructor(target: string | DaemonTarget) {
    this.target = checkTarget(typeof target === 'string' ? { socketPath: target } : target)
    this.#agent = agentOf(this.target)
  }

  /** For what has no method of its own here; the answer is the caller's to check. */
  async call(
    method: Dispatcher.HttpMethod,
    path: string,
    options: Wait & { body?: unknown } = {},
  ): Promise<unknown> {
    return this.#json(method, path, options)
  }

  /** The same with a body that is no JSON, such as JSON lines. */
  async callText(
    method: Dispatcher.HttpMethod,
    path: string,
    text: string,
    wait: Wait = {},
  ): Promise<unknown> {
    const stream = Readable.from([Buffer.from(text)])
    return (await this.#ask(method, path, { ...wait, stream })).body.json()
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

  async renew(id: string, wait: Wait = {}): Promise<LeaseView> {
    return understood(leaseViewSchema, await this.#json('POST', `/v1/leases/${id}/renew`, wait))
  }

  /** Tells a daemon that was restarted of the model again. */
  async supplyModel(
    id: string,
    model: NonNullable<LeaseRequestInput['model']>,
    wait: Wait = {},
  ): Promise<void> {
    await this.#json('POST', `/v1/leases/${id}/model`, { ...wait, body: model })
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
    const target = { daemon: this.target, path: `/v1/leases/${id}/exec` }
    return openExec(target, start, io)
  }

  /** Starts a program on a terminal of its own, which outlives this client. */
  async openPty(id: string, open: PtyOpenInput, wait: Wait = {}): Promise<PtyView> {
    const answer = await this.#json('POST', `/v1/leases/${id}/ptys`, { ...wait, body: open })
    return understood(ptyViewSchema, answer)
  }

  /** Of a lease or of all leases of a trial, closed ones too; of all open leases where nothing is named. */
  async ptys(of?: string, wait: Wait = {}): Promise<PtyView[]> {
    const query = of === undefined ? '' : `?${queryOf({ of })}`
    return understood(ptyViewsSchema, await this.#json('GET', `/v1/ptys${query}`, wait)).ptys
  }

  /** Ends it with all that it started; idempotent. */
  async closePty(id: string, pty: string, wait: Wait = {}): Promise<PtyView> {
    return understood(
      ptyViewSchema,
      await this.#json('DELETE', `/v1/leases/${id}/ptys/${pty}`, wait),
    )
  }

  /** A mark in its recording. */
  async markPty(id: string, pty: string, label: string, wait: Wait = {}): Promise<void> {
    await this.#json('POST', `/v1/leases/${id}/ptys/${pty}/markers`, { ...wait, body: { label } })
  }

  /** asciicast v2, so far. */
  async ptyRecording(id: string, pty: string, wait: Wait = {}): Promise<Readable> {
    return (await this.#ask('GET', `/v1/leases/${id}/ptys/${pty}/recording`, wait)).body
  }

  /** Looks on, or types; comes back by itself after a lost connection. */
  attachPty(id: string, pty: string, options: AttachOptions): PtyAttachment {
    const path = `/v1/leases/${id}/ptys/${pty}/attach`
    return new PtyAttachment({ daemon: this.target, path }, options)
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

  /** What differs from the image; paths as the engine writes them. */
  async changes(id: string, wait: Wait = {}): Promise<FileChange[]> {
    const answer = (await this.#json('GET', `/v1/leases/${id}/changes`, wait)) as {
      changes: unknown
    }
    return understood(fileChangeSchema.array(), answer.changes)
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
   * A numbered stream as it comes, over lost connections: `/v1/leases/…/events`, `/v1/board/…/lines`. What an item says
   * is the caller's to check.
   */
  follow(path: string, options: FollowOptions = {}): AsyncGenerator<StreamItem> {
    return followStream(this.target, path, options)
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

  /** Makes a bundle of an image's file system; returns the name under which leases mount it. */
  async putImageBundle(image: string, wait: Wait = {}): Promise<string> {
    const answer = await this.#json('POST', '/v1/bundles', { ...wait, body: { image } })
    return understood(z.object({ bundle: z.string() }), answer).bundle
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
        origin: originOf(this.target),
        method,
        path,
        headers: credentialsOf(this.target),
        ...(signal === undefined ? {} : { signal }),
        ...(stream !== undefined
          ? { body: stream }
          : body === undefined
            ? {}
            : {
                body: JSON.stringify(body),
                headers: {
                  ...credentialsOf(this.target),
                  'content-type': 'application/json',
                },
              }),
      })
    } catch (error) {
      signal?.throwIfAborted()
      throw unreachable(this.target, error)
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

function unreachable(target: DaemonTarget, cause: unknown): RemoteError {
  const { code, message } = cause as NodeJS.ErrnoException
  const forbidden = code === 'EACCES'
  const where = targetName(target)
  return new RemoteError(
    forbidden ? 'not_root' : 'daemon_unreachable',
    forbidden ? 'operator' : 'infra',
    forbidden
      ? `permission denied on ${where}; run this as root`
      : 'socketPath' in target
        ? `no daemon answers on ${where}; start one with \`closedbook up\``
        : `no daemon answers at ${where}: ${message}; check the address, and --ca where its certificate is its own`,
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
