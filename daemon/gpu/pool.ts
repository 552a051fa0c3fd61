/**
 * All GPUs of the host and who has them. Invariant: a GPU that is `leased` has one lease, and only its return changes
 * that; the choice and the mark are one step that nothing can come between. Every grant and every return is preceded by
 * a look at the real thing. After a restart the leases that are adopted bring their GPUs with them.
 */
import { setTimeout as delay } from 'node:timers/promises'
import type { DaemonConfig } from '../config.ts'
import type { Engine } from '../engine/engine.ts'
import { instanceLabel, leaseOfLabels } from '../engine/labels.ts'
import { HostError, LeaseError } from '../errors.ts'
import type { Logger } from '../logger.ts'
import type { GpuReport, GpuState } from '../protocol/gpu.ts'
import { allocate } from './allocate.ts'
import type { Accessor } from './device-access.ts'
import { holderOf, otherHolders, type Holder } from './holders.ts'
import { newEntry, told, viewOf, type Entry } from './entry.ts'
import { GpuFault } from './gpu-fault.ts'
import { GpuGrant, type GrantedGpu, type GrantOwner } from './grant.ts'
import { faultOf, judge, type Unfit } from './health.ts'
import { takeInventory, type GpuReading } from './inventory.ts'
import { isFatal, KernelLog } from './kernel-log.ts'
import { NextRun } from './next-run.ts'
import { Smi } from './smi.ts'
import { findProgram, findSupport, type Support } from './toolkit.ts'

const lookEveryMs = 30_000
const settleFirstMs = 250
const settleMostMs = 5000

export interface GpuPoolDeps {
  readonly engine: Engine
  readonly instance: string
  readonly accessor: Omit<Accessor, 'timeoutMs'>
  readonly log: Logger
}

export class GpuPool implements GrantOwner, AsyncDisposable {
  readonly accessor: Accessor
  readonly startTimeoutMs: number
  readonly #config: DaemonConfig['gpu']
  readonly #deps: GpuPoolDeps
  readonly #smi: Smi | null
  readonly #kernelLog: KernelLog
  readonly #entries = new Map<string, Entry>()
  readonly #ended = new AbortController()
  readonly #timer: NodeJS.Timeout
  #holders: readonly Holder[] = []
  #support: Support = { mode: null, toolkit: null, refusal: null }
  #fault: string | null = null
  readonly #looks = new NextRun(() => this.#look())
  readonly #supports = new NextRun(() => this.#findSupport())
  #clock = 0

  private constructor(config: DaemonConfig['gpu'], deps: GpuPoolDeps) {
    this.#config = config
    this.#deps = deps
    this.startTimeoutMs = config.startTimeoutMs
    this.accessor = { ...deps.accessor, timeoutMs: config.smiTimeoutMs }
    const program = config.lend ? (config.smi ?? findProgram('nvidia-smi')) : null
    this.#smi = program === null ? null : new Smi(program, { timeoutMs: config.smiTimeoutMs })
    this.#kernelLog = new KernelLog(program === null ? '/dev/null' : config.kernelLog)
    this.#timer = setInterval(() => this.#lookIfDue(), lookEveryMs)
    this.#timer.unref()
  }

