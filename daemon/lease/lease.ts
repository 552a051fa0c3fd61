/**
 * A lease: one container, its sealed network, its gateways, and the records about them. It owns everything that it
 * opened and gives it back in reverse order, whatever went wrong; its state moves only along the table in state.ts,
 * and every move is in the journal before what it announces is done.
 */
import type { IncomingMessage } from 'node:http'
import type { Duplex, Readable } from 'node:stream'
import { policyHash } from '../../policy/hash.ts'
import type { FileChange, PathStat } from '../engine/engine.ts'
import { type ClosedbookError, EngineError, LeaseError } from '../errors.ts'
import { serveExec } from '../exec/serve-exec.ts'
import type { ProofOptions } from '../network/proof.ts'
import type {
  CanaryResult,
  EgressSummary,
  FreezeReport,
  LeaseRequest,
  LeaseState,
  LeaseView,
  Usage,
} from '../protocol/lease.ts'
import type { PtyOpen, PtyView } from '../protocol/pty.ts'
import type { LeaseRecord } from './journal.ts'
import type { LeaseDeps } from './lease-deps.ts'
import type { LeaseParts } from './lease-parts.ts'
import { Expiry } from './expiry.ts'
import { ExecRecorder } from './exec-recorder.ts'
import { freezeSandbox, killWork } from './freeze.ts'
import { LeasePtys } from './lease-ptys.ts'
import { LeaseProof } from './lease-proof.ts'
import { noUsage } from './no-usage.ts'
import { orGone } from './sandbox-end.ts'
import { move, requireState } from './state.ts'
import { upperFiles } from './upper-files.ts'

const closeDeadlineMs = 30_000
const closedExecsMs = 3_000

export class Lease {
  readonly id: string
  readonly request: LeaseRequest
  readonly parts: LeaseParts
  readonly createdAt: string
  readonly timingsMs: Record<string, number> = {}
  readonly proof: { before: CanaryResult[]; after: CanaryResult[] } = { before: [], after: [] }
  readonly #deps: LeaseDeps
  /** What it gives back when it closes; the opening phases add to it. */
  readonly owned: AsyncDisposableStack
  readonly #ended = new AbortController()
  readonly #waiting = new Set<() => void>()
  readonly #recorder: ExecRecorder
  readonly ptys: LeasePtys
  readonly proving: LeaseProof
  #state: LeaseState = 'admitted'
  #reason: string | null = null
  readonly expiry: Expiry
  #closing: Promise<void> | null = null
  #fatal: ClosedbookError | null = null
  #frozen: FreezeReport | null = null
  #freezing: Promise<FreezeReport> | null = null
  /** Aborts when the agent phase is over: commands end, and none is started any more. */
  readonly #workOver = new AbortController()
  #assisted = false

