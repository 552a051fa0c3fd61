/**
 * The Hugging Face gateway of one lease: plain HTTP on a listener in the sandbox's namespace, to be set as HF_ENDPOINT.
 * It reads the model artifacts that the policy pins and nothing else. Each request is parsed, decided and written to the
 * audit before any cache or upstream is asked; then it is answered from the repository's tree and the host's cache. No
 * answer leads a client elsewhere, and no token is ever on this side.
 *
 * Refusals are 403, which clients of the Hub don't repeat, with the reason in words. What passes for a moment is 429 with
 * a short Retry-After where a client repeats that (files), never 503, which it takes for the end.
 */
import { refuseMalformed } from '../malformed.ts'
import http from 'node:http'
import type net from 'node:net'
import type { Duplex } from 'node:stream'
import type { Reason } from '../../../policy/decision.ts'
import { fileAllowed, type HuggingFacePolicy, type Pin } from '../../../policy/hugging-face.ts'
import { LeaseError } from '../../errors.ts'
import type { HuggingFaceGatewayDeps } from './deps.ts'
import { freezePins, openingError } from './pins.ts'
import { objectOf } from './serve-file.ts'
import { Visits } from './visits.ts'

const maxConnections = 128
/** A connection without a byte in either direction. */
const idleMs = 10 * 60_000

export class HuggingFaceGateway implements AsyncDisposable {
  readonly pins: readonly Pin[]
  readonly #deps: HuggingFaceGatewayDeps
  readonly #visits: Visits
  readonly #http: http.Server
  readonly #sockets = new Set<Duplex>()
  readonly #stop = new AbortController()

  /** Throws LeaseError where a branch can't be frozen to a commit. */
  static async open(
    policy: HuggingFacePolicy,
    deps: HuggingFaceGatewayDeps,
  ): Promise<HuggingFaceGateway> {
    return new HuggingFaceGateway(await freezePins(policy, deps), deps)
  }

  private constructor(pins: readonly Pin[], deps: HuggingFaceGatewayDeps) {
    this.pins = pins
    this.#deps = deps
    this.#visits = new Visits(pins, deps, this.#stop.signal)
    this.#http = http.createServer({ keepAliveTimeout: 0, noDelay: true })
    // A client that has said all it will say (nc does) still gets its answer, however long that takes.
    Object.assign(this.#http, { httpAllowHalfOpen: true })
    this.#http.on('request', (request, response) => void this.#visits.serve(request, response))
    // A client that waits for leave to send its body gets its answer at once.
    this.#http.on('checkContinue', (request, response) => {
      void this.#visits.serve(request, response)
    })
    this.#http.on('clientError', this.#malformed)
    for (const event of ['connect', 'upgrade'])
      this.#http.on(event, (_request: unknown, socket: Duplex) =>
        this.#malformed(new Error(event), socket),
      )
    deps.server.on('connection', this.#accept)
    if (deps.signal.aborted) void this.shut()
    else deps.signal.addEventListener('abort', this.#aborted, { once: true })
  }

  /**
   * The path of an artifact that this gateway serves, for the proof. Throws LeaseError where a pinned repository can't
   * be read or has no file that the policy names: better before the work than in the middle of it.
   */
  async check(signal: AbortSignal): Promise<string> {
    const { hub } = this.#deps
    const [sample] = await Promise.all(
      this.pins.map(async ({ entry, commit }) => {
        const at = { repo: entry.repo, commit }
        try {
          const tree = await hub.tree(at, signal)
          const [file] = tree.filtered((path) => fileAllowed(entry, path)).files
          if (file === undefined)
            throw new LeaseError(
              'lease_refused',
              'operator',
              `${entry.repo} at ${commit} has no file that the policy names (${entry.files.join(' ')}); change files or revision`,
            )
          if (!this.#deps.cache.has(objectOf(file))) await hub.requireAccess(at, file.path, signal)
          const path = file.path.split('/').map(encodeURIComponent).join('/')
          return `/${entry.repo}/resolve/${commit}/${path}`
        } catch (error) {
          throw openingError(error, entry.repo)
        }
      }),
    )
    return sample ?? '/'
  }

  /**
   * From now on every request is refused with `gateway_shut`, and transfers under way are broken off. Resolves when all
   * of them are closed in the audit.
   */
  async shut(): Promise<void> {
    this.#stop.abort(new Error('the gateway is shut'))
    await this.#visits.settled()
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#deps.signal.removeEventListener('abort', this.#aborted)
    this.#deps.server.removeListener('connection', this.#accept)
    await this.shut()
    for (const socket of this.#sockets) socket.destroy()
  }

  readonly #aborted = (): void => void this.shut()

  readonly #accept = (socket: net.Socket): void => {
    if (this.#sockets.size >= maxConnections) {
      socket.destroy()
      this.#auditLost('limit_conns', `more than ${maxConnections} connections`)
      return
    }
    this.#sockets.add(socket)
    socket.once('close', () => this.#sockets.delete(socket))
    socket.allowHalfOpen = true
    socket.setNoDelay(true)
    socket.setTimeout(idleMs, () => socket.destroy())
    this.#http.emit('connection', socket)
  }

  readonly #malformed = (error: Error, socket: Duplex): void =>
    refuseMalformed(error, socket, (detail) => this.#auditLost('bad_request', detail))

  /** Of what is refused in any case, so that a broken audit changes nothing; its owner closes the lease for that. */
  #auditLost(reason: Reason, detail: string): void {
    try {
      this.#visits.record('deny', reason, detail)
    } catch {
      // See above.
    }
  }
}
