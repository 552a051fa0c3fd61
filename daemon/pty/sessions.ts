/**
 * All sessions of one pty-host, and what is on disk of them: beside each recording a small file that says what it was,
 * written at the start and at each change that must not be forgotten. Ended sessions are kept for a while, so that a
 * viewer who comes back learns of the end; their records stay.
 */
import { randomBytes } from 'node:crypto'
import { mkdirSync, renameSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { EngineError, LeaseError } from '../errors.ts'
import type { PtyOpen, PtyView } from '../protocol/pty.ts'
import type { PtyBackend } from './backend.ts'
import type { PtySpec } from './program.ts'
import { Recording } from './recording.ts'
import { Screens } from './screens.ts'
import { Session } from './session.ts'
import { newTally } from './tally.ts'

/** By whichever backend. */
export type StartProgram = (spec: PtySpec) => Promise<PtyBackend>

export interface OpenSession {
  readonly lease: string
  readonly trial: string | null
  readonly container: string
  readonly initPid: number | null
  readonly open: PtyOpen
}

export type SessionEvent = {
  readonly type: 'started' | 'person_input' | 'ended'
  readonly view: PtyView
}

const endedKept = 64
const endedKeptMs = 120_000
const sessionsLimit = 256

interface Held {
  readonly session: Session
  readonly facts: Pick<PtyView, 'pty' | 'lease' | 'trial' | 'role' | 'label' | 'argv' | 'startedAt'>
  endedAt: string | null
}

export class Sessions implements AsyncDisposable {
  readonly tally = newTally()
  readonly #start: StartProgram
  readonly #directory: string
  readonly #screens = new Screens()
  readonly #held = new Map<string, Held>()
  readonly #listeners = new Set<(event: SessionEvent) => void>()

  constructor(start: StartProgram, directory: string) {
    this.#start = start
    this.#directory = directory
  }

  get running(): number {
    return this.#all().filter(({ session }) => session.end === null).length
  }

  /** Throws `exec_not_started` with the engine's words. */
  async open({ lease, trial, container, initPid, open }: OpenSession): Promise<PtyView> {
    if (this.running >= sessionsLimit)
      throw new LeaseError(
        'lease_no_capacity',
        'infra',
        `${sessionsLimit} PTY sessions run on this host already; end some`,
      )
    const pty = randomBytes(8).toString('hex')
    const mark = randomBytes(12).toString('hex')
    const size = { cols: open.cols, rows: open.rows }
    const directory = path.join(this.#directory, lease)
    mkdirSync(directory, { recursive: true, mode: 0o700 })
    const startedAt = new Date().toISOString()
    const backend = await this.#start({
      container,
      initPid,
      pty,
      mark,
      size,
      argv: open.argv,
      env: open.env,
      user: open.user,
      cwd: open.cwd,
    })
    const recording = new Recording(path.join(directory, `${pty}.cast`), {
      size,
      title: open.label ?? open.argv.join(' ').slice(0, 200),
    })
    const session = new Session(
      { pty, role: open.role, size, mark, hold: open.hold, timeoutMs: open.timeoutMs },
      {
        backend,
        recording,
        screens: this.#screens,
        tally: this.tally,
        onPersonInput: () => this.#changed(pty, 'person_input'),
      },
    )
    const facts = {
      pty,
      lease,
      trial,
      role: open.role,
      label: open.label ?? null,
      argv: open.argv,
      startedAt,
    }
    const held: Held = { session, facts, endedAt: null }
    this.#held.set(pty, held)
    this.tally.opened += 1
    this.#changed(pty, 'started')
    void session.ended.then(() => {
      held.endedAt = new Date().toISOString()
      this.#changed(pty, 'ended')
      setTimeout(() => this.#forget(pty), endedKeptMs).unref()
      this.#trim()
    })
    // A held session's output is not read yet: whether it could be started shows at its end.
    const words = open.hold ? null : await session.started
    if (words !== null)
      throw new EngineError(
        'exec_not_started',
        'caller',
        `the program could not be started in the sandbox: ${words}`,
      )
    return viewOf(held)
  }

  find(pty: string): Session | undefined {
    return this.#held.get(pty)?.session
  }

  views(): PtyView[] {
    return this.#all().map(viewOf)
  }

  view(pty: string): PtyView | undefined {
    const held = this.#held.get(pty)
    return held === undefined ? undefined : viewOf(held)
  }

  /** Returns what takes the listener away again. */
  listen(listener: (event: SessionEvent) => void): () => void {
    this.#listeners.add(listener)
    return () => this.#listeners.delete(listener)
  }

  /** The lease is closed: its sessions end with its container, and nobody comes back to them. */
  async closeLease(lease: string): Promise<void> {
    await Promise.all(
      this.#all()
        .filter(({ facts }) => facts.lease === lease)
        .map(async ({ session, facts }) => {
          await session.kill('killed', { alone: true })
          this.#forget(facts.pty)
        }),
    )
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.#all().map(({ session }) => session.kill('killed')))
    for (const { session } of this.#all()) session.close()
    await this.#screens[Symbol.asyncDispose]()
  }

  #all(): Held[] {
    return [...this.#held.values()]
  }

  #changed(pty: string, type: SessionEvent['type']): void {
    const held = this.#held.get(pty)
    if (held === undefined) return
    const view = viewOf(held)
    writeView(this.#directory, view)
    for (const listener of this.#listeners) listener({ type, view })
  }

  #trim(): void {
    const ended = this.#all().filter(({ session }) => session.end !== null)
    for (const { facts } of ended.slice(0, Math.max(0, ended.length - endedKept)))
      this.#forget(facts.pty)
  }

  #forget(pty: string): void {
    const session = this.#held.get(pty)?.session
    if (session === undefined || session.end === null) return
    this.#held.delete(pty)
    session.close()
  }
}

/** Replaced whole; a disk that takes nothing costs the record, not the session. */
export function writeView(directory: string, view: PtyView): void {
  const file = path.join(directory, view.lease, `${view.pty}.json`)
  try {
    writeFileSync(`${file}.new`, `${JSON.stringify(view)}\n`, { mode: 0o600 })
    renameSync(`${file}.new`, file)
  } catch {
    // It is told over the wire as well.
  }
}

function viewOf({ session, facts, endedAt }: Held): PtyView {
  const { end, size, ring, viewers, control, personInput, unrecordedBytes } = session
  return {
    ...facts,
    state: end === null ? 'running' : 'ended',
    ...size,
    endedAt,
    exit: end?.exit ?? null,
    cause: end?.cause ?? null,
    bytes: ring.end,
    viewers: viewers.size,
    controlled: control.holder !== null,
    personInput,
    unrecordedBytes,
  }
}