  constructor(
    id: string,
    request: LeaseRequest,
    parts: LeaseParts,
    deps: LeaseDeps,
    owned: AsyncDisposableStack,
    times?: { createdAt: string; expiresAt: string },
  ) {
    this.id = id
    this.request = request
    this.parts = parts
    this.#deps = deps
    this.owned = owned
    this.createdAt = times?.createdAt ?? new Date().toISOString()
    this.expiry = new Expiry(request.ttlSeconds, times?.expiresAt)
    // A sandbox whose attempts can't be recorded isn't a closed book.
    void parts.audit.failed.then((error) => this.#fail(error))
    void parts.events.failed.then((error) => this.#fail(error))
    this.#recorder = new ExecRecorder(parts.events, () => void this.#countSoon())
    this.ptys = new LeasePtys({
      ...{ lease: id, trial: request.trial ?? null, ptys: deps.ptys, parts },
      recorder: this.#recorder,
      onPerson: () => this.#assist(),
    })
    this.proving = new LeaseProof({
      ...{ engine: deps.engine, tools: deps.tools, parts, ended: this.#ended.signal },
      container: () => this.#container('prove'),
    })
    // Given back before the records are: the ends of commands that the closing killed belong to them.
    owned.defer(async () => void (await this.#recorder.idle(closedExecsMs)))
  }

  get state(): LeaseState {
    return this.#state
  }

  /** Aborts when the lease begins to close. */
  get ended(): AbortSignal {
    return this.#ended.signal
  }

  get activeExecs(): number {
    return this.#recorder.active
  }

  view(): LeaseView {
    return {
      lease: this.id,
      state: this.#state,
      image: this.request.image,
      network: this.request.network,
      owner: this.request.owner,
      trial: this.request.trial ?? null,
      policyHash: policyHash(this.request.policy),
      createdAt: this.createdAt,
      expiresAt: this.expiry.at,
      reason: this.#reason,
      awaitsModel: this.parts.modelListener !== null && this.parts.model === null,
      proof: this.proof,
      resources: this.request.resources,
      gpus: [...(this.parts.gpus?.gpus ?? [])],
      ...(this.request.execInto === undefined ? {} : { execInto: this.request.execInto }),
      assisted: this.#assisted,
      timingsMs: this.timingsMs,
    }
  }

  record(): LeaseRecord {
    const { model, ...request } = this.request
    // Values may be secrets of the host; whoever adopts it finds them in the container.
    const env = Object.fromEntries(Object.keys(request.env).map((name) => [name, '']))
    return {
      v: 1,
      lease: this.id,
      instance: this.#deps.instance,
      state: this.#state,
      reason: this.#reason,
      request: { ...request, env },
      hadModel: model !== undefined || this.parts.modelListener !== null,
      container: this.parts.container,
      gpus: [...(this.parts.gpus?.gpus ?? [])],
      gpuNodes: [...(this.parts.gpus?.nodes ?? [])],
      createdAt: this.createdAt,
      expiresAt: this.expiry.at,
      proof: this.proof,
      freeze: this.#frozen,
      assisted: this.#assisted,
    }
  }

  async enter(state: LeaseState, reason: string | null = null): Promise<void> {
    this.#state = move(this.#state, state)
    if (reason !== null) this.#reason = reason
    await this.#deps.journal.write(this.record())
    this.parts.events.append({ type: 'state', state, reason })
    this.#deps.log.info(
      { leaseId: this.id, trialId: this.request.trial, reason: reason ?? undefined },
      `lease.${state}`,
    )
    for (const wake of this.#waiting) wake()
  }

  /** An adopted lease starts where the last daemon left it. */
  resumeAt(record: Pick<LeaseRecord, 'state' | 'proof' | 'freeze' | 'assisted'>): void {
    const { state, proof, freeze, assisted } = record
    this.#state = state
    this.#assisted = assisted
    this.#frozen = freeze
    this.proof.before.push(...proof.before)
    this.proof.after.push(...proof.after)
  }

  async renew(): Promise<void> {
    this.#require(['ready', 'frozen'], 'renew')
    this.expiry.renew(this.request.ttlSeconds)
    await this.#deps.journal.write(this.record())
  }

  /** Resolves in the wanted state; rejects when the lease can no longer reach it. */
  async waitUntilReady(signal: AbortSignal): Promise<void> {
    while (this.#state !== 'ready') {
      if (!['admitted', 'creating', 'sealing', 'proving'].includes(this.#state))
        this.#require(['ready'], 'wait for')
      await new Promise<void>((resolve, reject) => {
        this.#waiting.add(resolve)
        signal.addEventListener('abort', () => reject(signal.reason), { once: true })
      })
    }
  }

  /** Serves one exec over an upgraded connection; refusals go out as JSON before the upgrade. */
  serveExec(request: IncomingMessage, socket: Duplex, head: Buffer, from: 'api' | 'harness'): void {
    this.#requireWork()
    serveExec(request, socket, head, {
      engine: this.#deps.engine,
      containerId: this.#container('run a command in'),
      cgroup: this.parts.cgroup,
      defaults: this.parts.defaults,
      recorder: {
        // Asked again when the command is known: the state was looked at when the connection was made.
        started: (exec, start) => {
          this.#requireWork()
          // The runner labels what it runs; whatever else comes by the API into a trial is a person's.
          if (from === 'api' && start.label === undefined) this.#assist()
          this.#recorder.started(exec, start)
        },
        output: (exec, bytes) => this.#recorder.output(exec, bytes),
        ended: (end) => {
          this.#recorder.ended(end)
          if (end.cause === 'container_gone') void this.#lookForEnd()
        },
        failed: (exec, message) => {
          this.#recorder.failed(exec, message)
          void this.#lookForEnd()
        },
      },
      signal: AbortSignal.any([this.#ended.signal, this.#workOver.signal]),
    })
  }

  /** A person did something in the sandbox of a trial; it stays so over a restart of the daemon. */
  #assist(): void {
    if (this.#assisted || this.request.trial === undefined) return
    this.#assisted = true
    void this.#deps.journal
      .write(this.record())
      .catch((error: unknown) =>
        this.#deps.log.error({ leaseId: this.id, err: error }, 'lease.journal-failed'),
      )
  }

  /** Throws lease_wrong_state unless programs may be started. */
  async openPty(open: PtyOpen): Promise<PtyView> {
    this.#requireWork()
    return this.ptys.open(this.#container('open a terminal in'), open)
  }

  /** Something that nobody asked for has ended it: it closes, and whoever comes back is told why. */
  #fail(error: ClosedbookError): void {
    if (this.#fatal !== null || this.#closing !== null) return
    this.#fatal = error
    void this.close(error.message).catch(() => {})
  }

  /** A command that ended with its container, or could not be started, may mean that there is no container. */
  async #lookForEnd(): Promise<void> {
    try {
      await this.#count()
    } catch (error) {
      if (error instanceof EngineError && error.code === 'container_gone') this.#fail(error)
    }
  }

  #require(states: readonly LeaseState[], action: string): void {
    if (this.#fatal !== null) throw this.#fatal
    requireState(this.id, this.#state, states, action)
  }

  #requireWork(): void {
    this.#require(['ready'], 'run a command in')
    this.#workOver.signal.throwIfAborted()
  }

  /** Runs the canaries again or for the first time, and returns what they saw. */
  async prove(phase: ProofOptions['phase']): Promise<{ canaries: CanaryResult[]; ok: boolean }> {
    this.#require(['proving', 'ready', 'frozen'], 'prove')
    if (this.request.network === 'offline') return { canaries: [], ok: true }
    const results = await this.#orGone(() => this.proving.prove(phase, () => this.#count()))
    this.proof[phase].splice(0, Infinity, ...results)
    return { canaries: results, ok: results.every(({ ok }) => ok) }
  }

  /** Ends the agent phase: gateways shut, every process but PID 1 killed and proven gone. Idempotent. */
  async freeze(): Promise<FreezeReport> {
    if (this.#frozen !== null) return this.#frozen
    this.#require(['ready'], 'freeze')
    this.#freezing ??= this.#orGone(() => this.#freeze()).finally(() => (this.#freezing = null))
    return this.#freezing
  }

  async #freeze(): Promise<FreezeReport> {
    this.parts.execGateway?.shut()
    this.#workOver.abort(
      new LeaseError('lease_wrong_state', 'caller', `lease ${this.id} is being frozen`),
    )
    this.#frozen = await freezeSandbox({
      ...{ lease: this.id, parts: this.parts, ptys: this.ptys, recorder: this.#recorder },
      ...{ signal: this.#ended.signal, log: this.#deps.log },
      count: () => this.#count(),
    })
    await this.enter('frozen')
    return this.#frozen
  }

  /** A limit of the sandbox was passed: what runs is ended, and the lease stays for its evidence. */
  async killWork(why: string): Promise<void> {
    this.#deps.log.info({ leaseId: this.id, why }, 'lease.limit')
    await killWork(this.parts, this.#ended.signal)
  }

  async readArchive(
    path: string,
    options: { signal?: AbortSignal },
  ): Promise<{ stat: PathStat; tar: Readable }> {
    return this.#deps.engine.readArchive(this.#container('read'), path, options)
  }

  async changes(options: { signal?: AbortSignal }): Promise<readonly FileChange[]> {
    const told = await this.#deps.engine.changes(this.#container('look at'), options)
    const known = new Set(told.map(({ path }) => path))
    const written = await upperFiles(this.parts.upperDir)
    const missed = written.filter((path) => !known.has(path))
    return [...told, ...missed.map((path) => ({ path, kind: 'modified' as const }))]
  }

  async writeArchive(
    path: string,
    tar: Readable,
    options: { signal?: AbortSignal },
  ): Promise<void> {
    this.#require(['ready'], 'write to')
    this.#assist()
    await this.#deps.engine.writeArchive(this.#container('write to'), path, tar, options)
  }

  usage(): Usage {
    return this.parts.model?.usage() ?? noUsage
  }

  /** Counts of attempts; brings the census up to date first. */
  async egress(): Promise<EgressSummary> {
    if (this.#state === 'ready' || this.#state === 'frozen')
      await this.#count().catch((error: unknown) => {
        // What ended with the sandbox can't be counted any more; what was counted still stands.
        if (!(error instanceof EngineError && error.code === 'container_gone')) throw error
      })
    await this.parts.audit.flush()
    return this.parts.audit.summary()
  }

  /** Makes what has been recorded so far readable in its files. */
  async flushRecords(): Promise<void> {
    await Promise.all([this.parts.audit.flush(), this.parts.events.flush()])
  }

  /** Gives everything back. Idempotent; no error stops the rest, and one is told at the end. */
  async close(reason: string): Promise<void> {
    this.#closing ??= this.#close(reason)
    await this.#closing
  }

  async #close(reason: string): Promise<void> {
    await this.parts.network?.count().catch(() => {})
    // What is owned is given back even where the journal can't be written.
    await this.enter('closing', this.#reason ?? reason).catch((error: unknown) =>
      this.#deps.log.error({ leaseId: this.id, err: error }, 'lease.journal-failed'),
    )
    this.#ended.abort(
      new LeaseError('lease_wrong_state', 'caller', `lease ${this.id} is closing: ${reason}`),
    )
    const late = new Promise<never>((_resolve, reject) => {
      setTimeout(
        () => reject(new Error(`not given back within ${closeDeadlineMs} ms`)),
        closeDeadlineMs,
      ).unref()
    })
    let failure: LeaseError | null = null
    try {
      await Promise.race([this.owned.disposeAsync(), late])
    } catch (error) {
      this.#deps.log.error({ leaseId: this.id, err: error }, 'lease.close-failed')
      failure = new LeaseError(
        'close_incomplete',
        'infra',
        `lease ${this.id} is closed, but not all of it could be given back (${String(error)}); the daemon tries again every minute`,
        { cause: error },
      )
    }
    await this.ptys.close()
    const state = move(this.#state, 'closed')
    await this.#deps.journal
      .close({ ...this.record(), state })
      .catch((error: unknown) =>
        this.#deps.log.error({ leaseId: this.id, err: error }, 'lease.journal-failed'),
      )
    // Told when it is written.
    this.#state = state
    this.#deps.log.info({ leaseId: this.id, trialId: this.request.trial, reason }, 'lease.closed')
    for (const wake of this.#waiting) wake()
    if (failure !== null) throw failure
  }

  /** Brings the census up to date; throws `container_gone` where the sandbox has ended, and the census with it. */
  async #count(): Promise<void> {
    await this.#orGone(async () => this.parts.network?.count())
  }

  /** What ends a lease by itself is what all under way in it is told, whatever they broke on. */
  async #orGone<T>(work: () => Promise<T>): Promise<T> {
    const sandbox = () => ({
      lease: this.id,
      container: this.#container('look at'),
      pid: this.parts.pid,
      engine: this.#deps.engine,
    })
    return orGone(sandbox, work).catch((error: unknown) => {
      throw this.#fatal ?? error
    })
  }

  async #countSoon(): Promise<void> {
    if (this.#state === 'ready') await this.parts.network?.count().catch(() => {})
  }

  #container(action: string): string {
    if (this.parts.container === null)
      requireState(this.id, this.#state, ['ready', 'frozen'], action)
    return this.parts.container ?? ''
  }
}
