/**
 * One PTY session: a program on a terminal, everything it has put out by offset, its screen, its recording, and those who
 * look on. It outlives all of them. Its end is the death of the first process and a bounded drain of what that had
 * written; viewers hear of it after the last byte. Only the recording and a lossless viewer can make the program wait.
 */
import { setImmediate as afterReads, setTimeout as delay } from 'node:timers/promises'
import type { Exit } from '../protocol/exec-frames.ts'
import type { PtyCause, PtyEnd, PtyRole } from '../protocol/pty.ts'
import { exitOfCode } from '../exec/exit.ts'
import type { PtyBackend } from './backend.ts'
import { ByteRing } from './byte-ring.ts'
import { ControlRule, type Controller } from './control-rule.ts'
import { behindLimitBytes, inputLimitBytes, resumeBelowBytes } from './flow.ts'
import type { Recording } from './recording.ts'
import { Resizer, type Size } from './resizer.ts'
import { Screen, type Snapshot } from './screen.ts'
import type { Screens } from './screens.ts'
import { StartMark } from './start-wrapper.ts'
import type { Tally } from './tally.ts'

export interface SessionSpec {
  readonly pty: string
  readonly role: PtyRole
  readonly size: Size
  readonly mark: string
  readonly hold: boolean
  readonly timeoutMs?: number | undefined
}

/** One who looks on; see viewer.ts. */
export interface SessionViewer extends Controller {
  /** Bytes that the session must not run away from it by; 0 for one that isn't lossless. */
  readonly losslessLag: number
  /** There is more to see. */
  wake(): void
  sized(size: Size): void
  /** The session has ended: what is left is sent, then the exit. */
  finish(): void
  /** The session is held no more. */
  dismiss(): void
}

export interface SessionDeps {
  readonly backend: PtyBackend
  readonly recording: Recording
  readonly screens: Screens
  /** Of all sessions together. */
  readonly tally: Tally
  /** A person typed into it for the first time. */
  readonly onPersonInput: () => void
}

const holdMs = 10_000
const drainIdleMs = 2_000
const drainPollMs = 50
const drainLimitBytes = 8 * 1024 * 1024
const eventPatienceMs = 100
const lookEveryMs = 500
const waitPollMs = 5
/** Answers to queries that the program doesn't read are dropped beyond this. */
const replyLimitBytes = 16 * 1024
const hangupGraceMs = 500
const termGraceMs = 4_000
const ambiguousCodes: ReadonlySet<number> = new Set([126, 127, 128])

export class Session {
  readonly spec: SessionSpec
  readonly tally: Tally
  readonly ring = new ByteRing()
  readonly control = new ControlRule<SessionViewer>()
  readonly viewers = new Set<SessionViewer>()
  /** Resolves after the last byte. */
  readonly ended: Promise<PtyEnd>
  readonly #backend: PtyBackend
  readonly #recording: Recording
  readonly #screen: Screen
  readonly #resizer: Resizer
  readonly #mark: StartMark
  readonly #started = Promise.withResolvers<string | null>()
  readonly #onPersonInput: () => void
  readonly #attached = Promise.withResolvers<void>()
  #personInput = false
  #end: PtyEnd | null = null
  #cause: PtyCause | null = null
  #killing: Promise<void> | null = null
  #code: number | null = null
  #died = false
  #lastByteAt = performance.now()
  #bytesAfterDeath = 0
  #waiting = false
  #drained: (() => void)[] = []

  constructor(spec: SessionSpec, deps: SessionDeps) {
    const { backend, recording, screens } = deps
    this.spec = spec
    this.tally = deps.tally
    this.#backend = backend
    this.#recording = recording
    this.#onPersonInput = deps.onPersonInput
    this.#mark = new StartMark(spec.mark)
    this.#screen = new Screen(this.ring, screens, spec.size, (data) => this.#reply(data))
    this.#resizer = new Resizer(
      spec.size,
      (size) => backend.resize(size),
      (size) => this.#sized(size),
    )
    this.ended = this.#run()
    backend.stream.on('drain', () => {
      for (const resolve of this.#drained.splice(0)) resolve()
    })
  }

