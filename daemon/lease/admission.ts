/**
 * Admission: what the host has, what the open leases hold, and whether one more fits. Memory is never promised
 * twice; CPUs may be shared by a stated factor, since a sandbox mostly waits for a model.
 */
import { LeaseError } from '../errors.ts'
import type { Resources } from '../protocol/lease.ts'

export interface Capacity {
  /** CPUs that there are: what one lease may have. */
  readonly hostCpus: number
  /** CPUs that are lent to all leases together. */
  readonly cpus: number
  readonly memoryBytes: number
  readonly leases: number
}

export class Admission {
  readonly #capacity: Capacity
  readonly #held = new Map<string, Resources>()

  constructor(capacity: Capacity) {
    this.#capacity = capacity
  }

  /** Throws `lease_no_capacity` (try again later) or `lease_refused` (it can never fit). */
  admit(lease: string, wanted: Resources): Disposable {
    const { hostCpus, cpus, memoryBytes, leases } = this.#capacity
    const mostCpus = Math.min(hostCpus, cpus)
    if (wanted.cpus > mostCpus || wanted.memoryBytes > memoryBytes)
      throw new LeaseError(
        'lease_refused',
        'operator',
        `the lease asks for ${wanted.cpus} CPUs and ${mebi(wanted.memoryBytes)} MiB, and this host lends a lease at most ` +
          `${mostCpus} CPUs and ${mebi(memoryBytes)} MiB; ask for less or use a larger host`,
      )
    const held = [...this.#held.values()]
    const usedCpus = held.reduce((sum, one) => sum + one.cpus, 0)
    const usedMemory = held.reduce((sum, one) => sum + one.memoryBytes, 0)
    if (
      held.length >= leases ||
      usedCpus + wanted.cpus > cpus ||
      usedMemory + wanted.memoryBytes > memoryBytes
    )
      throw new LeaseError(
        'lease_no_capacity',
        'operator',
        `${held.length} leases hold ${usedCpus} of ${cpus} CPUs and ${mebi(usedMemory)} of ${mebi(memoryBytes)} MiB; ` +
          'try again when one has closed',
      )
    this.#held.set(lease, wanted)
    return { [Symbol.dispose]: () => void this.#held.delete(lease) }
  }
}

const mebi = (bytes: number): number => Math.round(bytes / 1024 ** 2)
