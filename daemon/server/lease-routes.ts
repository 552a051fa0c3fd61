/** Routes of single leases: opening, waiting, freezing, proving, files, usage, events. See protocol/api.ts. */
import { createReadStream } from 'node:fs'
import path from 'node:path'
import { pipeline } from 'node:stream/promises'
import { z } from 'zod'
import { RequestError } from '../errors.ts'
import type { Lease } from '../lease/lease.ts'
import type { Leases } from '../lease/leases.ts'
import { readEvents } from '../lease/event-log.ts'
import { streamProtocol } from '../protocol/stream-frames.ts'
import {
  modelGatewaySchema,
  canaryResultSchema,
  egressSummarySchema,
  freezeReportSchema,
  leaseRequestSchema,
  leaseViewSchema,
  usageSchema,
} from '../protocol/lease.ts'
import {
  followQuerySchema,
  serveNumbered,
  StreamSockets,
  type Numbered,
} from './numbered-stream.ts'
import { readJson, sendJson, type Call, type Router } from './router.ts'

export interface LeaseRouteDeps {
  readonly leases: Leases
  readonly directories: { readonly exchanges: string; readonly events: string }
  readonly streams?: StreamSockets
}

const idOf = ({ params }: Call): string => params['id'] ?? ''

function pathOf({ url }: Call): string {
  const value = url.searchParams.get('path') ?? ''
  if (!value.startsWith('/') || value.includes('\0'))
    throw new RequestError('bad_request', 'caller', 'path must be an absolute path in the sandbox')
  return value
}

