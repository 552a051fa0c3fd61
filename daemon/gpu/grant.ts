/**
 * The GPUs of one lease, its alone from before its container is made until after that is gone. It knows three things
 * about them: that the container got these and no others, whether they were lost meanwhile, and that a start failed
 * because of them. Disposing it returns them; they are lent again when they are found empty.
 */
import { setTimeout as delay } from 'node:timers/promises'
import type { Cgroup } from '../engine/cgroup.ts'
import type { ContainerSpec } from '../engine/container-spec.ts'
import { ClosedbookError, HostError } from '../errors.ts'
import { gpuNodes, tryOpen, type Accessor } from './device-access.ts'
import { endStuckStart } from './stuck-start.ts'

const endPollMs = 200

export interface GrantedGpu {
  readonly uuid: string
  readonly name: string
}

/** What the pool does for its grants. */
export interface GrantOwner {
  readonly accessor: Accessor
  readonly startTimeoutMs: number
  /** Faults of these GPUs as they are now. */
  faults(uuids: readonly string[]): Promise<{ uuid: string; fault: string }[]>
  /** `suspect`: why they should not be lent again at once. */
  giveBack(lease: string, uuids: readonly string[], suspect: string | null): void
}

type Sandbox = { readonly pid: number; readonly cgroup: Cgroup | null }

export class GpuGrant implements AsyncDisposable {
  readonly lease: string
  readonly gpus: readonly GrantedGpu[]
  readonly #mode: NonNullable<ContainerSpec['gpus']>['mode']
  readonly #owner: GrantOwner
  #nodes: readonly string[]
  #suspect: string | null = null
  #returned = false

  constructor(
    lease: string,
    gpus: readonly GrantedGpu[],
    mode: NonNullable<ContainerSpec['gpus']>['mode'],
    owner: GrantOwner,
    /** Of an adopted lease: device numbers that an earlier daemon saw. */
    nodes: readonly string[] = [],
  ) {
    this.lease = lease
    this.gpus = gpus
    this.#mode = mode
    this.#owner = owner
    this.#nodes = nodes
  }

  get spec(): NonNullable<ContainerSpec['gpus']> {
    return { mode: this.#mode, uuids: this.#uuids }
  }

  /** `major:minor` of their nodes in the container; for the journal. */
  get nodes(): readonly string[] {
    return this.#nodes
  }

  get #uuids(): string[] {
    return this.gpus.map(({ uuid }) => uuid)
  }

  get #names(): string {
    return this.gpus.map(({ uuid, name }) => `${uuid} (${name})`).join(', ')
  }

  /**
   * Runs the start of the container under a limit of its own, for a hook can hang. A start that fails because of the
   * GPU throws `gpu_unavailable` with the engine's reason, and its GPUs are not lent again for a while.
   */
  async starting(
    container: string,
    signal: AbortSignal,
    start: () => Promise<void>,
  ): Promise<void> {
    const limitMs = this.#owner.startTimeoutMs
    const late = AbortSignal.timeout(limitMs)
    const given = AbortSignal.any([signal, late])
    let settled = false
    const started = start().finally(() => (settled = true))
    try {
      await Promise.race([started, aborted(given)])
    } catch (error) {
      // Again and again: a busy engine may not even have come to the hook.
      while (!settled) {
        await endStuckStart(container)
        await Promise.race([started.catch(() => {}), delay(endPollMs)])
      }
      signal.throwIfAborted()
      const why = late.aborted
        ? `the start did not end within ${limitMs / 1000} s; the GPU hook hangs`
        : gpuReason(error)
      if (why === null) throw error
      throw this.#unavailable(why, error)
    }
  }

  /** Before the agent: the container has these GPUs, no others, and may open them. */
  async confirm({ pid, cgroup }: Sandbox): Promise<void> {
    const nodes = await gpuNodes(pid)
    if (nodes.length !== this.gpus.length)
      throw this.#unavailable(
        `the container got ${nodes.length} GPU nodes instead of ${this.gpus.length}; look at the toolkit's configuration`,
      )
    this.#nodes = nodes
    const refused = await this.#refused(cgroup)
    if (refused !== null) throw this.#unavailable(`the container can't open it: ${refused}`)
  }

  /** null, or what became of them; what ran on them meanwhile can't be believed. */
  async lost(cgroup: Cgroup | null): Promise<string | null> {
    const [first] = await this.#owner.faults(this.#uuids)
    const refused = first === undefined ? await this.#refused(cgroup) : null
    if (first === undefined && refused === null) return null
    const why =
      first === undefined
        ? `${this.#names}: the container can't open it any more: ${refused}`
        : `${first.uuid}: ${first.fault}`
    if (first !== undefined) this.#suspect = first.fault
    return why
  }

  async #refused(cgroup: Cgroup | null): Promise<string | null> {
    const procs = cgroup?.devicesProcs ?? null
    if (procs === null) return 'its cgroup is gone'
    return tryOpen(this.#nodes, procs, this.#owner.accessor)
  }

  #unavailable(why: string, cause?: unknown): HostError {
    this.#suspect = why
    return new HostError('gpu_unavailable', 'infra', `${this.#names}: ${why}`, {
      ...(cause === undefined ? {} : { cause }),
    })
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#returned) return
    this.#returned = true
    this.#owner.giveBack(this.lease, this.#uuids, this.#suspect)
  }
}

/** What the engine says when the fault is the GPU's, the driver's or the toolkit's; null for any other. */
function gpuReason(error: unknown): string | null {
  if (!(error instanceof ClosedbookError) || error.code !== 'engine_refused') return null
  return /nvidia|nvml|cdi|device driver|gpu/i.test(error.message) ? error.message : null
}

function aborted(signal: AbortSignal): Promise<never> {
  return new Promise((_resolve, reject) => {
    const stop = (): void => reject(signal.reason as Error)
    if (signal.aborted) stop()
    else signal.addEventListener('abort', stop, { once: true })
  })
}
