/**
 * The Hub as the daemon sees it: one for all leases, with the token that no sandbox has. Asks for what the gateways have
 * decided on, follows redirects by the rules of redirect.ts, and sends the token to the endpoint and nowhere else. Trees
 * are by commit and so never change: each is fetched once and kept beside the cache.
 */
import type { Readable } from 'node:stream'
import { Agent, request, type Dispatcher } from 'undici'
import { z } from 'zod'
import { packageVersion } from '../../protocol/version.ts'
import type { Source } from '../artifact-cache/source.ts'
import { HubError } from './hub-error.ts'
import { judgeRedirect, type RedirectRules } from './redirect.ts'
import { pageSchema, type Tree, type TreeEntry, type TreeFile } from './tree.ts'
import { TreeStore } from './tree-store.ts'

export interface HubOptions {
  /** Origin and optional path, e.g. https://huggingface.co */
  readonly endpoint: string
  readonly token?: string
  /** Hosts (`host` or `host:port`) that its redirects of files may lead to, beside the published ones. */
  readonly fileHosts?: readonly string[]
  /** Where trees are kept. */
  readonly directory: string
  /** Until the head of an answer, and between two pieces of its body. */
  readonly timeoutMs?: number
  /** Before something is asked a second time; doubled each time after. */
  readonly firstPauseMs?: number
}

export interface RepoAt {
  readonly repo: string
  readonly commit: string
}

const maxRedirects = 5
const maxPages = 1000
const maxPageBytes = 32 * 1024 * 1024
const defaultTimeoutMs = 30_000
const accessForMs = 10 * 60_000
const apiTries = 4
const defaultFirstPauseMs = 250
const longestPauseMs = 10_000

export class Hub implements AsyncDisposable {
  readonly endpoint: URL
  readonly #token: string | undefined
  readonly #fileHosts: readonly string[]
  readonly #agent: Agent
  readonly #firstPauseMs: number
  readonly #trees: TreeStore
  readonly #granted = new Map<string, number>()
  readonly #stop = new AbortController()

