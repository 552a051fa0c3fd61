/**
 * All leases of this daemon: opening by id (a repeated request is the same lease), expiry, and reconciliation with
 * the engine after a restart. Invariant: a container that carries our instance label and no live lease is removed;
 * a container that doesn't carry it is never touched.
 */
import { randomBytes } from 'node:crypto'
import { instanceLabel, isExport, leaseOfLabels } from '../engine/labels.ts'
import { LeaseError } from '../errors.ts'
import type { LeaseRequest, ModelGatewaySpec } from '../protocol/lease.ts'
import type { LeaseRecord } from './journal.ts'
import type { LeaseDeps } from './lease-deps.ts'
import type { Lease } from './lease.ts'
import { adoptLease, openLease } from './open-lease.ts'
import { openModel } from './open-model.ts'

const reapEveryMs = 5000
/** What the engine was still making for the last daemon when this one looked is there by then. */
const sweepEveryMs = 60_000
const adoptable = new Set(['ready', 'frozen'])
/** Whoever asks for one of the last closed leases is told why it is closed. */
const mostRemembered = 1000

export class Leases implements AsyncDisposable {
  readonly #deps: LeaseDeps
  readonly #leases = new Map<string, Lease>()
  readonly #opening = new Map<string, Promise<Lease>>()
  readonly #ended = new Map<string, string>()
  readonly #reaper: NodeJS.Timeout
  #sweeper: NodeJS.Timeout | undefined
  #closed = false

  constructor(deps: Omit<LeaseDeps, 'findLease' | 'getLease'>) {
    this.#deps = {
      ...deps,
      findLease: (id) => this.#leases.get(id),
      getLease: (id) => this.get(id),
    }
    this.#reaper = setInterval(() => this.#reap(), reapEveryMs)
    this.#reaper.unref()
  }

  async open(request: LeaseRequest, options: { signal: AbortSignal }): Promise<Lease> {
    if (this.#closed)
      throw new LeaseError('lease_refused', 'infra', 'the daemon is shutting down; try again later')
    const id = request.id ?? newLeaseId()
    const known = this.#opening.get(id)
    if (known !== undefined) return known
    const existing = this.#leases.get(id)
    if (existing !== undefined) return existing
    const opening = openLease(id, request, this.#deps, {
      ...options,
      onAdmitted: (lease) => this.#leases.set(id, lease),
    })
    this.#opening.set(id, opening)
    try {
      return await opening
    } finally {
      this.#opening.delete(id)
      if (this.#leases.get(id)?.state === 'closed') this.#leases.delete(id)
    }
  }

  get(id: string): Lease {
    const lease = this.#leases.get(id)
    if (lease === undefined) {
      const why = this.#ended.get(id)
      throw new LeaseError(
        'lease_unknown',
        'caller',
        why === undefined
          ? `no open lease ${id}; \`closedbook lease list\` shows the open ones`
          : `lease ${id} is closed: ${why}`,
      )
    }
    return lease
  }

  #remember(id: string, why: string): void {
    this.#ended.set(id, why)
    const [oldest] = this.#ended.keys()
    if (this.#ended.size > mostRemembered && oldest !== undefined) this.#ended.delete(oldest)
  }

  find(id: string): Lease | undefined {
    return this.#leases.get(id)
  }

  list(): Lease[] {
    return [...this.#leases.values()].filter(({ state }) => state !== 'closed')
  }

  async close(id: string, reason: string): Promise<Lease | null> {
    const lease = this.#leases.get(id)
    if (lease === undefined) return null
    await this.#opening.get(id)?.catch(() => {})
    try {
      await lease.close(reason)
    } finally {
      // what is left of it belongs to no lease now, so the sweep removes it
      this.#leases.delete(id)
      this.#remember(id, reason)
    }
    return lease
  }

  /**
   * After a restart: every lease of the journal is adopted where its container still runs and it was ready, else
   * closed; every container of our instance without a lease is removed. What the sandbox tried meanwhile was
   * refused, for its listeners died with the last daemon.
   */
  async reconcile(): Promise<{ adopted: string[]; closed: string[]; removed: string[] }> {
    const { journal, engine, log } = this.#deps
    const report = { adopted: [] as string[], closed: [] as string[], removed: [] as string[] }
    const records = await journal.openRecords()
    await Promise.all(
      records.map(async (record) => {
        const why = this.#unfit(record)
        if (why === null) {
          try {
            this.#leases.set(record.lease, await adoptLease(record, this.#deps))
            report.adopted.push(record.lease)
            return
          } catch (error) {
            log.warn({ leaseId: record.lease, err: error }, 'lease.adopt-failed')
          }
        }
        report.closed.push(record.lease)
        const reason = why ?? 'could not be adopted after a restart of the daemon'
        this.#remember(record.lease, reason)
        if (record.container !== null) await engine.removeContainer(record.container)
        await journal.close({ ...record, state: 'closed', reason })
      }),
    )
    report.removed = await this.#removeUnowned(() => true)
    await this.#deps.ptys.endUnowned()
    log.info(report, 'leases.reconciled')
    this.#sweeper = setInterval(() => void this.#sweep(), sweepEveryMs).unref()
    return report
  }

  async #removeUnowned(
    choose: (container: { labels: Readonly<Record<string, string>> }) => boolean,
  ): Promise<string[]> {
    const { engine, instance } = this.#deps
    const removed: string[] = []
    for (const container of await engine.listContainers({ [instanceLabel]: instance })) {
      if (!choose(container)) continue
      const lease = this.#leases.get(leaseOfLabels(container.labels) ?? '')
      // One that is being created is not known by its id yet.
      if (lease !== undefined && [container.id, null].includes(lease.parts.container)) continue
      await engine.removeContainer(container.id)
      removed.push(container.id)
    }
    return removed
  }

  async #sweep(): Promise<void> {
    try {
      // An export under way is no lease's; one that a dead daemon left was removed at the start.
      const removed = await this.#removeUnowned(({ labels }) => !isExport(labels))
      if (removed.length > 0) this.#deps.log.warn({ removed }, 'leases.swept')
    } catch (error) {
      this.#deps.log.warn({ err: error }, 'leases.sweep-failed')
    }
  }

  /** For an adopted lease: keys are kept nowhere, so its owner brings the model again. */
  async supplyModel(id: string, model: ModelGatewaySpec): Promise<void> {
    await openModel(this.get(id), model, this.#deps)
  }

  #unfit(record: LeaseRecord): string | null {
    // Commands that it ran in its task's sandbox were lost with the daemon.
    if (record.request.execInto !== undefined)
      return 'the daemon was restarted, and an exec gateway does not outlive it'
    if (!adoptable.has(record.state)) return `the daemon was restarted while it was ${record.state}`
    if (Date.parse(record.expiresAt) <= Date.now()) return 'expired'
    return null
  }

  #reap(): void {
    for (const lease of this.#leases.values())
      if (lease.expiry.passed && lease.state !== 'closing')
        void this.close(lease.id, 'expired: nobody renewed it').catch((error: unknown) =>
          this.#deps.log.error({ leaseId: lease.id, err: error }, 'lease.reap-failed'),
        )
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#closed = true
    clearInterval(this.#reaper)
    clearInterval(this.#sweeper)
    await Promise.allSettled(this.#opening.values())
    await Promise.allSettled(
      [...this.#leases.keys()].map((id) => this.close(id, 'the daemon was shut down')),
    )
  }
}

/** Opaque: tells nothing about task, trial or order. */
const newLeaseId = (): string => randomBytes(8).toString('hex')
