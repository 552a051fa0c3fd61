/**
 * Who may do what over the API: three roles, each with all that the one before it has. `view` reads, `run` opens and
 * uses sandboxes, `admin` manages tokens and ends the daemon. The unix socket is admin by its file permissions; over a
 * network a request carries a bearer token, a browser a session cookie, and a browser's WebSocket a one-time ticket.
 */
import { z } from 'zod'

export const roles = ['view', 'run', 'admin'] as const
export const roleSchema = z.enum(roles)
export type Role = z.infer<typeof roleSchema>

export const roleHolds = (role: Role, needed: Role): boolean =>
  roles.indexOf(role) >= roles.indexOf(needed)

/** A ticket for a WebSocket is offered as a second subprotocol of this name, so that it stands in no URL. */
export const ticketProtocolPrefix = 'closedbook.ticket.'

/** The fragment of a page's address never leaves the browser: no log and no Referer has the ticket. */
export const loginFragment = 'ticket'

export const tokenRequestSchema = z.strictObject({
  role: roleSchema,
  name: z
    .string()
    .regex(/^[\w.@ -]{1,64}$/, '1 to 64 letters, digits, spaces and . _ @ -')
    .default('unnamed'),
  /** Absent: it holds until it is revoked. */
  expiresInSeconds: z
    .int()
    .positive()
    .max(10 * 366 * 86_400)
    .optional(),
})
export type TokenRequest = z.infer<typeof tokenRequestSchema>
export type TokenRequestInput = z.input<typeof tokenRequestSchema>

/** What is kept of a token for people; never its secret. */
export const tokenViewSchema = z.strictObject({
  id: z.string(),
  kind: z.enum(['token', 'session']),
  role: roleSchema,
  name: z.string(),
  createdAt: z.iso.datetime(),
  expiresAt: z.iso.datetime().nullable(),
  lastUsedAt: z.iso.datetime().nullable(),
})
export type TokenView = z.infer<typeof tokenViewSchema>
export const tokenListSchema = z.strictObject({ tokens: z.array(tokenViewSchema) })

export const tokenCreatedSchema = z.strictObject({
  ...tokenViewSchema.shape,
  token: z.string().describe('shown this once'),
})
export type TokenCreated = z.infer<typeof tokenCreatedSchema>

export const ticketRequestSchema = z.strictObject({
  /** Path of the socket that it opens; `/` opens a session of the dashboard. */
  path: z.string().regex(/^\/[^?#]*$/, 'a path without a query'),
  role: roleSchema.default('view'),
})
export type TicketRequest = z.infer<typeof ticketRequestSchema>
export type TicketRequestInput = z.input<typeof ticketRequestSchema>

export const ticketSchema = z.strictObject({
  ticket: z.string(),
  path: z.string(),
  role: roleSchema,
  expiresAt: z.iso.datetime(),
})
export type Ticket = z.infer<typeof ticketSchema>

/** Opens a session of the dashboard, by a one-time ticket or by a token that a person pastes. */
export const sessionRequestSchema = z.union([
  z.strictObject({ ticket: z.string().max(200) }),
  z.strictObject({ token: z.string().max(200) }),
])

export const sessionSchema = z.strictObject({
  role: roleSchema,
  name: z.string(),
  expiresAt: z.iso.datetime().nullable(),
})
export type Session = z.infer<typeof sessionSchema>
