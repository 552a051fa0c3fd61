/** Caps of one lease's egress: how many at once, for how long, and how much. */
import type { Limits } from '../../policy/limits.ts'

/** Times in ms; `undefined` means no limit. */
export interface EgressLimits {
  /** The whole head of a request must be there by then. */
  readonly headersTimeoutMs: number
  /** The whole ClientHello must be there by then. */
  readonly helloTimeoutMs: number
  readonly helloMaxBytes: number
  readonly resolveTimeoutMs: number
  /** For all the addresses of a name together. */
  readonly dialTimeoutMs: number
  /** A tunnel or request without a byte in either direction. */
  readonly idleTimeoutMs: number
  readonly lifetimeMs: number
  /** Bytes of one tunnel or request, both directions together. */
  readonly connectionBytes: number | undefined
  /** Bytes of all of them, those that have ended too. */
  readonly totalBytes: number | undefined
  /** Tunnels and requests under way at once; one more is refused with 429. */
  readonly concurrent: number
  /** Sockets from the sandbox open at once, idle ones included; one more is closed. */
  readonly sockets: number
}

export const defaultLimits: EgressLimits = {
  headersTimeoutMs: 15_000,
  helloTimeoutMs: 5_000,
  helloMaxBytes: 16 * 1024,
  resolveTimeoutMs: 5_000,
  dialTimeoutMs: 10_000,
  idleTimeoutMs: 10 * 60_000,
  lifetimeMs: 8 * 3_600_000,
  connectionBytes: undefined,
  totalBytes: undefined,
  concurrent: 64,
  sockets: 512,
}

/** What a policy says of them; what it leaves out stays as it was. */
export function limitsOf(limits: Limits = {}): Partial<EgressLimits> {
  const { connections, sockets, connectionBytes, maxBytes, idleSeconds, lifetimeSeconds } = limits
  const given: [keyof EgressLimits, number | undefined][] = [
    ['concurrent', connections],
    ['sockets', sockets],
    ['connectionBytes', connectionBytes],
    ['totalBytes', maxBytes],
    ['idleTimeoutMs', idleSeconds === undefined ? undefined : idleSeconds * 1000],
    ['lifetimeMs', lifetimeSeconds === undefined ? undefined : lifetimeSeconds * 1000],
  ]
  return Object.fromEntries(given.filter(([, value]) => value !== undefined))
}

/** Counts what is under way; the daemon may give all leases a second one to share. */
export class Gate {
  #inside = 0
  readonly #max: number
  readonly #outer: Gate | undefined

  constructor(max: number, outer?: Gate) {
    this.#max = max
    this.#outer = outer
  }

  get inside(): number {
    return this.#inside
  }

  /** null when it is full; else the pass, which may be given back twice. */
  enter(): Disposable | null {
    if (this.#inside >= this.#max) return null
    const outer = this.#outer?.enter()
    if (outer === null) return null
    this.#inside += 1
    let open = true
    return {
      [Symbol.dispose]: () => {
        if (!open) return
        open = false
        this.#inside -= 1
        outer?.[Symbol.dispose]()
      },
    }
  }
}
