/**
 * Tokens and the sessions of browsers, in one file that only root may read, with hashes in place of secrets. Whatever
 * stands on one of them gets its signal, which aborts when it is revoked or expires; a session ends with the token
 * that it was opened by.
 */
import { mkdir, readFile } from 'node:fs/promises'
import path from 'node:path'
import { z } from 'zod'
import { HostError, RequestError } from '../../errors.ts'
import { writeDurably } from '../../lease/journal.ts'
import { roleSchema, type Role, type TokenCreated, type TokenView } from '../../protocol/auth.ts'
import type { Access } from './access.ts'
import { matching, newSecret } from './secret.ts'

const entrySchema = z.strictObject({
  id: z.string(),
  kind: z.enum(['token', 'session']),
  role: roleSchema,
  name: z.string(),
  hash: z.string().regex(/^[0-9a-f]{64}$/),
  /** Of a session: the token behind it. */
  parent: z.string().nullable(),
  createdAt: z.iso.datetime(),
  expiresAt: z.iso.datetime().nullable(),
})
type Entry = z.infer<typeof entrySchema>
const fileSchema = z.strictObject({ v: z.literal(1), tokens: z.array(entrySchema) })

export interface NewToken {
  readonly kind: 'token' | 'session'
  readonly role: Role
  readonly name: string
  readonly expiresInMs: number | null
  readonly parent?: string | null
}

const maxSessions = 200
const maxTokens = 1_000
const sweepMs = 1_000

export class Tokens implements Disposable {
  readonly #file: string
  readonly #entries: Map<string, Entry>
  readonly #ends = new Map<string, AbortController>()
  readonly #used = new Map<string, string>()
  readonly #sweeping: NodeJS.Timeout
  #written: Promise<void> = Promise.resolve()

  private constructor(file: string, entries: Map<string, Entry>) {
    this.#file = file
    this.#entries = entries
    this.#sweeping = setInterval(() => this.#sweep(), sweepMs)
    this.#sweeping.unref()
  }

  static async open(directory: string): Promise<Tokens> {
    await mkdir(directory, { recursive: true, mode: 0o700 })
    const file = path.join(directory, 'tokens.json')
    const text = await readFile(file, 'utf8').catch((error: NodeJS.ErrnoException) => {
      if (error.code === 'ENOENT') return '{"v":1,"tokens":[]}'
      throw error
    })
    const parsed = fileSchema.safeParse(jsonOrNull(text))
    if (!parsed.success)
      throw new HostError(
        'journal_corrupt',
        'operator',
        `${file} can't be read as tokens; move it away, start the daemon again and make new tokens`,
        { cause: parsed.error },
      )
    return new Tokens(file, new Map(parsed.data.tokens.map((entry) => [entry.id, entry])))
  }

  /** How many tokens of people there are, sessions not counted. */
  get size(): number {
    return [...this.#entries.values()].filter(({ kind }) => kind === 'token').length
  }

  async create({ kind, role, name, expiresInMs, parent = null }: NewToken): Promise<TokenCreated> {
    this.#makeRoom(kind)
    const { id, text, hash } = newSecret(kind)
    const now = Date.now()
    const entry: Entry = {
      id,
      kind,
      role,
      name,
      hash,
      parent,
      createdAt: new Date(now).toISOString(),
      expiresAt: expiresInMs === null ? null : new Date(now + expiresInMs).toISOString(),
    }
    this.#entries.set(id, entry)
    await this.#save()
    return { ...this.#view(entry), token: text }
  }

  list(): TokenView[] {
    return [...this.#entries.values()].filter(isLive).map((entry) => this.#view(entry))
  }

  /** By id, or by the whole token; throws not_found. */
  async revoke(text: string): Promise<TokenView> {
    const id = /^cb[ts]_([a-z0-9]{12})_/.exec(text)?.[1] ?? text
    const entry = this.#entries.get(id)
    if (entry === undefined)
      throw new RequestError(
        'not_found',
        'caller',
        `there is no token ${JSON.stringify(id)}; \`closedbook token list\` shows them`,
      )
    this.#drop(id)
    await this.#save()
    return this.#view(entry)
  }

  /** The access that a token or session gives, or undefined where it gives none. */
  access(kind: 'token' | 'session', text: string): Access | undefined {
    const entry = matching(kind, text, (id) => this.#entries.get(id))
    if (entry === undefined || entry.kind !== kind || !isLive(entry)) return undefined
    this.#used.set(entry.id, new Date().toISOString())
    const { id, role, name } = entry
    return { role, name, credential: id, over: this.#end(id).signal }
  }

  expiresAt(id: string | null): string | null {
    return id === null ? null : (this.#entries.get(id)?.expiresAt ?? null)
  }

  [Symbol.dispose](): void {
    clearInterval(this.#sweeping)
  }

  #end(id: string): AbortController {
    const end = this.#ends.get(id) ?? new AbortController()
    this.#ends.set(id, end)
    return end
  }

  #drop(id: string): void {
    for (const { id: child, parent } of this.#entries.values()) if (parent === id) this.#drop(child)
    this.#entries.delete(id)
    this.#used.delete(id)
    this.#ends.get(id)?.abort(new RevokedError())
    this.#ends.delete(id)
  }

  #sweep(): void {
    const before = this.#entries.size
    for (const entry of this.#entries.values()) if (!isLive(entry)) this.#drop(entry.id)
    // what has expired is refused whether or not the file still names it
    if (this.#entries.size !== before) this.#save().catch(() => {})
  }

  /** The oldest session makes room for a new one; tokens are a person's, and none is taken away. */
  #makeRoom(kind: 'token' | 'session'): void {
    const same = [...this.#entries.values()].filter((entry) => entry.kind === kind)
    if (kind === 'session' && same.length >= maxSessions) this.#drop(same[0]?.id ?? '')
    if (kind === 'token' && same.length >= maxTokens)
      throw new RequestError(
        'too_large',
        'caller',
        `there are ${maxTokens} tokens; revoke those that nobody uses`,
      )
  }

  async #save(): Promise<void> {
    const write = async (): Promise<void> => {
      const tokens = [...this.#entries.values()]
      await writeDurably(this.#file, `${JSON.stringify({ v: 1, tokens })}\n`)
    }
    this.#written = this.#written.then(write, write)
    await this.#written
  }

  #view({ id, kind, role, name, createdAt, expiresAt }: Entry): TokenView {
    return { id, kind, role, name, createdAt, expiresAt, lastUsedAt: this.#used.get(id) ?? null }
  }
}

export class RevokedError extends Error {
  constructor() {
    super('the token or session behind this was revoked or has expired')
    this.name = 'RevokedError'
  }
}

const isLive = ({ expiresAt }: Entry): boolean =>
  expiresAt === null || Date.parse(expiresAt) > Date.now()

function jsonOrNull(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return null
  }
}
