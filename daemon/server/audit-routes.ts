/**
 * Routes of the audit: the events of a lease or a trial, also as they come; searches over all leases; summaries; checks.
 * See protocol/api.ts. What is read of an open lease is brought up to date first, its census too.
 */
import { existsSync } from 'node:fs'
import path from 'node:path'
import { checkAudit, totalsOf } from '../egress/audit-check.ts'
import { AuditError } from '../egress/audit-error.ts'
import { searchAudit } from '../egress/audit-query.ts'
import { RequestError } from '../errors.ts'
import type { Journal } from '../lease/journal.ts'
import type { Lease } from '../lease/lease.ts'
import type { Leases } from '../lease/leases.ts'
import {
  auditQuerySchema,
  auditSummariesSchema,
  auditVerdictsSchema,
  type AuditQuery,
  type LeaseAudit,
} from '../protocol/audit.ts'
import { zodMessage } from '../protocol/zod-message.ts'
import { sendJson, type Call, type Router } from './router.ts'

export interface AuditRouteDeps {
  readonly leases: Pick<Leases, 'find'>
  readonly journal: Journal
  readonly directory: string
}

/** How often the census of a followed lease is read. */
const censusEveryMs = 2_000

export function addAuditRoutes(router: Router, deps: AuditRouteDeps): void {
  router.on(
    'GET',
    '/v1/audit',
    {
      role: 'view',
      summary: 'every decision about a lease or trial, also as it comes',
      type: 'application/x-ndjson',
    },
    async (call) => {
      const id = call.url.searchParams.get('of') ?? ''
      const ids = leasesOf(id, deps)
      if (call.url.searchParams.get('follow') === 'true') return follow(call, id, ids, deps)
      return send(
        call,
        searchAudit(settled(ids, deps), { canaries: true }, { signal: call.signal }),
      )
    },
  )

  router.on(
    'GET',
    '/v1/audit/query',
    {
      role: 'view',
      summary: 'a search over the decisions of all leases',
      query: auditQuerySchema,
      type: 'application/x-ndjson',
    },
    async (call) => {
      const query = queryOf(call)
      const found = searchAudit(settled(chosen(query, deps), deps), query, { signal: call.signal })
      return send(call, found)
    },
  )

  router.on(
    'GET',
    '/v1/audit/summary',
    {
      role: 'view',
      summary: 'exact totals and the targets tried most',
      answer: auditSummariesSchema,
    },
    async (call) => {
      const leases: LeaseAudit[] = []
      for (const lease of leasesOf(call.url.searchParams.get('of') ?? '', deps)) {
        const file = fileOf(lease, deps)
        const open = await settle(lease, deps)
        if (open === undefined && !existsSync(file)) continue
        const { signal } = call
        const totals = open?.parts.audit.totals() ?? (await totalsOf(file, { signal }))
        const trial = deps.journal.index.get(lease)?.trial ?? null
        leases.push({ lease, trial, open: open !== undefined, totals })
      }
      sendJson(call.response, 200, { leases })
    },
  )

  router.on(
    'GET',
    '/v1/audit/verify',
    {
      role: 'view',
      summary: 'numbers, chain, schema, end and canaries of audit logs',
      answer: auditVerdictsSchema,
    },
    async (call) => {
      const { signal } = call
      const leases = []
      for (const lease of leasesOf(call.url.searchParams.get('of') ?? '', deps)) {
        const file = fileOf(lease, deps)
        const open = await settle(lease, deps)
        const { before, after } = (open ?? (await deps.journal.read(lease)))?.proof ?? noProof
        if (!existsSync(file)) continue
        // Bytes that may still be on their way are not looked at.
        const bytes = open?.parts.audit.bytes
        if (open !== undefined) await written(open)
        leases.push(
          ...(await checkAudit(file, { lease, proof: [...before, ...after], bytes, signal })),
        )
      }
      sendJson(call.response, 200, { leases })
    },
  )
}

const noProof = { before: [], after: [] }

const fileOf = (lease: string, { directory }: AuditRouteDeps): string =>
  path.join(directory, `${lease}.jsonl`)

