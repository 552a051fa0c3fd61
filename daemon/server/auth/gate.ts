/**
 * Decides who a request is and whether it may do what its route needs, before any handler runs or reads a byte of the
 * body. Over the unix socket everybody is an admin. Over a network: first Host and Origin, then the credential (bearer
 * token; for upgrades a ticket; else the session cookie), then the role. Each refusal is logged, never its credential.
 */
import type { IncomingMessage } from 'node:http'
import type { Logger } from '../../logger.ts'
import { roleHolds, ticketProtocolPrefix } from '../../protocol/auth.ts'
import { AuthError, never, socketAccess, type Access, type Door, type Need } from './access.ts'
import { judgeOrigin } from './origin.ts'
import { Refusals } from './refusals.ts'
import { Tickets } from './tickets.ts'
import type { Tokens } from './tokens.ts'

const stranger: Access = { role: 'view', name: 'anyone', credential: null, over: never }
const safeMethods = new Set(['GET', 'HEAD'])

export interface Asked {
  readonly door: Door
  readonly need: Need
  readonly pathname: string
  readonly upgrade: boolean
}

export class Gate implements Disposable {
  readonly tokens: Tokens
  readonly tickets = new Tickets()
  readonly refusals: Refusals

  constructor(tokens: Tokens, log: Logger) {
    this.tokens = tokens
    this.refusals = new Refusals(log)
  }

  /** Throws AuthError. */
  authorize(request: IncomingMessage, asked: Asked): Access {
    if (asked.door.kind === 'socket') return socketAccess
    try {
      return this.#judge(request, asked, asked.door)
    } catch (error) {
      throw this.#refused(request, asked, error)
    }
  }

  /** The same accounting for a credential that came in a body: POST /v1/session. */
  refused(request: IncomingMessage, pathname: string, error: AuthError): AuthError {
    return this.#refused(request, { pathname }, error) as AuthError
  }

  [Symbol.dispose](): void {
    this.refusals[Symbol.dispose]()
  }

  #judge(
    request: IncomingMessage,
    { need, pathname, upgrade }: Asked,
    door: Extract<Door, { kind: 'network' }>,
  ): Access {
    const verdict = judgeOrigin(request.headers, door)
    if (!verdict.ok) throw new AuthError(verdict.code, verdict.message)
    if (need === 'anyone') return stranger
    const access = this.#credential(request, { pathname, upgrade, origin: verdict.origin })
    if (roleHolds(access.role, need)) return access
    throw new AuthError(
      'forbidden',
      `this needs the role ${need}, and ${JSON.stringify(access.name)} has ${access.role}`,
    )
  }

  #credential(
    request: IncomingMessage,
    { pathname, upgrade, origin }: { pathname: string; upgrade: boolean; origin: string | null },
  ): Access {
    const bearer = /^Bearer (\S+)$/i.exec(request.headers.authorization ?? '')?.[1]
    if (bearer !== undefined) {
      const access = this.tokens.access('token', bearer)
      if (access !== undefined) return access
      throw new AuthError('unauthenticated', 'this token is unknown, expired or revoked')
    }
    if (upgrade) {
      const ticket = ticketOf(request)
      if (ticket === undefined)
        throw new AuthError(
          'unauthenticated',
          'a socket needs a bearer token, or a ticket as its second subprotocol',
        )
      const access = this.tickets.spend(ticket, { path: pathname, origin })
      if (typeof access !== 'string') return access
      throw new AuthError('ticket_refused', `this ticket is ${access}; ask for a new one`)
    }
    const cookie = cookieOf(request)
    const access = cookie === undefined ? undefined : this.tokens.access('session', cookie)
    if (access === undefined)
      throw new AuthError(
        'unauthenticated',
        cookie === undefined
          ? 'a token is needed: `closedbook token create` makes one, `closedbook dashboard` opens a session of a browser'
          : 'this session has ended; `closedbook dashboard` opens another',
      )
    if (!safeMethods.has(request.method ?? '') && origin === null)
      throw new AuthError('origin_refused', 'a session changes nothing without an Origin header')
    return access
  }

  #refused(request: IncomingMessage, { pathname }: { pathname: string }, error: unknown): unknown {
    if (!(error instanceof AuthError)) return error
    const address = request.socket.remoteAddress ?? 'gone'
    this.refusals.note({
      code: error.code,
      address,
      method: request.method ?? '',
      path: pathname,
    })
    if (error.code === 'forbidden' || this.refusals.spend(address)) return error
    return new AuthError(
      'too_many_requests',
      'too many bad requests from this address; try again in a while',
    )
  }
}

export function ticketOf({ headers }: IncomingMessage): string | undefined {
  return (headers['sec-websocket-protocol'] ?? '')
    .split(',')
    .map((offered) => offered.trim())
    .find((offered) => offered.startsWith(ticketProtocolPrefix))
    ?.slice(ticketProtocolPrefix.length)
}

/**
 * By port, since cookies are not: two daemons of one host would take each other's. Under TLS the prefix keeps every
 * other host of the domain from setting it.
 */
export function cookieName(host: string, secure: boolean): string {
  const port = /:(\d{1,5})$/.exec(host)?.[1] ?? 'default'
  return `${secure ? '__Host-' : ''}closedbook-${port}`
}

function cookieOf({ headers }: IncomingMessage): string | undefined {
  const host = headers.host ?? ''
  const wanted = [cookieName(host, true), cookieName(host, false)]
  for (const part of (headers.cookie ?? '').split(';')) {
    const [name = '', value = ''] = part.trim().split('=', 2)
    if (wanted.includes(name)) return value
  }
  return undefined
}
