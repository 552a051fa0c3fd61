/** The requests of one lease, each from its parse to its close in the audit. */
import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Reason } from '../../../policy/decision.ts'
import { parseHubRequest, type HubRoute } from '../../../policy/hugging-face-route.ts'
import { decideHubRequest, fileAllowed, type Pin } from '../../../policy/hugging-face.ts'
import { printable } from '../../../policy/printable.ts'
import { readBody } from './body.ts'
import type { HuggingFaceGatewayDeps } from './deps.ts'
import { faultOf } from './fault.ts'
import { infoOf, pathsIn, pathsInfoOf, refsOf, treeOf } from './listing.ts'
import { Reply } from './reply.ts'
import { serveFile, type FileDeps } from './serve-file.ts'
import { Slots } from './slots.ts'
import type { Tree } from './tree.ts'

/** Fetches from the Hub for one lease at a time: no lease takes the line for itself. */
const fetchesAtOnce = 8

type VisitDeps = Pick<HuggingFaceGatewayDeps, 'audit' | 'hub' | 'cache' | 'onFault'>
type RepoRoute = Extract<HubRoute, { repo: string }>

interface Visit {
  readonly request: IncomingMessage
  readonly reply: Reply
  readonly connection: number
  /** Aborts when the client goes or the gateway shuts. */
  readonly signal: AbortSignal
  /** What became of it, for the close: e.g. `200 hit`. */
  outcome: string
  reason: Reason | null
}

export class Visits {
  readonly #pins: readonly Pin[]
  readonly #deps: VisitDeps
  readonly #shut: AbortSignal
  readonly #file: FileDeps
  /** Bytes sent, or promised, of each pinned repository. */
  readonly #spent = new Map<Pin, number>()
  /** Filtered once: a lease's policy never changes. */
  readonly #trees = new WeakMap<Pin, { whole: Tree; open: Tree }>()
  readonly #underWay = new Set<Promise<void>>()