/** Ids of the leases that a lease or trial id means; throws not_found. */
function leasesOf(id: string, deps: AuditRouteDeps): string[] {
  if (/^[a-z0-9]{12,32}$/.test(id) && existsSync(fileOf(id, deps))) return [id]
  const ids = deps.journal.index.ofTrial(id)
  if (ids.length > 0) return ids
  throw new RequestError(
    'not_found',
    'caller',
    `no lease or trial ${JSON.stringify(id)} has been seen here; \`closedbook lease list\` and \`closedbook ps\` show them`,
  )
}

function queryOf({ url }: Call): AuditQuery {
  const parsed = auditQuerySchema.safeParse(Object.fromEntries(url.searchParams))
  if (!parsed.success) throw new RequestError('bad_request', 'caller', zodMessage(parsed.error))
  return parsed.data
}

function chosen({ lease, trial }: AuditQuery, deps: AuditRouteDeps): string[] {
  if (lease !== undefined)
    return leasesOf(lease, deps).filter(
      (id) => id === lease && (trial === undefined || deps.journal.index.get(id)?.trial === trial),
    )
  return trial === undefined ? deps.journal.index.all() : deps.journal.index.ofTrial(trial)
}

/** The logs of leases, each brought up to date when its turn comes. */
async function* settled(ids: readonly string[], deps: AuditRouteDeps): AsyncGenerator<string> {
  for (const id of ids) {
    await settle(id, deps)
    yield fileOf(id, deps)
  }
}

/** undefined where it is closed. */
async function settle(id: string, { leases }: AuditRouteDeps): Promise<Lease | undefined> {
  const lease = leases.find(id)
  if (lease === undefined || lease.state === 'closed') return undefined
  await written(lease)
  return lease
}

async function written(lease: Lease): Promise<void> {
  try {
    await lease.egress()
    await lease.parts.audit.settle()
  } catch (error) {
    // A log that has failed closes its lease; what is in it stands, and is shown.
    if (!(error instanceof AuditError)) throw error
  }
}

async function send(call: Call, pieces: AsyncIterable<string>): Promise<void> {
  begin(call)
  for await (const piece of pieces) {
    if (call.signal.aborted) return
    await write(call, piece)
  }
  call.response.end()
}

function begin({ response }: Call): void {
  response.writeHead(200, { 'content-type': 'application/x-ndjson' })
  response.flushHeaders()
}

async function write({ response }: Call, text: string): Promise<void> {
  if (response.write(text) || response.destroyed) return
  await new Promise<void>((resolve) => {
    const done = (): void => {
      response.off('drain', done).off('close', done)
      resolve()
    }
    response.on('drain', done).on('close', done)
  })
}

/** What is there, then what comes: of a lease until it closes, of a trial until the client goes. */
async function follow(call: Call, id: string, ids: string[], deps: AuditRouteDeps): Promise<void> {
  const { signal } = call
  begin(call)
  const under = new Set<string>()
  const closed = ids.filter((lease) => deps.leases.find(lease) === undefined)
  const start = async (lease: string): Promise<void> => {
    const open = deps.leases.find(lease)
    if (open === undefined || under.has(lease)) return
    under.add(lease)
    try {
      for await (const event of open.parts.audit.events({ follow: true, signal }))
        await write(call, `${JSON.stringify(event)}\n`)
    } catch (error) {
      if (!signal.aborted && !(error instanceof AuditError)) throw error
    }
  }
  const census = setInterval(() => {
    for (const lease of under)
      void deps.leases
        .find(lease)
        ?.egress()
        .catch(() => {})
  }, censusEveryMs)
  using _watch = deps.journal.index.watch(({ lease, trial }) => {
    if (trial === id) void start(lease).catch(() => call.response.destroy())
  })
  try {
    const earlier = closed.map((lease) => fileOf(lease, deps))
    for await (const piece of searchAudit(earlier, { canaries: true }, { signal }))
      await write(call, piece)
    await Promise.all(ids.map(start))
    if (id !== ids[0] && !signal.aborted)
      await new Promise((resolve) => signal.addEventListener('abort', resolve, { once: true }))
  } finally {
    clearInterval(census)
  }
  call.response.end()
}
