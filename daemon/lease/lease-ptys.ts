/**
 * The PTY sessions of one lease: each is an entry of its event stream, as a command is; a refused attempt is a mark in
 * their recordings; and whatever a person types makes a trial assisted.
 */
import type { AuditEvent } from '../../policy/audit-event.ts'
import type { ExecEnd } from '../protocol/exec-frames.ts'
import type { PtyOpen, PtyView } from '../protocol/pty.ts'
import type { HostEvent } from '../pty/host-protocol.ts'
import type { PtyPlace, Ptys } from '../pty/ptys.ts'
import type { ExecRecorder } from './exec-recorder.ts'
import type { LeaseParts } from './lease-parts.ts'

export interface LeasePtysDeps {
  readonly lease: string
  readonly trial: string | null
  readonly ptys: Ptys
  readonly parts: LeaseParts
  readonly recorder: ExecRecorder
  readonly onPerson: () => void
}

const marksPerSecond = 10

export class LeasePtys {
  readonly #deps: LeasePtysDeps
  readonly #opening = new Set<Promise<unknown>>()
  #watches = false
  #marks = { second: 0, count: 0 }

  constructor(deps: LeasePtysDeps) {
    this.#deps = deps
  }

  async open(container: string, open: PtyOpen): Promise<PtyView> {
    const { ptys, parts } = this.#deps
    if (open.role === 'person') this.#deps.onPerson()
    this.#watch()
    const opening = ptys.open(this.#place(container), {
      ...open,
      user: open.user ?? parts.defaults.user,
      cwd: open.cwd ?? parts.defaults.workdir,
    })
    this.#opening.add(opening)
    try {
      return await opening
    } finally {
      this.#opening.delete(opening)
    }
  }

  /** Resolves when every session that was being opened is one, or isn't. */
  async opened(): Promise<void> {
    await Promise.allSettled(this.#opening)
  }

  /** After a restart of the daemon. */
  async adopt(container: string): Promise<void> {
    const { ptys, recorder, lease } = this.#deps
    const unfinished = await this.#unfinished()
    for (const { pty } of await ptys.adopt(this.#place(container))) {
      recorder.adopted(pty)
      this.#watch()
    }
    for (const view of await ptys.list(lease)) {
      if (view.personInput || view.role === 'person') this.#deps.onPerson()
      // It ended while no daemon was there to hear of it.
      if (view.state === 'ended' && unfinished.has(view.pty)) recorder.ended(endOf(view))
    }
  }

  /** The container is gone. */
  async close(): Promise<void> {
    await this.#deps.ptys.closeLease(this.#deps.lease)
  }

  /** Ids in the event stream that have a start and no end. */
  async #unfinished(): Promise<ReadonlySet<string>> {
    const ids = new Set<string>()
    for await (const { event } of this.#deps.parts.events.read(1, { follow: false }))
      if (event.type === 'exec.start') ids.add(event.exec)
      else if (event.type === 'exec.end') ids.delete(event.exec)
    return ids
  }

  #place(container: string): PtyPlace {
    const { lease, trial, parts } = this.#deps
    return { lease, trial, container, initPid: parts.pid, onEvent: (event) => this.#hear(event) }
  }

  #hear({ type, view }: HostEvent): void {
    const { recorder } = this.#deps
    if (type === 'person_input') this.#deps.onPerson()
    else if (type === 'started')
      recorder.started(view.pty, { argv: view.argv, label: view.label ?? undefined })
    else recorder.ended(endOf(view))
  }

  #watch(): void {
    if (this.#watches) return
    this.#watches = true
    this.#deps.parts.auditWatchers.add((event) => this.#mark(event))
  }

  #mark(event: AuditEvent): void {
    if (event.action !== 'deny' || event.canary === true || event.kind === 'close') return
    const second = Math.floor(Date.now() / 1000)
    if (this.#marks.second !== second) this.#marks = { second, count: 0 }
    this.#marks.count += 1
    if (this.#marks.count > marksPerSecond) return
    const target = event.host ?? event.address ?? 'unknown'
    const port = event.port === null ? '' : `:${event.port}`
    this.#deps.ptys.markAll(
      this.#deps.lease,
      `blocked ${target}${port} (${event.reason ?? event.protocol}), audit ${event.seq}`,
    )
  }
}

function endOf(view: PtyView): ExecEnd {
  const { pty, exit, cause, bytes, startedAt, endedAt } = view
  return {
    exec: pty,
    exit: exit ?? 'unknown',
    cause: cause === 'host_lost' ? 'engine_lost' : (cause ?? 'exited'),
    stdout: { totalBytes: bytes, droppedBytes: 0 },
    stderr: { totalBytes: 0, droppedBytes: 0 },
    childrenLeft: false,
    durationMs: Date.parse(endedAt ?? startedAt) - Date.parse(startedAt),
  }
}
