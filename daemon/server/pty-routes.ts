/** Routes of PTY sessions: opening, listing, ending, recordings, and the WebSocket of a viewer. See protocol/api.ts. */
import { pipeline } from 'node:stream/promises'
import { RequestError } from '../errors.ts'
import type { Journal } from '../lease/journal.ts'
import type { Leases } from '../lease/leases.ts'
import { ptyProtocol } from '../protocol/pty-frames.ts'
import { ptyMarkerSchema, ptyOpenSchema, ptyViewSchema, ptyViewsSchema } from '../protocol/pty.ts'
import type { Ptys } from '../pty/ptys.ts'
import { safe } from './lease-routes.ts'
import { readJson, sendJson, type Call, type Router } from './router.ts'

export interface PtyRouteDeps {
  readonly leases: Leases
  readonly journal: Journal
  readonly ptys: Ptys
}

const leaseOf = ({ params }: Call): string => safe(params['id'] ?? '')
const ptyOf = ({ params }: { params: Readonly<Record<string, string>> }): string => {
  const pty = params['pty'] ?? ''
  if (/^[0-9a-f]{16}$/.test(pty)) return pty
  throw new RequestError(
    'bad_request',
    'caller',
    `${JSON.stringify(pty)} is no id of a PTY session`,
  )
}

export function addPtyRoutes(router: Router, { leases, journal, ptys }: PtyRouteDeps): void {
  router.on(
    'POST',
    '/v1/leases/:id/ptys',
    {
      role: 'run',
      summary: 'starts a program on a terminal',
      body: ptyOpenSchema,
      answer: ptyViewSchema,
      status: 201,
    },
    async (call) => {
      const open = await readJson(call, ptyOpenSchema)
      sendJson(call.response, 201, await leases.get(leaseOf(call)).openPty(open))
    },
  )

  router.on(
    'GET',
    '/v1/leases/:id/ptys',
    {
      role: 'view',
      summary: 'the PTY sessions of a lease, ended ones and those of closed leases too',
      answer: ptyViewsSchema,
    },
    async (call) => sendJson(call.response, 200, { ptys: await ptys.list(leaseOf(call)) }),
  )

  router.on(
    'GET',
    '/v1/ptys',
    {
      role: 'view',
      summary:
        'the PTY sessions of a lease, of all leases of a trial, or without `of` of all open leases',
      answer: ptyViewsSchema,
    },
    async (call) => {
      const of = call.url.searchParams.get('of')
      const ids =
        of === null
          ? leases.list().map(({ id }) => id)
          : journal.index.get(of) === undefined
            ? journal.index.ofTrial(of)
            : [of]
      const lists = await Promise.all(ids.map((id) => ptys.list(id)))
      sendJson(call.response, 200, { ptys: lists.flat() })
    },
  )

  router.on(
    'GET',
    '/v1/leases/:id/ptys/:pty',
    { role: 'view', summary: 'one PTY session', answer: ptyViewSchema },
    async (call) => sendJson(call.response, 200, await ptys.view(leaseOf(call), ptyOf(call))),
  )

  router.on(
    'DELETE',
    '/v1/leases/:id/ptys/:pty',
    {
      role: 'run',
      summary: 'ends a PTY session with all that it started: HUP, TERM, KILL',
      answer: ptyViewSchema,
    },
    async (call) => sendJson(call.response, 200, await ptys.close(leaseOf(call), ptyOf(call))),
  )

  router.on(
    'POST',
    '/v1/leases/:id/ptys/:pty/markers',
    { role: 'run', summary: 'a mark in the recording', body: ptyMarkerSchema },
    async (call) => {
      const { label } = await readJson(call, ptyMarkerSchema)
      await ptys.mark(leaseOf(call), ptyOf(call), label)
      sendJson(call.response, 200, {})
    },
  )

  router.on(
    'GET',
    '/v1/leases/:id/ptys/:pty/recording',
    {
      role: 'view',
      summary: 'the recording so far, asciicast v2',
      type: 'application/x-asciicast',
    },
    async (call) => {
      const cast = await ptys.recording(leaseOf(call), ptyOf(call))
      call.response.writeHead(200, { 'content-type': 'application/x-asciicast' })
      await pipeline(cast, call.response, { signal: call.signal })
    },
  )

  router.onUpgrade(
    '/v1/leases/:id/ptys/:pty/attach',
    {
      role: 'view',
      summary: `a viewer of a PTY session (${ptyProtocol}); control needs the role run`,
    },
    (request, socket, head, params, access) => {
      const { role, name, over, credential } = access
      safe(params['id'] ?? '')
      const rights = { mayControl: role !== 'view', name, local: credential === null, over }
      ptys.attach(request, socket, head, { pty: ptyOf({ params }), rights })
    },
  )
}