  /** null once the program runs; else what the engine said instead. */
  get started(): Promise<string | null> {
    return this.#started.promise
  }

  get end(): PtyEnd | null {
    return this.#end
  }

  get size(): Size {
    return this.#resizer.size
  }

  get personInput(): boolean {
    return this.#personInput
  }

  get unrecordedBytes(): number {
    return this.#recording.unrecordedBytes
  }

  /** Agents and harnesses keep their size, so that what they see doesn't depend on who looks on. */
  get resizable(): boolean {
    return this.spec.role === 'person'
  }

  resize(size: Size): void {
    if (this.#end === null) this.#resizer.want(size)
  }

  snapshot(): Promise<Snapshot> {
    return this.#screen.snapshot()
  }

  marker(label: string): void {
    this.#recording.marker(label)
  }

  add(viewer: SessionViewer): void {
    this.viewers.add(viewer)
    this.tally.attached += 1
    this.#attached.resolve()
  }

  remove(viewer: SessionViewer): void {
    this.viewers.delete(viewer)
    this.control.release(viewer)
    this.#resumeIfTaken()
  }

  /** A lossless viewer has taken some. */
  taken(): void {
    this.#resumeIfTaken()
  }

  /** Resolves when the program's terminal has it, or never will. */
  async input(bytes: Uint8Array, as: 'harness' | 'person'): Promise<void> {
    if (this.#end !== null) return
    if (as === 'person' && !this.#personInput) {
      this.#personInput = true
      this.#recording.marker('a person typed')
      this.#onPersonInput()
    }
    const { stream } = this.#backend
    if (stream.destroyed || !stream.writable) return
    stream.write(bytes)
    if (stream.writableLength > inputLimitBytes)
      await new Promise<void>((resolve) => {
        this.#drained.push(resolve)
      })
  }

  /** HUP, TERM, then KILL to all that the program started. Idempotent; resolves at its end. */
  async kill(cause: PtyCause, { alone = false }: { alone?: boolean } = {}): Promise<void> {
    if (this.#end !== null) return
    this.#killing ??= this.#killAll(cause, alone)
    await this.#killing
    await this.ended
  }

  /** Frees the screen; the session must have ended, and nobody looks on any more. */
  close(): void {
    for (const viewer of this.viewers) viewer.dismiss()
    this.#resizer.close()
    this.#screen.close()
  }

  async #killAll(cause: PtyCause, alone: boolean): Promise<void> {
    if (!this.#died) this.#cause ??= cause
    // A program that waits for a reader could not end by itself.
    this.#attached.resolve()
    this.#resume()
    for (const [name, graceMs] of [
      ['SIGHUP', hangupGraceMs],
      ['SIGTERM', termGraceMs],
    ] as const) {
      if (this.#died) break
      await this.#backend.signal(name)
      await Promise.race([this.#backend.died, delay(graceMs, undefined, { ref: false })])
    }
    await this.#backend.kill({ alone })
  }

  async #run(): Promise<PtyEnd> {
    const { stream, died } = this.#backend
    const closed = new Promise<void>((resolve) => {
      stream.once('end', resolve)
      stream.once('close', resolve)
    })
    void died.then((code) => {
      if (code === null) return
      this.#code = code
      this.#died = true
      this.#lastByteAt = performance.now()
      void this.#drain()
    })
    const timer = this.#armTimeout()
    // Held output stays where it is: the engine makes the program wait.
    if (this.spec.hold)
      await Promise.race([this.#attached.promise, delay(holdMs, undefined, { ref: false }), died])
    this.#lastByteAt = performance.now()
    this.#backend.read((bytes) => this.#take(bytes))
    await closed
    const cause = await this.#findEnd()
    clearTimeout(timer)
    if (!this.#mark.seen) this.#started.resolve(this.#mark.words || 'the engine gave no reason')
    await this.#killing
    const exit: Exit = exitOfCode(this.#code)
    const end = { exit, cause: this.#cause ?? cause, finalOffset: this.ring.end }
    this.#resizer.close()
    await this.#recording.end(exit)
    this.#end = end
    for (const resolve of this.#drained.splice(0)) resolve()
    for (const viewer of this.viewers) viewer.finish()
    return end
  }

  #armTimeout(): NodeJS.Timeout | undefined {
    const { timeoutMs } = this.spec
    if (timeoutMs === undefined) return undefined
    return setTimeout(() => void this.kill('timeout').catch(() => {}), timeoutMs)
  }

  #take(chunk: Buffer): void {
    this.#lastByteAt = performance.now()
    if (this.#died) this.#bytesAfterDeath += chunk.length
    const bytes = this.#mark.push(chunk)
    if (!this.#mark.seen) return
    this.#started.resolve(null)
    if (bytes.length === 0) return
    this.ring.push(bytes)
    this.tally.programBytes += bytes.length
    // Those who look on first: somebody waits for the echo of a key.
    for (const viewer of this.viewers) viewer.wake()
    const lacked = this.#recording.unrecordedBytes
    this.#recording.output(bytes)
    this.tally.unrecordedBytes += this.#recording.unrecordedBytes - lacked
    this.#screen.wake()
    if (this.#killing === null && this.#mustWait()) void this.#wait()
  }

  #mustWait(): boolean {
    return this.#recording.isBehind || this.#lag() > behindLimitBytes
  }

  /** Of the lossless viewer that is furthest behind. */
  #lag(): number {
    let lag = 0
    for (const viewer of this.viewers) lag = Math.max(lag, viewer.losslessLag)
    return lag
  }

  async #wait(): Promise<void> {
    if (this.#waiting) return
    this.#waiting = true
    this.#backend.stream.pause()
    await this.#recording.drained()
    // A viewer that stops acknowledging is no longer lossless after a while: looked at again, and not only when it speaks.
    while (this.#waiting && this.#lag() > resumeBelowBytes) await delay(waitPollMs * 20)
    this.#resume()
  }

  #resumeIfTaken(): void {
    if (this.#waiting && !this.#recording.isBehind && this.#lag() <= resumeBelowBytes)
      this.#resume()
  }

  #resume(): void {
    if (!this.#waiting) return
    this.#waiting = false
    this.#backend.stream.resume()
  }

  /** Engines close the stream at the death of the first process; this is for one that doesn't. */
  async #drain(): Promise<void> {
    const { stream } = this.#backend
    while (!stream.destroyed && !stream.readableEnded) {
      // What has arrived is read before it is found that nothing has.
      await afterReads()
      const reads = stream.readableFlowing === true
      const idle = reads && performance.now() - this.#lastByteAt > drainIdleMs
      if (idle || this.#bytesAfterDeath > drainLimitBytes) stream.destroy()
      await delay(drainPollMs, undefined, { ref: false })
    }
  }

  /** The stream is over; finds how the program ended, and waits for it where it only closed its terminal. */
  async #findEnd(): Promise<PtyCause> {
    for (;;) {
      await Promise.race([this.#backend.died, delay(eventPatienceMs, undefined, { ref: false })])
      if (this.#code !== null && !ambiguousCodes.has(this.#code)) return 'exited'
      const found = await this.#backend.look().catch(() => ({ state: 'engine_lost' as const }))
      switch (found.state) {
        case 'ended':
          this.#code ??= found.started || this.#mark.seen ? found.code : null
          return 'exited'
        case 'container_gone':
        case 'engine_lost':
          this.#code = null
          return found.state
        case 'running':
          if (this.#code !== null) return 'exited'
          if (found.holdsTerminal && this.#killing === null) {
            // What it puts out from here on reaches nobody.
            this.#code = null
            await this.#backend.kill({ alone: false })
            return 'engine_lost'
          }
          await Promise.race([this.#backend.died, delay(lookEveryMs, undefined, { ref: false })])
      }
    }
  }

  #sized(size: Size): void {
    this.#recording.size(size)
    this.#screen.resize(size)
    for (const viewer of this.viewers) viewer.sized(size)
  }

  #reply(data: string): void {
    const { stream } = this.#backend
    if (this.#end !== null || stream.destroyed || !stream.writable) return
    if (stream.writableLength <= replyLimitBytes) stream.write(data)
  }
}
