/**
 * Holds a lease to its bytes: of each tunnel or request, and of all together. Sockets count by themselves and are looked
 * at every tenth of a second, and only where there is a limit, so that nothing of ours runs for each chunk. What passes
 * between two looks is over the limit, and counted.
 */
import type { Socket } from 'node:net'
import type { EgressLimits } from './limits.ts'

const lookMs = 100

interface Metered {
  readonly upstream: Pick<Socket, 'bytesRead' | 'bytesWritten'>
  readonly stop: (why: string) => void
}

export class ByteMeter {
  readonly #limits: Pick<EgressLimits, 'connectionBytes' | 'totalBytes'>
  readonly #live = new Set<Metered>()
  #ended: number
  #timer: NodeJS.Timeout | undefined

  /** `spent`: by earlier connections of the lease, before the daemon was restarted. */
  constructor(limits: Pick<EgressLimits, 'connectionBytes' | 'totalBytes'>, spent = 0) {
    this.#limits = limits
    this.#ended = spent
  }

  get spent(): number {
    let total = this.#ended
    for (const { upstream } of this.#live) total += bytesOf(upstream)
    return total
  }

  /** Nothing more may be opened. */
  get full(): boolean {
    const { totalBytes } = this.#limits
    return totalBytes !== undefined && this.spent >= totalBytes
  }

  /** Counts `upstream` until the pass is given back; `stop` is told when a limit is reached. */
  watch(upstream: Metered['upstream'], stop: Metered['stop']): Disposable {
    const metered = { upstream, stop }
    this.#live.add(metered)
    const limited = Object.values(this.#limits).some((limit) => limit !== undefined)
    if (limited) this.#timer ??= setInterval(() => this.#look(), lookMs)
    return {
      [Symbol.dispose]: () => {
        if (!this.#live.delete(metered)) return
        this.#ended += bytesOf(upstream)
        if (this.#live.size > 0) return
        clearInterval(this.#timer)
        this.#timer = undefined
      },
    }
  }

  #look(): void {
    const { connectionBytes = Infinity } = this.#limits
    const { full } = this
    for (const { upstream, stop } of this.#live) {
      if (full) stop('byte limit of the lease reached')
      else if (bytesOf(upstream) > connectionBytes) stop('byte limit reached')
    }
  }
}

const bytesOf = ({ bytesRead, bytesWritten }: Metered['upstream']): number =>
  bytesRead + bytesWritten
