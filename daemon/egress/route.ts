/**
 * The way out for a name that policy allows: look it up once, vet every address, dial one of those that were vetted.
 * If a single address may not be dialed, none is. A name that policy denies never comes here, so it
 * makes no query. The socket that comes back has had no byte written and none read.
 */
import type { OnReadOpts, Socket } from 'node:net'
import { decide } from '../../policy/decide.ts'
import type { Reason } from '../../policy/decision.ts'
import type { Policy } from '../../policy/policy.ts'
import { Deadline } from './deadline.ts'
import type { EgressLimits } from './limits.ts'

export type Resolve = (
  host: string,
  options: { readonly signal: AbortSignal },
) => Promise<readonly string[]>

export interface DialTarget {
  readonly host: string
  readonly address: string
  readonly port: number
}

export interface DialOptions {
  readonly signal: AbortSignal
  /** Given to `net.connect` as it is: the socket is read through it and by nothing else. */
  readonly onread?: OnReadOpts
}

/** Resolves once the connection stands; the socket is paused. */
export type Dial = (target: DialTarget, options: DialOptions) => Promise<Socket>

export type Opened =
  | { readonly ok: true; readonly socket: Socket; readonly address: string }
  | {
      readonly ok: false
      /** `deny` if policy refused the addresses, `allow` if the way out failed. */
      readonly action: 'allow' | 'deny'
      readonly reason: Reason
      readonly detail: string
    }

export interface RouteOptions {
  readonly policy: Policy
  readonly resolve: Resolve
  readonly dial: Dial
  /** Whether an address may be dialed. */
  readonly vet: (address: string) => boolean
  readonly limits: Pick<EgressLimits, 'resolveTimeoutMs' | 'dialTimeoutMs'>
}

export class Route {
  readonly #options: RouteOptions

  constructor(options: RouteOptions) {
    this.#options = options
  }

  async open(host: string, port: number, options: DialOptions): Promise<Opened> {
    const { policy, resolve, vet, limits } = this.#options
    const { signal } = options
    let found: readonly string[]
    try {
      using limited = new Deadline(signal, limits.resolveTimeoutMs)
      found = await abortable(resolve(host, { signal: limited.signal }), limited.signal)
    } catch (error) {
      return { ok: false, action: 'allow', reason: 'dns_failed', detail: describe(error) }
    }
    const addresses = found.map((address) => ({ address, dialable: vet(address) }))
    const decision = decide(policy, { kind: 'addresses', host, addresses })
    if (decision.action === 'deny') {
      const detail = found.length === 0 ? 'no address' : `addresses ${found.join(' ')}`
      const action = decision.reason === 'dns_failed' ? 'allow' : 'deny'
      return { ok: false, action, reason: decision.reason, detail }
    }
    return this.#dialOne({ host, port }, found, options)
  }

  async #dialOne(
    target: { host: string; port: number },
    addresses: readonly string[],
    options: DialOptions,
  ): Promise<Opened> {
    using limited = new Deadline(options.signal, this.#options.limits.dialTimeoutMs)
    let detail = ''
    for (const address of addresses) {
      try {
        const socket = await this.#options.dial(
          { ...target, address },
          { ...options, signal: limited.signal },
        )
        return { ok: true, socket, address }
      } catch (error) {
        detail = `dial ${address}: ${describe(error)}`
        if (limited.signal.aborted) break
      }
    }
    const reason = limited.passed ? 'upstream_timeout' : 'upstream_bad'
    return { ok: false, action: 'allow', reason, detail }
  }
}

/** For what can't be cancelled itself. */
async function abortable<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  const aborted = Promise.withResolvers<never>()
  const onAbort = (): void => aborted.reject(signal.reason)
  if (signal.aborted) onAbort()
  signal.addEventListener('abort', onAbort, { once: true })
  try {
    return await Promise.race([work, aborted.promise])
  } finally {
    signal.removeEventListener('abort', onAbort)
  }
}

function describe(error: unknown): string {
  if (!(error instanceof Error)) return 'failed'
  return 'code' in error && typeof error.code === 'string' ? error.code : error.name
}