  static async open(config: DaemonConfig['gpu'], deps: GpuPoolDeps): Promise<GpuPool> {
    const pool = new GpuPool(config, deps)
    if (pool.#smi !== null) {
      await pool.look()
      await pool.#supports.next()
      deps.log.info({ ...pool.#support, gpus: pool.#entries.size }, 'gpu.inventory')
    }
    return pool
  }

  report(): GpuReport {
    const { mode, toolkit, refusal } = this.#support
    const gpus = [...this.#entries.values()].map((entry) => viewOf(entry))
    return {
      smi: this.#smi?.path ?? null,
      mode,
      toolkit,
      refusal: refusal ?? (gpus.length === 0 ? this.#fault : null),
      gpus: gpus.toSorted((a, b) => a.busId.localeCompare(b.busId)),
    }
  }

  /** Exclusive until the grant is disposed. Throws `lease_refused`, `lease_no_capacity` or `gpu_unavailable`. */
  async grant(lease: string, count: number, options: { signal: AbortSignal }): Promise<GpuGrant> {
    if (this.#smi !== null) {
      await Promise.all([this.look(), this.#supports.next()])
      options.signal.throwIfAborted()
    }
    const { mode, refusal } = this.#support
    const entries = [...this.#entries.values()]
    if (entries.length === 0) throw this.#none()
    if (mode === null || refusal !== null)
      throw refused(`no GPU is lent here: ${refusal ?? 'the engine has no way to pass one'}`)
    const allocation = allocate(
      entries.map((entry) => ({ ...entry, busId: entry.reading?.busId ?? '' })),
      count,
    )
    switch (allocation.kind) {
      case 'granted': {
        const chosen = allocation.uuids.map((uuid) => this.#entry(uuid))
        for (const entry of chosen) this.#set(entry, 'leased', null, lease)
        return this.#newGrant(lease, chosen, mode)
      }
      case 'busy':
        throw new LeaseError(
          'lease_no_capacity',
          'operator',
          `${count} GPUs are asked for, and leases hold them: ${told(entries)}; try again when one has closed`,
        )
      case 'unavailable':
        throw new HostError(
          'gpu_unavailable',
          'infra',
          `${count} GPUs are asked for, and too few are fit to be lent: ${told(entries)}; see \`closedbook gpus\``,
        )
      case 'never':
        throw refused(
          `${count} GPUs are asked for, and this host has ${entries.length}; ask for fewer or use a larger host`,
        )
    }
  }

  /** What an adopted lease had. Throws when that is not what its container was given. */
  adopt(
    lease: string,
    had: { readonly gpus: readonly GrantedGpu[]; readonly nodes: readonly string[] },
    deviceIds: readonly string[],
  ): GpuGrant {
    const given = deviceIds.map((id) => id.replace(/^nvidia\.com\/gpu=/, '')).toSorted()
    const journalled = had.gpus.map(({ uuid }) => uuid).toSorted()
    if (given.join() !== journalled.join())
      throw new Error(
        `its container has the GPUs [${given.join()}], the journal says [${journalled.join()}]`,
      )
    const entries = had.gpus.map((gpu) => this.#entries.get(gpu.uuid) ?? this.#add(gpu, null))
    const taken = entries.find((entry) => entry.state === 'leased')
    if (taken !== undefined) throw new Error(`lease ${taken.lease} has ${taken.uuid} too`)
    for (const entry of entries) this.#set(entry, 'leased', entry.fault, lease)
    const mode = deviceIds.some((id) => id.startsWith('nvidia.com/')) ? 'cdi' : 'nvidia'
    return this.#newGrant(lease, entries, mode, had.nodes)
  }

  async faults(uuids: readonly string[]): Promise<{ uuid: string; fault: string }[]> {
    await this.look()
    return uuids.flatMap((uuid) => {
      const { xid, fault } = this.#entry(uuid)
      const found = xid ?? fault
      return found === null ? [] : [{ uuid, fault: found }]
    })
  }

  giveBack(lease: string, uuids: readonly string[], suspect: string | null): void {
    const entries = uuids.map((uuid) => this.#entry(uuid))
    const ids = { leaseId: lease, gpus: uuids }
    if (suspect !== null) {
      for (const entry of entries)
        this.#settleAs(entry, { state: 'quarantined', reason: `after lease ${lease}: ${suspect}` })
      return
    }
    for (const entry of entries) entry.returned = true
    for (const entry of entries)
      this.#set(entry, 'leased', 'the lease has closed; waiting until its memory is empty', lease)
    this.#settle(entries).catch((error: unknown) => {
      if (!this.#ended.signal.aborted)
        this.#deps.log.error({ ...ids, err: error }, 'gpu.settle-failed')
    })
  }

  /** Looks at every GPU now; `force` also takes back quarantined ones that are found well before their time. */
  async probe(options: { force: boolean }): Promise<void> {
    if (this.#smi === null) return
    if (options.force)
      for (const entry of this.#entries.values()) {
        entry.heldUntil = 0
        if (entry.state !== 'leased') entry.xid = null
      }
    await this.look()
    await this.#supports.next()
  }

  look(): Promise<void> {
    return this.#looks.next()
  }

  async #look(): Promise<void> {
    const smi = this.#smi
    if (smi === null) return
    const began = ++this.#clock
    const [inventory, holders] = await Promise.all([
      takeInventory(smi, [...this.#entries.keys()]).catch((error: unknown) => {
        if (error instanceof GpuFault) return error
        throw error
      }),
      otherHolders(this.#deps.engine, this.#isOwners, this.#config.monitors),
    ])
    this.#holders = holders
    this.#readKernelLog()
    this.#fault = inventory instanceof GpuFault ? inventory.message : null
    if (inventory instanceof GpuFault) return
    for (const gpu of inventory.gpus) {
      const entry = this.#entries.get(gpu.uuid) ?? this.#add(gpu, gpu)
      entry.reading = gpu
      entry.seen = began
      entry.probedAt = new Date().toISOString()
      entry.fault = faultOf(gpu)
      if (entry.changed <= began) this.#apply(entry, this.#unfit(entry, gpu))
    }
    for (const [uuid, { message }] of inventory.faults) {
      const entry = this.#entry(uuid)
      entry.fault = message
      entry.seen = began
      entry.probedAt = new Date().toISOString()
      if (entry.changed <= began) this.#apply(entry, { state: 'quarantined', reason: message })
    }
  }

  /** Whether a container with these labels is the one of a lease that has its GPUs now. */
  readonly #isOwners = (labels: Readonly<Record<string, string>>): boolean =>
    labels[instanceLabel] === this.#deps.instance &&
    [...this.#entries.values()].some(
      ({ lease, returned }) => lease !== null && !returned && lease === leaseOfLabels(labels),
    )

  #unfit(entry: Entry, gpu: GpuReading): Unfit | null {
    if (entry.xid !== null) return { state: 'quarantined', reason: entry.xid }
    const holder = holderOf(gpu.uuid, this.#holders)
    return (
      judge(gpu, this.#config) ??
      (holder === null
        ? null
        : {
            state: 'dirty',
            reason: `container ${holder.name}, which is of no open lease, has it; remove it, or list it in gpu.monitors if it only watches`,
          })
    )
  }

  #apply(entry: Entry, unfit: Unfit | null): void {
    if (entry.state === 'leased') {
      if (!entry.returned) entry.reason = entry.xid ?? entry.fault
      return
    }
    const held = entry.state === 'quarantined' && Date.now() < entry.heldUntil
    // A fault that is seen again holds it for the whole time again.
    if (held && unfit?.state !== 'quarantined') return
    this.#settleAs(entry, unfit)
  }

  #settleAs(entry: Entry, unfit: Unfit | null): void {
    if (unfit === null) return this.#set(entry, 'free', null, null)
    if (unfit.state === 'quarantined') {
      entry.heldUntil = Date.now() + this.#config.quarantineSeconds * 1000
      entry.xid = null
    }
    this.#set(entry, unfit.state, unfit.reason, null)
  }

  /** A returned GPU is lent again when it is empty; one that isn't in time is dirty, and looked at again and again. */
  async #settle(entries: readonly Entry[]): Promise<void> {
    const deadline = performance.now() + this.#config.releaseTimeoutMs
    const { signal } = this.#ended
    let waiting = entries
    for (let pauseMs = settleFirstMs; ; pauseMs = Math.min(pauseMs * 2, settleMostMs)) {
      await this.look().catch((error: unknown) =>
        this.#deps.log.warn({ err: error }, 'gpu.look-failed'),
      )
      const late = performance.now() > deadline
      waiting = waiting.filter((entry) => {
        const unfit = this.#verdict(entry)
        if (unfit?.state === 'dirty' && !late) return true
        this.#settleAs(entry, unfit)
        return false
      })
      if (waiting.length === 0) return
      await delay(pauseMs, undefined, { signal, ref: false })
    }
  }

  #verdict(entry: Entry): Unfit | null {
    if (entry.seen < entry.changed)
      return { state: 'dirty', reason: 'it could not be looked at since its lease closed' }
    return entry.fault !== null || entry.reading === null
      ? { state: 'quarantined', reason: entry.xid ?? entry.fault ?? 'it could not be read' }
      : this.#unfit(entry, entry.reading)
  }

  #readKernelLog(): void {
    for (const xid of this.#kernelLog.news()) {
      const entry = [...this.#entries.values()].find(({ reading }) => reading?.busId === xid.busId)
      const { busId, text } = xid
      this.#deps.log.warn({ gpu: entry?.uuid, busId, leaseId: entry?.lease, text }, 'gpu.xid')
      if (entry === undefined || !isFatal(xid)) continue
      entry.xid = `the kernel's log has ${text}; reset it (nvidia-smi --gpu-reset) or restart the host`
    }
  }

  async #findSupport(): Promise<void> {
    const info = await this.#deps.engine.info()
    this.#support = await findSupport(this.#config, info, [...this.#entries.keys()])
  }

  #lookIfDue(): void {
    if (this.#smi === null) return
    const due = [...this.#entries.values()].some(
      ({ state, heldUntil }) =>
        state === 'dirty' || (state === 'quarantined' && Date.now() >= heldUntil),
    )
    if (due || this.#fault !== null)
      this.look().catch((error: unknown) => this.#deps.log.warn({ err: error }, 'gpu.look-failed'))
  }

  #add(gpu: GrantedGpu, reading: GpuReading | null): Entry {
    const entry = newEntry(gpu, reading)
    this.#entries.set(gpu.uuid, entry)
    return entry
  }

  #entry(uuid: string): Entry {
    const entry = this.#entries.get(uuid)
    if (entry === undefined) throw new Error(`no GPU ${uuid} in the pool`)
    return entry
  }

  #set(entry: Entry, state: GpuState, reason: string | null, lease: string | null): void {
    const before = entry.state
    if (lease === null) entry.returned = false
    entry.changed = ++this.#clock
    entry.reason = reason
    entry.lease = lease
    if (state === before) return
    entry.state = state
    entry.since = new Date().toISOString()
    const level = state === 'dirty' || state === 'quarantined' ? 'warn' : 'info'
    const facts = { gpu: entry.uuid, reason: reason ?? undefined, leaseId: lease ?? undefined }
    this.#deps.log[level](facts, `gpu.${state}`)
  }

  #newGrant(
    lease: string,
    entries: readonly Entry[],
    mode: 'nvidia' | 'cdi',
    nodes?: readonly string[],
  ): GpuGrant {
    const gpus = entries.map(({ uuid, name }) => ({ uuid, name }))
    return new GpuGrant(lease, gpus, mode, this, nodes)
  }

  #none(): LeaseError | HostError {
    if (this.#fault !== null)
      return new HostError(
        'gpu_unavailable',
        'infra',
        `no GPU can be lent: ${this.#fault}; repair the driver`,
      )
    const why = this.#config.lend
      ? 'nvidia-smi found none'
      : 'its configuration has gpu.lend = false'
    return refused(`this host lends no GPU: ${why}; run the task on a host that has one`)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    clearInterval(this.#timer)
    this.#ended.abort(new Error('the daemon ends'))
    this.#kernelLog[Symbol.dispose]()
  }
}

const refused = (message: string): LeaseError =>
  new LeaseError('lease_refused', 'operator', message)