  constructor(pins: readonly Pin[], deps: VisitDeps, shut: AbortSignal) {
    this.#pins = pins
    this.#deps = deps
    this.#shut = shut
    this.#file = {
      hub: deps.hub,
      cache: deps.cache,
      slots: new Slots(fetchesAtOnce),
      reserve: (pin, bytes) => this.#reserve(pin, bytes),
      flushed: () => deps.audit.flush(),
    }
  }

  /** Never rejects. */
  serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const visit = this.#serve(request, response).finally(() => this.#underWay.delete(visit))
    this.#underWay.add(visit)
    return visit
  }

  /** Resolves when no request is under way. */
  async settled(): Promise<void> {
    await Promise.all(this.#underWay)
  }

  record(action: 'allow' | 'deny', reason: Reason, detail: string, connection?: number): void {
    this.#deps.audit.append({
      kind: 'decision',
      ...this.#where,
      action,
      reason,
      count: 1,
      detail: printable(detail, 1024),
      ...(connection === undefined ? {} : { connection }),
    })
  }

  get #where(): { protocol: 'hf'; host: string; port: number } {
    const { hostname, port, protocol } = this.#deps.hub.endpoint
    return {
      protocol: 'hf',
      host: hostname,
      port: port === '' ? (protocol === 'https:' ? 443 : 80) : Number(port),
    }
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const gone = new AbortController()
    response.once('close', () => gone.abort(new Error('the client is gone')))
    const { method = '', url = '' } = request
    const visit: Visit = {
      request,
      reply: new Reply(response, method),
      connection: this.#deps.audit.nextConnection(),
      signal: AbortSignal.any([gone.signal, this.#shut]),
      outcome: '',
      reason: null,
    }
    const detail = `${method} ${url}`
    try {
      const asked = parseHubRequest(method, url)
      const decision = decideHubRequest(this.#pins, asked)
      if (this.#shut.aborted)
        await this.#refuse(visit, 'gateway_shut', 'the agent phase is over', detail)
      else if (decision.action === 'deny')
        await this.#refuse(visit, decision.reason, decision.message, detail)
      else {
        this.record('allow', decision.reason, detail, visit.connection)
        await this.#answer(asked.route, decision.pin, visit)
        this.#close(visit)
      }
    } catch (error) {
      // The audit or our own code failed: closed, with nothing said of why.
      this.#deps.onFault?.(error)
      if (!visit.reply.started)
        visit.reply.error(500, 'the gateway failed', { reason: 'internal_error' })
      else response.destroy()
    }
  }

  async #refuse(visit: Visit, reason: Reason, message: string, detail: string): Promise<void> {
    this.record('deny', reason, `${detail}: ${message}`, visit.connection)
    const whole = (await readBody(visit.request)) !== null
    visit.reply.error(reason === 'bad_request' ? 400 : 403, message, {
      reason,
      warn: true,
      headers: whole ? {} : { connection: 'close' },
    })
  }

  /** Faults of the way out end here, in an answer and a reason. */
  async #answer(route: HubRoute, pin: Pin | null, visit: Visit): Promise<void> {
    const { reply } = visit
    try {
      if (route.kind === 'noise') await this.#noise(route.name, visit)
      else if (pin === null || !('repo' in route)) throw new Error('allowed without a pin')
      else await this.#repo(route, pin, visit)
    } catch (error) {
      const fault = visit.signal.aborted ? null : faultOf(error)
      visit.reason = fault?.reason ?? null
      if (fault?.reason === 'internal_error') this.#deps.onFault?.(error)
      visit.outcome = fault === null ? 'broken off' : fault.message
      if (reply.started || fault === null) reply.response.destroy()
      else {
        const { status, message, ...rest } = fault
        const headers = pin === null ? {} : { 'x-repo-commit': pin.commit }
        reply.error(status, message, {
          code: rest.code,
          ...(rest.reason === null ? {} : { reason: rest.reason }),
          headers: {
            ...headers,
            ...(rest.retryAfterSeconds === null ? {} : { 'retry-after': rest.retryAfterSeconds }),
          },
        })
      }
    }
  }

  async #noise(name: Extract<HubRoute, { kind: 'noise' }>['name'], visit: Visit): Promise<void> {
    await readBody(visit.request)
    await this.#deps.audit.flush()
    // Truthy for the client, which then keeps it for a day instead of asking in every process.
    if (name === 'agent-harnesses') visit.reply.json(200, { standardEnvVars: [], harnesses: {} })
    else if (name === 'telemetry') visit.reply.empty(200)
    else visit.reply.error(401, 'there is no token in this sandbox, and none is needed')
  }

  async #repo(route: RepoRoute, pin: Pin, visit: Visit): Promise<void> {
    const { request, reply, signal } = visit
    if (route.kind === 'refs') return this.#json(visit, pin, refsOf(pin))
    const body = route.kind === 'paths-info' ? await readBody(request) : ''
    const tree = await this.#tree(pin, signal)
    if (route.kind === 'file') {
      const file = tree.file(route.path)
      if (file === undefined) return this.#absent(visit, pin, route.path)
      const served = await serveFile(file, pin, request, reply, this.#file, signal)
      if ('origin' in served) visit.outcome = served.origin ?? ''
      else this.#tooMuch(visit, pin)
      return
    }
    if (route.kind === 'info') {
      const query = new URL(request.url ?? '', 'http://localhost').searchParams
      return this.#json(visit, pin, infoOf(pin, tree, query))
    }
    if (route.kind === 'tree') {
      const listed = treeOf(tree, route)
      return listed === null ? this.#absent(visit, pin, route.path) : this.#json(visit, pin, listed)
    }
    const paths = body === null ? null : pathsIn(request.headers['content-type'] ?? '', body)
    if (paths === null) {
      reply.error(400, 'the body must name paths, as a form or as JSON', { reason: 'bad_request' })
      return
    }
    return this.#json(visit, pin, pathsInfoOf(tree, paths))
  }

  async #json(visit: Visit, pin: Pin, value: object): Promise<void> {
    await this.#deps.audit.flush()
    visit.reply.json(200, value, { 'x-repo-commit': pin.commit })
  }

  /** With the commit, clients remember that an optional file isn't there. */
  async #absent(visit: Visit, pin: Pin, path: string): Promise<void> {
    await this.#deps.audit.flush()
    visit.reply.error(404, `${path} is not in ${pin.entry.repo} at ${pin.commit}`, {
      code: 'EntryNotFound',
      headers: { 'x-repo-commit': pin.commit },
    })
  }

  #tooMuch(visit: Visit, { entry }: Pin): void {
    visit.reason = 'limit_bytes'
    visit.reply.error(
      403,
      `this would be more than the ${entry.maxBytes} bytes of ${entry.repo} that this sandbox may be sent`,
      { reason: 'limit_bytes', warn: true },
    )
  }

  async #tree(pin: Pin, signal: AbortSignal): Promise<Tree> {
    const { entry, commit } = pin
    const whole = await this.#deps.hub.tree({ repo: entry.repo, commit }, signal)
    const known = this.#trees.get(pin)
    if (known?.whole === whole) return known.open
    const open = whole.filtered((path) => fileAllowed(entry, path))
    this.#trees.set(pin, { whole, open })
    return open
  }

  /** What a client broke off counts as sent: where the kernel stopped can't be known. */
  #reserve(pin: Pin, bytes: number): boolean {
    const { maxBytes } = pin.entry
    const spent = (this.#spent.get(pin) ?? 0) + bytes
    if (maxBytes !== undefined && spent > maxBytes) return false
    this.#spent.set(pin, spent)
    return true
  }

  #close(visit: Visit): void {
    const { reply, reason, connection, outcome } = visit
    this.#deps.audit.append({
      kind: 'close',
      ...this.#where,
      action: 'none',
      reason,
      connection,
      bytesUp: 0,
      bytesDown: reply.bytes,
      detail: printable(`${reply.status} ${outcome}`.trim(), 1024),
    })
  }
}
