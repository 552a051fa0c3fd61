/**
 * One-time tickets: what a browser shows in place of a credential. A ticket opens one path, once, within seconds, with
 * no more than its role, and only from the origin that asked for it; it dies with the credential that asked. A ticket
 * that is shown is gone, whether or not it was right for what it was shown to.
 */
import type { Role, Ticket } from '../../protocol/auth.ts'
import type { Access } from './access.ts'
import { matching, newSecret } from './secret.ts'

interface Entry {
  readonly hash: string
  readonly path: string
  readonly access: Access
  readonly origin: string | null
  readonly expiresAt: number
}

/** A socket is opened at once; a person has to copy an address first. */
const socketTicketMs = 30_000
const loginTicketMs = 120_000
const maxTickets = 1_000

export interface TicketFor {
  readonly path: string
  readonly role: Role
  /** Of who asks. */
  readonly access: Access
  readonly origin: string | null
}

export class Tickets {
  readonly #entries = new Map<string, Entry>()
  readonly #now: () => number

  constructor(now: () => number = Date.now) {
    this.#now = now
  }

  create({ path, role, access, origin }: TicketFor): Ticket {
    this.#forget()
    const { id, text, hash } = newSecret('ticket')
    const expiresAt = this.#now() + (path === '/' ? loginTicketMs : socketTicketMs)
    this.#entries.set(id, { hash, path, access: { ...access, role }, origin, expiresAt })
    return { ticket: text, path, role, expiresAt: new Date(expiresAt).toISOString() }
  }

  /** What it gives, or why it gives nothing. */
  spend(text: string, used: { path: string; origin: string | null }): Access | string {
    const entry = matching('ticket', text, (id) => this.#entries.get(id))
    if (entry === undefined) return 'unknown, or used already'
    this.#entries.delete(/^cbk_([a-z0-9]{12})_/.exec(text)?.[1] ?? '')
    if (entry.expiresAt <= this.#now()) return 'expired'
    if (entry.access.over.aborted) return 'of a token that was revoked'
    if (entry.path !== used.path) return 'for another path'
    if (entry.origin !== null && entry.origin !== used.origin) return 'for another origin'
    return entry.access
  }

  #forget(): void {
    const now = this.#now()
    for (const [id, { expiresAt }] of this.#entries) {
      if (expiresAt > now && this.#entries.size < maxTickets) continue
      this.#entries.delete(id)
    }
  }
}
