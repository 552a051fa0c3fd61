/**
 * Routes of credentials: tokens (admin), tickets (whoever may use what they open), sessions of the dashboard. A ticket
 * never carries more than its asker has, and a session never more than its ticket.
 */
import type { IncomingMessage } from 'node:http'
import { z } from 'zod'
import {
  roleHolds,
  sessionRequestSchema,
  sessionSchema,
  ticketRequestSchema,
  ticketSchema,
  tokenCreatedSchema,
  tokenListSchema,
  tokenRequestSchema,
  tokenViewSchema,
} from '../../protocol/auth.ts'
import { readJson, sendJson, type Router } from '../router.ts'
import { AuthError, type Access } from './access.ts'
import { cookieName, type Gate } from './gate.ts'

const sessionMs = 12 * 3_600_000

export function addAuthRoutes(
  router: Router,
  gate: Gate,
  door: { readonly secure: boolean },
): void {
  const { tokens, tickets } = gate

  router.on(
    'GET',
    '/v1/tokens',
    { role: 'admin', summary: 'tokens and sessions, without secrets', answer: tokenListSchema },
    ({ response }) => sendJson(response, 200, { tokens: tokens.list() }),
  )

  router.on(
    'POST',
    '/v1/tokens',
    {
      role: 'admin',
      summary: 'makes a token, shown this once',
      body: tokenRequestSchema,
      answer: tokenCreatedSchema,
      status: 201,
    },
    async (call) => {
      const { role, name, expiresInSeconds } = await readJson(call, tokenRequestSchema)
      const expiresInMs = expiresInSeconds === undefined ? null : expiresInSeconds * 1000
      const token = await tokens.create({ kind: 'token', role, name, expiresInMs })
      sendJson(call.response, 201, token)
    },
  )

  router.on(
    'DELETE',
    '/v1/tokens/:id',
    {
      role: 'admin',
      summary: 'revokes a token or session, and closes what stands on it',
      answer: tokenViewSchema,
    },
    async ({ response, params }) =>
      sendJson(response, 200, await tokens.revoke(params['id'] ?? '')),
  )

  router.on(
    'POST',
    '/v1/tickets',
    {
      role: 'view',
      summary: 'a one-time ticket for one socket, or for a session of the dashboard (path /)',
      body: ticketRequestSchema,
      answer: ticketSchema,
      status: 201,
    },
    async (call) => {
      const { path, role } = await readJson(call, ticketRequestSchema)
      requireRole(call.access, role)
      const origin = call.request.headers.origin ?? null
      sendJson(call.response, 201, tickets.create({ path, role, access: call.access, origin }))
    },
  )

  router.on(
    'POST',
    '/v1/session',
    {
      role: 'anyone',
      summary: 'opens a session of the dashboard by a ticket or token, as a cookie',
      body: sessionRequestSchema,
      answer: sessionSchema,
    },
    async (call) => {
      const body = await readJson(call, sessionRequestSchema)
      const origin = call.request.headers.origin ?? null
      const access = open(gate, body, origin)
      if (typeof access === 'string')
        throw gate.refused(
          call.request,
          call.url.pathname,
          new AuthError('unauthenticated', access),
        )
      const limit = tokens.expiresAt(access.credential)
      const left = limit === null ? sessionMs : Date.parse(limit) - Date.now()
      const { token, role, name, expiresAt } = await tokens.create({
        kind: 'session',
        role: access.role,
        name: access.name,
        expiresInMs: Math.min(sessionMs, left),
        parent: access.credential,
      })
      call.response.setHeader('set-cookie', cookie(call.request, door, token, sessionMs))
      sendJson(call.response, 200, { role, name, expiresAt })
    },
  )

  router.on(
    'GET',
    '/v1/session',
    { role: 'view', summary: 'who asks, and what they may do', answer: sessionSchema },
    ({ response, access }) =>
      sendJson(response, 200, {
        role: access.role,
        name: access.name,
        expiresAt: tokens.expiresAt(access.credential),
      }),
  )

  router.on(
    'DELETE',
    '/v1/session',
    { role: 'view', summary: 'ends the session that asks', answer: z.strictObject({}) },
    async ({ request, response, access }) => {
      const kind = tokens.list().find(({ id }) => id === access.credential)?.kind
      if (kind === 'session') {
        response.setHeader('set-cookie', cookie(request, door, '', 0))
        sendJson(response, 200, {})
        await tokens.revoke(access.credential ?? '')
        return
      }
      sendJson(response, 200, {})
    },
  )
}

function open(
  { tokens, tickets }: Gate,
  body: z.infer<typeof sessionRequestSchema>,
  origin: string | null,
): Access | string {
  if ('token' in body)
    return tokens.access('token', body.token) ?? 'this token is unknown, expired or revoked'
  const access = tickets.spend(body.ticket, { path: '/', origin })
  return typeof access === 'string'
    ? `this ticket is ${access}; \`closedbook dashboard\` makes another`
    : access
}

function requireRole(access: Access, role: Access['role']): void {
  if (!roleHolds(access.role, role))
    throw new AuthError('forbidden', `you have the role ${access.role} and can't give ${role}`)
}

/** No page can read it, no other site sends it, and only this host and port name it so. */
function cookie(
  request: IncomingMessage,
  door: { readonly secure: boolean },
  value: string,
  ageMs: number,
): string {
  const { host = '', origin = '' } = request.headers
  const secure = door.secure || origin.startsWith('https:')
  const parts = [
    `${cookieName(host, secure)}=${value}`,
    'Path=/',
    'HttpOnly',
    'SameSite=Strict',
    `Max-Age=${Math.round(ageMs / 1000)}`,
  ]
  return [...parts, ...(secure ? ['Secure'] : [])].join('; ')
}
