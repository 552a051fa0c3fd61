/**
 * A lease that this process holds: opened under an id chosen beforehand, renewed while it is held, closed when it is
 * disposed. It is the Sandbox of collection and verification. A runner that dies stops renewing, and the daemon
 * closes the lease.
 */
import { Readable } from 'node:stream'
import type { DaemonClient } from '../../daemon/protocol/client.ts'
import { RemoteError } from '../../daemon/protocol/errors.ts'
import type { ExecEnd, ExecStartInput } from '../../daemon/protocol/exec-frames.ts'
import type { LeaseRequestInput, LeaseView } from '../../daemon/protocol/lease.ts'
import { ownLabel } from '../step-log.ts'
import type { ExecIo, Sandbox } from './sandbox.ts'

const ttlSeconds = 90
const renewEveryMs = 20_000
/** While the daemon is gone. */
const renewAgainMs = 500
const capacityWaitMs = 500
const closeLimitMs = 60_000

export class HeldLease implements Sandbox, AsyncDisposable {
  readonly lease: string
  readonly view: LeaseView
  readonly #client: DaemonClient
  readonly #model: LeaseRequestInput['model']
  #renewal: NodeJS.Timeout | undefined
  #closed = false

  private constructor(client: DaemonClient, view: LeaseView, model: LeaseRequestInput['model']) {
    this.lease = view.lease
    this.view = view
    this.#client = client
    this.#model = model
    this.#renewIn(renewEveryMs)
  }

  #renewIn(ms: number): void {
    if (this.#closed) return
    this.#renewal = setTimeout(() => void this.#renew(), ms)
    this.#renewal.unref()
  }

  /** Told that the daemon was gone and is there again: not later, a harness waits for its model. */
  lookNow(): void {
    clearTimeout(this.#renewal)
    void this.#renew()
  }

  /** One that fails shows at the next call that matters; a daemon that comes back is told of the model again. */
  async #renew(): Promise<void> {
    try {
      const { awaitsModel } = await this.#client.renew(this.lease)
      if (awaitsModel && this.#model !== undefined)
        await this.#client.supplyModel(this.lease, this.#model)
      this.#renewIn(renewEveryMs)
    } catch (error) {
      const refused = error instanceof RemoteError && error.blame === 'caller'
      this.#renewIn(refused ? renewEveryMs : renewAgainMs)
    }
  }

  /** Waits for room on the host; `onWait` is told the first time. */
  static async open(
    client: DaemonClient,
    request: LeaseRequestInput & { id: string },
    options: { signal: AbortSignal; onWait?: () => void },
  ): Promise<HeldLease> {
    let told = false
    while (true)
      try {
        const view = await client.openLease({ ...request, ttlSeconds }, { signal: options.signal })
        return new HeldLease(client, view, request.model)
      } catch (error) {
        if (!(error instanceof RemoteError) || error.code !== 'lease_no_capacity') throw error
        if (!told) options.onWait?.()
        told = true
        await delay(capacityWaitMs, options.signal)
      }
  }

  /**
   * Owned by who may be gone by the time that it is open (another part of the trial failed): then it is closed again. It
   * would be renewed for as long as this process lives, and nobody would know of it.
   */
  static async openFor(
    owner: AsyncDisposableStack,
    ...given: Parameters<typeof HeldLease.open>
  ): Promise<HeldLease> {
    const lease = await HeldLease.open(...given)
    if (!owner.disposed) return owner.use(lease)
    await lease[Symbol.asyncDispose]()
    throw new Error(`lease ${lease.lease} was opened for a trial that has ended`)
  }

  exec(start: ExecStartInput, io: ExecIo = {}): Promise<ExecEnd> {
    const { onStdout, onStderr, stdin, signal } = io
    // A command without a label is taken for a person's.
    return this.#client.exec(
      this.lease,
      { label: `${ownLabel}runner`, ...start },
      {
        ...(stdin === undefined
          ? {}
          : { stdin: Buffer.isBuffer(stdin) ? Readable.from([stdin]) : stdin }),
        ...(onStdout === undefined ? {} : { onStdout: (_offset, bytes) => onStdout(bytes) }),
        ...(onStderr === undefined ? {} : { onStderr: (_offset, bytes) => onStderr(bytes) }),
        ...(signal === undefined ? {} : { signal }),
      },
    )
  }

  readArchive(
    path: string,
    options: { signal?: AbortSignal } = {},
  ): ReturnType<Sandbox['readArchive']> {
    return this.#client.readArchive(this.lease, path, options)
  }

  writeArchive(path: string, tar: Readable, options: { signal?: AbortSignal } = {}): Promise<void> {
    return this.#client.writeArchive(this.lease, path, tar, options)
  }

  /** A daemon that is gone can't be told; its successor closes what nobody renews. */
  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#closed) return
    this.#closed = true
    clearTimeout(this.#renewal)
    await this.#client
      .closeLease(this.lease, 'no longer needed', { signal: AbortSignal.timeout(closeLimitMs) })
      .catch((error: unknown) => {
        if (!(error instanceof RemoteError)) throw error
      })
  }
}

export async function delay(ms: number, signal: AbortSignal): Promise<void> {
  await new Promise<void>((resolve, reject) => {
    signal.throwIfAborted()
    const timer = setTimeout(() => {
      signal.removeEventListener('abort', onAbort)
      resolve()
    }, ms)
    const onAbort = (): void => {
      clearTimeout(timer)
      reject(signal.reason as Error)
    }
    signal.addEventListener('abort', onAbort, { once: true })
  })
}