  private constructor(options: HubOptions, trees: TreeStore) {
    this.endpoint = new URL(options.endpoint)
    this.#token = options.token
    this.#fileHosts = options.fileHosts ?? []
    this.#trees = trees
    this.#firstPauseMs = options.firstPauseMs ?? defaultFirstPauseMs
    const timeoutMs = options.timeoutMs ?? defaultTimeoutMs
    this.#agent = new Agent({
      headersTimeout: timeoutMs,
      bodyTimeout: timeoutMs,
      connect: { timeout: Math.min(timeoutMs, 10_000) },
      pipelining: 1,
    })
  }

  static async open(options: HubOptions): Promise<Hub> {
    return new Hub(options, await TreeStore.open(options.directory))
  }

  /** The commit that a branch or tag is at now. */
  async commitOf(repo: string, revision: string, signal: AbortSignal): Promise<string> {
    const path = `/api/models/${repo}/revision/${encodeURIComponent(revision)}`
    const body = await this.#json(repo, path, signal)
    const parsed = z.object({ sha: z.string().regex(/^[0-9a-f]{40}$/) }).safeParse(body.value)
    if (parsed.success) return parsed.data.sha
    throw new HubError('the Hub did not say which commit a revision is', { fault: 'garbled' })
  }

  /** Every file of the repository at the commit; whoever shows it filters it. */
  tree({ repo, commit }: RepoAt, signal: AbortSignal): Promise<Tree> {
    const id = `${this.endpoint.href} ${repo} ${commit}`
    return this.#trees.get(id, () => this.#fetchTree({ repo, commit }), signal)
  }

  async #fetchTree({ repo, commit }: RepoAt): Promise<TreeEntry[]> {
    const base = `/api/models/${repo}/tree/${commit}`
    const entries: TreeEntry[] = []
    let query = 'recursive=true&expand=false'
    for (let page = 0; page < maxPages; page++) {
      const { value, next } = await this.#json(repo, `${base}?${query}`, this.#stop.signal)
      const parsed = pageSchema.safeParse(value)
      if (!parsed.success)
        throw new HubError(`the Hub listed ${repo} in a way that can't be read`, {
          fault: 'garbled',
        })
      entries.push(...parsed.data)
      if (next === null) return entries
      query = next
    }
    throw new HubError(`the Hub listed ${repo} without an end`, { fault: 'garbled' })
  }

  /** Throws as the Hub does where the token may not have the file (a gated repository); says yes for a while. */
  async requireAccess({ repo, commit }: RepoAt, path: string, signal: AbortSignal): Promise<void> {
    const key = `${repo}@${commit}`
    if ((this.#granted.get(key) ?? 0) > Date.now()) return
    await this.#patiently(signal, async () => {
      const url = this.#url(filePath(repo, commit, path))
      const answer = await this.#send(url, 'HEAD', {}, signal)
      await answer.body.dump()
      if (answer.statusCode >= 400) throw answeredError(answer, `${repo}`, null)
    })
    this.#granted.set(key, Date.now() + accessForMs)
  }

  /** The bytes of a file. It outlives the lease that asks: others may join the fetch. */
  source({ repo, commit }: RepoAt, { path, size, lfs }: TreeFile): Source {
    const bytes = lfs?.size ?? size
    return async ({ from, etag, signal }) => {
      const headers: Record<string, string> =
        from === 0
          ? {}
          : {
              range: `bytes=${from}-`,
              // Weak ones can't be asked for by If-Range.
              ...(etag === null || etag.startsWith('W/') ? {} : { 'if-range': etag }),
            }
      const rules = this.#rules(repo, 'file')
      const answer = await this.#follow(filePath(repo, commit, path), headers, rules, signal)
      return partOf(answer, from, bytes, path)
    }
  }

  #rules(repo: string, purpose: RedirectRules['purpose']): RedirectRules {
    return { endpoint: this.endpoint, repo, purpose, fileHosts: this.#fileHosts }
  }

  async #json(
    repo: string,
    path: string,
    signal: AbortSignal,
  ): Promise<{ value: unknown; next: string | null }> {
    return this.#patiently(signal, async () => {
      const answer = await this.#follow(path, {}, this.#rules(repo, 'api'), signal)
      const text = await readText(answer.body, maxPageBytes)
      try {
        return { value: JSON.parse(text) as unknown, next: nextQuery(answer.headers['link']) }
      } catch (cause) {
        throw new HubError('the Hub answered with what is not JSON', { fault: 'garbled', cause })
      }
    })
  }

  /** Again where it may help: passing faults, and what the Hub itself says to ask again soon. */
  async #patiently<T>(signal: AbortSignal, ask: () => Promise<T>): Promise<T> {
    for (let failed = 1; ; failed++)
      try {
        return await ask()
      } catch (error) {
        const asked = error instanceof HubError ? error.retryAfterMs : null
        if (asked === null || asked > longestPauseMs || failed >= apiTries) throw error
        signal.throwIfAborted()
        const ms = Math.max(asked, this.#firstPauseMs * 2 ** (failed - 1))
        await new Promise((resolve) => setTimeout(resolve, ms))
        signal.throwIfAborted()
      }
  }

  /** A good answer (2xx) at the end of the redirects. */
  async #follow(
    path: string,
    headers: Readonly<Record<string, string>>,
    rules: RedirectRules,
    signal: AbortSignal,
  ): Promise<Dispatcher.ResponseData> {
    let url = this.#url(path)
    for (let hops = 0; ; hops++) {
      const answer = await this.#send(url, 'GET', headers, signal)
      const { statusCode } = answer
      if (statusCode >= 200 && statusCode < 300) return answer
      if (statusCode < 300 || statusCode >= 400 || statusCode === 304)
        throw answeredError(answer, rules.repo, await readText(answer.body, 16 * 1024))
      await answer.body.dump()
      const redirect = judgeRedirect(url, headerOf(answer, 'location'), rules)
      if (!redirect.ok) throw new HubError(redirect.why, { fault: 'redirect' })
      if (hops >= maxRedirects) throw new HubError('too many redirects', { fault: 'redirect' })
      url = redirect.url
    }
  }

  async #send(
    url: URL,
    method: 'GET' | 'HEAD',
    headers: Readonly<Record<string, string>>,
    signal: AbortSignal,
  ): Promise<Dispatcher.ResponseData> {
    const own = url.origin === this.endpoint.origin
    try {
      return await request(url, {
        method,
        dispatcher: this.#agent,
        signal: AbortSignal.any([signal, this.#stop.signal]),
        headers: {
          'user-agent': `closedbook/${packageVersion}`,
          'accept-encoding': 'identity',
          ...headers,
          ...(own && this.#token !== undefined ? { authorization: `Bearer ${this.#token}` } : {}),
        },
      })
    } catch (cause) {
      signal.throwIfAborted()
      throw networkError(cause, url)
    }
  }

  #url(path: string): URL {
    return new URL(`${this.endpoint.href.replace(/\/$/, '')}${path}`)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort(new HubError('the daemon ends', { fault: 'unreachable' }))
    await this.#agent.destroy()
  }
}

const filePath = (repo: string, commit: string, path: string): string =>
  `/${repo}/resolve/${commit}/${path.split('/').map(encodeURIComponent).join('/')}`

function headerOf(answer: Dispatcher.ResponseData, name: string): string | null {
  const value = answer.headers[name]
  return (Array.isArray(value) ? value[0] : value) ?? null
}

/** The body of a file, from where it begins; a compressed one would be another file. */
function partOf(
  answer: Dispatcher.ResponseData,
  from: number,
  bytes: number,
  path: string,
): { from: number; etag: string | null; body: Readable } {
  const refuse = (why: string): never => {
    answer.body.on('error', () => {})
    answer.body.destroy()
    throw new HubError(`${path}: ${why}`, { fault: 'garbled' })
  }
  const encoding = headerOf(answer, 'content-encoding')
  if (encoding !== null && encoding !== 'identity') refuse(`it came compressed (${encoding})`)
  const etag = headerOf(answer, 'etag')
  if (answer.statusCode === 206) {
    const range = /^bytes (\d+)-\d+\/(\d+)$/.exec(headerOf(answer, 'content-range') ?? '')
    if (Number(range?.[1]) !== from || Number(range?.[2]) !== bytes)
      refuse('another part came than was asked for')
    return { from, etag, body: answer.body }
  }
  const length = headerOf(answer, 'content-length')
  if (length !== null && Number(length) !== bytes)
    refuse(`the tree says ${bytes} bytes, and ${length} are to come`)
  return { from: 0, etag, body: answer.body }
}

async function readText(body: Readable, maxBytes: number): Promise<string> {
  const chunks: Buffer[] = []
  let bytes = 0
  try {
    for await (const chunk of body as AsyncIterable<Buffer>) {
      bytes += chunk.length
      if (bytes > maxBytes)
        throw new HubError('the Hub answered with more than can be right', { fault: 'garbled' })
      chunks.push(chunk)
    }
  } catch (cause) {
    if (cause instanceof HubError) throw cause
    throw new HubError('the Hub broke off its answer', {
      fault: 'unreachable',
      retryAfterMs: 0,
      cause,
    })
  }
  return Buffer.concat(chunks).toString()
}

/** Of a Link header, only which page comes next: its address is the Hub's own, wherever we reached it. */
function nextQuery(link: string | string[] | undefined): string | null {
  const text = Array.isArray(link) ? link.join(', ') : (link ?? '')
  const next = /<([^>]*)>\s*;[^,]*\brel="?next"?/i.exec(text)?.[1]
  if (next === undefined) return null
  const question = next.indexOf('?')
  return question === -1 ? null : next.slice(question + 1)
}

function answeredError(
  answer: Dispatcher.ResponseData,
  repo: string,
  body: string | null,
): HubError {
  const { statusCode: status } = answer
  const code = headerOf(answer, 'x-error-code')
  const words = headerOf(answer, 'x-error-message') ?? errorIn(body)
  return new HubError(words ?? `the Hub answered ${status} for ${repo}`, {
    fault: 'answered',
    status,
    code,
    retryAfterMs: retryAfterMs(status, headerOf(answer, 'retry-after')),
  })
}

function errorIn(body: string | null): string | null {
  try {
    const parsed = z.object({ error: z.string() }).safeParse(JSON.parse(body ?? ''))
    return parsed.success ? parsed.data.error : null
  } catch {
    return null
  }
}

const passing = new Set([408, 429, 500, 502, 503, 504])

function retryAfterMs(status: number, header: string | null): number | null {
  if (!passing.has(status)) return null
  const seconds = Number(header ?? '0')
  return Number.isFinite(seconds) && seconds > 0 ? seconds * 1000 : 0
}

function networkError(cause: unknown, url: URL): HubError {
  const code = cause instanceof Error && 'code' in cause ? String(cause.code) : 'unknown'
  const timeout = /TIMEOUT|ETIMEDOUT/.test(code)
  return new HubError(`${url.host} ${timeout ? "didn't answer in time" : "can't be reached"}`, {
    fault: timeout ? 'timeout' : 'unreachable',
    retryAfterMs: 0,
    cause,
  })
}
