/** Tokens and tickets, asked of a daemon. */
import type { DaemonClient, Wait } from './client.ts'
import {
  ticketSchema,
  tokenCreatedSchema,
  tokenListSchema,
  tokenViewSchema,
  type Ticket,
  type TicketRequestInput,
  type TokenCreated,
  type TokenRequestInput,
  type TokenView,
} from './auth.ts'
import { understood } from './understood.ts'

type Client = Pick<DaemonClient, 'call'>

export async function createToken(
  client: Client,
  request: TokenRequestInput,
  wait: Wait = {},
): Promise<TokenCreated> {
  const answer = await client.call('POST', '/v1/tokens', { ...wait, body: request })
  return understood(tokenCreatedSchema, answer)
}

export async function listTokens(client: Client, wait: Wait = {}): Promise<TokenView[]> {
  return understood(tokenListSchema, await client.call('GET', '/v1/tokens', wait)).tokens
}

/** By id, or by the whole token, of which only the id is sent. */
export async function revokeToken(
  client: Client,
  text: string,
  wait: Wait = {},
): Promise<TokenView> {
  const id = /^cb[ts]_([a-z0-9]+)_/.exec(text)?.[1] ?? text
  const path = `/v1/tokens/${encodeURIComponent(id)}`
  return understood(tokenViewSchema, await client.call('DELETE', path, wait))
}

export async function createTicket(
  client: Client,
  request: TicketRequestInput,
  wait: Wait = {},
): Promise<Ticket> {
  const answer = await client.call('POST', '/v1/tickets', { ...wait, body: request })
  return understood(ticketSchema, answer)
}