export function addLeaseRoutes(
  router: Router,
  { leases, directories, streams = new StreamSockets() }: LeaseRouteDeps,
): void {
  const leaseOf = (call: Call): Lease => leases.get(idOf(call))
  const eventsOf = (id: string): Numbered => {
    const file = path.join(directories.events, `${safe(id)}.jsonl`)
    return async function* (wanted) {
      const kept = leases.find(id)?.parts.events
      const pieces = kept?.pieces(wanted.from, wanted) ?? readEvents(file, wanted.from)
      for await (const piece of pieces)
        yield piece.map((event) => ({ n: event.seq, line: JSON.stringify(event) }))
    }
  }

  router.on(
    'POST',
    '/v1/leases',
    {
      role: 'run',
      summary: 'opens a sandbox; answers when it is ready',
      body: leaseRequestSchema,
      answer: leaseViewSchema,
      status: 201,
    },
    async (call) => {
      const request = await readJson(call, leaseRequestSchema)
      const lease = await leases.open(request, { signal: call.signal })
      sendJson(call.response, 201, lease.view())
    },
  )

  router.on(
    'GET',
    '/v1/leases',
    {
      role: 'view',
      summary: 'the open leases',
      answer: z.strictObject({ leases: z.array(leaseViewSchema) }),
    },
    (call) => sendJson(call.response, 200, { leases: leases.list().map((lease) => lease.view()) }),
  )

  router.on(
    'GET',
    '/v1/leases/:id',
    { role: 'view', summary: 'one lease, also once it is ready', answer: leaseViewSchema },
    async (call) => {
      const lease = leaseOf(call)
      if (call.url.searchParams.get('waitFor') === 'ready') {
        const timeoutMs = Number(call.url.searchParams.get('timeoutMs') ?? 60_000)
        await lease.waitUntilReady(AbortSignal.any([call.signal, AbortSignal.timeout(timeoutMs)]))
      }
      sendJson(call.response, 200, lease.view())
    },
  )

  router.on(
    'POST',
    '/v1/leases/:id/renew',
    { role: 'run', summary: 'pushes its expiry by its ttl', answer: leaseViewSchema },
    async (call) => {
      const lease = leaseOf(call)
      await lease.renew()
      sendJson(call.response, 200, lease.view())
    },
  )

  router.on(
    'POST',
    '/v1/leases/:id/model',
    {
      role: 'run',
      summary: 'tells a restarted daemon of the model again',
      body: modelGatewaySchema,
      answer: leaseViewSchema,
    },
    async (call) => {
      const lease = leaseOf(call)
      await leases.supplyModel(lease.id, await readJson(call, modelGatewaySchema))
      sendJson(call.response, 200, lease.view())
    },
  )

  router.on(
    'POST',
    '/v1/leases/:id/freeze',
    {
      role: 'run',
      summary: 'kills every process of the sandbox and shuts its gateways',
      answer: freezeReportSchema,
    },
    async (call) => sendJson(call.response, 200, await leaseOf(call).freeze()),
  )

  router.on(
    'POST',
    '/v1/leases/:id/prove',
    {
      role: 'run',
      summary: 'runs the canaries again',
      answer: z.strictObject({ canaries: z.array(canaryResultSchema), ok: z.boolean() }),
    },
    async (call) => sendJson(call.response, 200, await leaseOf(call).prove('after')),
  )

  router.on(
    'DELETE',
    '/v1/leases/:id',
    { role: 'run', summary: 'closes a lease' },
    async (call) => {
      const reason = call.url.searchParams.get('reason') ?? 'closed by request'
      const lease = await leases.close(idOf(call), reason)
      sendJson(call.response, 200, lease?.view() ?? { lease: idOf(call), state: 'closed' })
    },
  )

  router.on(
    'GET',
    '/v1/leases/:id/archive',
    { role: 'run', summary: 'a path of the sandbox as a tar', type: 'application/x-tar' },
    async (call) => {
      const { signal, response } = call
      const { stat, tar } = await leaseOf(call).readArchive(pathOf(call), { signal })
      response.writeHead(200, {
        'content-type': 'application/x-tar',
        'x-closedbook-path-kind': stat.kind,
      })
      await pipeline(tar, response, { signal })
    },
  )

  router.on(
    'GET',
    '/v1/leases/:id/changes',
    { role: 'run', summary: 'what the sandbox has changed of its image' },
    async (call) => {
      const changes = await leaseOf(call).changes({ signal: call.signal })
      sendJson(call.response, 200, { changes })
    },
  )

  router.on(
    'PUT',
    '/v1/leases/:id/archive',
    { role: 'run', summary: 'extracts a tar in the sandbox', bodyType: 'application/x-tar' },
    async (call) => {
      const { signal, request, response } = call
      await leaseOf(call).writeArchive(pathOf(call), request, { signal })
      sendJson(response, 200, {})
    },
  )

  router.on(
    'GET',
    '/v1/leases/:id/usage',
    { role: 'view', summary: 'what the model gateway has metered', answer: usageSchema },
    (call) => sendJson(call.response, 200, leaseOf(call).usage()),
  )

  router.on(
    'GET',
    '/v1/leases/:id/egress',
    { role: 'view', summary: 'counts of attempts, by reason', answer: egressSummarySchema },
    async (call) => sendJson(call.response, 200, await leaseOf(call).egress()),
  )

  router.on(
    'GET',
    '/v1/leases/:id/exchanges',
    { role: 'view', summary: 'the recorded model calls', type: 'application/x-ndjson' },
    async (call) => {
      const id = idOf(call)
      await leases.find(id)?.flushRecords()
      call.response.writeHead(200, { 'content-type': 'application/x-ndjson' })
      const file = createReadStream(path.join(directories.exchanges, `${safe(id)}.jsonl`))
      await pipeline(file, call.response, { signal: call.signal }).catch((error: unknown) => {
        if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error
        call.response.end()
      })
    },
  )

  router.on(
    'GET',
    '/v1/leases/:id/events',
    {
      role: 'view',
      summary:
        'what happened in a lease, also as it comes; as server-sent events where they are accepted',
      query: followQuerySchema,
      type: 'application/x-ndjson',
    },
    (call) => serveNumbered(call, eventsOf(idOf(call))),
  )

  router.onUpgrade(
    '/v1/leases/:id/events',
    { role: 'view', summary: `the same over WebSocket (${streamProtocol})` },
    (request, socket, head, params, access) =>
      streams.serve({ request, socket, head, access }, eventsOf(params['id'] ?? '')),
  )

  router.onUpgrade(
    '/v1/leases/:id/exec',
    { role: 'run', summary: 'a command in a sandbox (closedbook.exec.v1)' },
    (request, socket, head, params) =>
      leases.get(params['id'] ?? '').serveExec(request, socket, head, 'api'),
  )
}

/** Ids come from URLs and become file names. */
export function safe(id: string): string {
  if (!/^[a-z0-9]{12,32}$/.test(id))
    throw new RequestError('bad_request', 'caller', `${JSON.stringify(id)} is not a lease id`)
  return id
}
