/**
 * One command in a container, from start to a known end. The end is the death of its first process, as the engine's
 * event (or, lacking one, its record) tells, plus a bounded drain of what it had written: never the end of the stream,
 * which comes early for a process that closes its output and late for one that leaves a child behind.
 * A timeout, a kill and a client that left end everything the command started. Output reaches the caller in order and
 * at the caller's pace.
 */
import { once } from 'node:events'
import { setImmediate as afterReads, setTimeout as delay } from 'node:timers/promises'
import type { Duplex, Readable } from 'node:stream'
import type { Cgroup } from '../engine/cgroup.ts'
import type { Engine, ExecHandle } from '../engine/engine.ts'
import { EngineError } from '../errors.ts'
import type { ExecEnd, ExecStart } from '../protocol/exec-frames.ts'
import { Demuxer } from './demux.ts'
import { exitOfCode } from './exit.ts'
import { killTree, marked, markerOf, ticksNow } from './kill-tree.ts'
import { enterExec, isAlone } from './live-execs.ts'
import { OutputCap } from './output-cap.ts'
import type { OnOutput } from './output-cap.ts'
import { holdsOutput } from './output-held.ts'
import { OutputGate } from './output-gate.ts'

export interface RunExecOptions {
  readonly execId: string
  /** The engine has taken the command; it may still turn out that it could not be started. */
  readonly onStarted?: () => void
  readonly onOutput: OnOutput
  readonly stdin?: Readable
  /** Ends the command; a reason of 'disconnected' is told as such, every other one as 'killed'. */
  readonly signal?: AbortSignal
  /** null where the host can't see the container's processes: then only the engine's own means are left. */
  readonly cgroup: Cgroup | null
}

type Cause = ExecEnd['cause']

/** What is left in pipes after the death is at most some 1.5 MB; more is new output of a child left behind. */
const drainBytes = 8 * 1024 * 1024
const drainIdleMs = 500
const drainPollMs = 50
/** The event follows the end of the stream at once, except for a command that could not be started: it has none. */
const eventPatienceMs = 25
const lateEventMs = 1_000
const inspectEveryMs = 1_000
const killDeadlineMs = 10_000
const killedStreamMs = 2_000
/** Codes by which engines tell of a failed start; a command may end with them as well. */
const ambiguousCodes: ReadonlySet<number> = new Set([126, 127, 128])
const killedCode = 137
const lostClientCode = 126
const deadContainerMs = 100

/** Throws `exec_not_started`, `container_gone` before the start, and what the engine says otherwise. */
export async function runExec(
  engine: Engine,
  containerId: string,
  start: ExecStart,
  options: RunExecOptions,
): Promise<ExecEnd> {
  using _live = enterExec(containerId, options.execId)
  const startedTicks = ticksNow()
  const startedAt = performance.now()
  const handle = await engine.exec(containerId, {
    argv: start.argv,
    env: [
      ...Object.entries(start.env).map(([name, value]) => `${name}=${value}`),
      markerOf(options.execId),
    ],
    stdin: start.stdin,
    ...(start.user === undefined ? {} : { user: start.user }),
    ...(start.workdir === undefined ? {} : { workdir: start.workdir }),
  })
  options.onStarted?.()
  const exec = new Exec({ engine, containerId, start, options, handle, startedTicks })
  return await exec.run(startedAt)
}

interface Parts {
  readonly engine: Engine
  readonly containerId: string
  readonly start: ExecStart
  readonly options: RunExecOptions
  readonly handle: ExecHandle
  readonly startedTicks: number
}

class Exec {
  readonly #parts: Parts
  readonly #gate: OutputGate
  readonly #cap: OutputCap
  /** Ends timers and listeners when the command is over. */
  readonly #over = new AbortController()
  #cause: Cause | null = null
  #killing: Promise<void> | null = null
  /** From the engine's event, or its record where that can be trusted. */
  #code: number | null = null
  #dead = false
  #eventsLost = false
  #bytesAfterDeath = 0
  #waitingSince: number | null = performance.now()

  constructor(parts: Parts) {
    this.#parts = parts
    this.#cap = new OutputCap(parts.start.outputLimitBytes)
    this.#gate = new OutputGate(this.#cap, parts.options.onOutput)
  }

  async run(startedAt: number): Promise<ExecEnd> {
    try {
      void this.#parts.handle.died.then((code) => this.#onDeath(code))
      this.#armLimits()
      this.#pumpStdin()
      const broken = await this.#read()
      await this.#awaitEnd(broken)
      await this.#killing
      await this.#gate.finish()
      return await this.#end(startedAt)
    } catch (thrown) {
      // The caller could not take the output, or the stream made no sense: nobody waits for this command any more.
      if (!isNotStarted(thrown)) await this.#kill('killed')
      throw thrown
    } finally {
      this.#over.abort()
      this.#parts.handle.stream.destroy()
    }
  }

  #armLimits(): void {
    const { signal } = this.#parts.options
    const onAbort = (): void => {
      void this.#kill(signal?.reason === 'disconnected' ? 'disconnected' : 'killed')
    }
    if (signal?.aborted === true) onAbort()
    else signal?.addEventListener('abort', onAbort, { once: true, signal: this.#over.signal })
    const { timeoutMs } = this.#parts.start
    if (timeoutMs === undefined) return
    const timer = setTimeout(() => void this.#kill('timeout'), timeoutMs)
    this.#over.signal.addEventListener('abort', () => clearTimeout(timer))
  }

  #pumpStdin(): void {
    const { stdin } = this.#parts.options
    if (!this.#parts.start.stdin) return
    const { stream } = this.#parts.handle
    if (stdin === undefined) stream.end()
    else void pump(stdin, stream, this.#over.signal)
  }

  /** Reads to the end of the stream; true when it broke. */
  async #read(): Promise<boolean> {
    const demuxer = new Demuxer()
    const { merged } = this.#parts.start
    try {
      for await (const chunk of this.#parts.handle.stream as AsyncIterable<Buffer>) {
        this.#waitingSince = null
        if (this.#dead) this.#bytesAfterDeath += chunk.length
        for (const { stream, bytes } of demuxer.push(chunk))
          await this.#gate.take(stream === 'stderr' && !merged ? 'stderr' : 'stdout', bytes)
        this.#waitingSince = performance.now()
      }
      return demuxer.isInFrame && this.#isStillWanted()
    } catch (thrown) {
      if (thrown instanceof EngineError || this.#gate.failed) throw thrown
      return this.#isStillWanted()
    }
  }

  /** Nothing that we know of explains the end of the stream. */
  #isStillWanted(): boolean {
    return !this.#dead && this.#killing === null
  }

  #onDeath(code: number | null): void {
    if (code === null) {
      this.#eventsLost = true
      return
    }
    this.#code = code
    this.#dead = true
    // The event may be here before the last output, however long the command was silent before.
    if (this.#waitingSince !== null) this.#waitingSince = performance.now()
    void this.#drain()
  }

  /** Engines close the stream at or before the event; this is for one that does not. */
  async #drain(): Promise<void> {
    const { stream } = this.#parts.handle
    while (!stream.destroyed && !this.#over.signal.aborted) {
      const idle =
        this.#waitingSince !== null && performance.now() - this.#waitingSince > drainIdleMs
      if (idle || this.#bytesAfterDeath > drainBytes) stream.destroy()
      await delay(drainPollMs, undefined, { ref: false })
    }
  }

  /** Waits until the command's end is known, or can't be. */
  async #awaitEnd(broken: boolean): Promise<void> {
    await this.#deathWithin(eventPatienceMs)
    if (this.#code !== null) {
      if (ambiguousCodes.has(this.#code)) await this.#refuseIfNotStarted()
      return
    }
    if (broken) await this.#deathWithin(lateEventMs)
    while (this.#code === null) {
      if (this.#killing !== null) {
        await this.#killing
        return
      }
      const found = await this.#inspect()
      if (found === null) {
        if (this.#cause === 'engine_lost') await this.#kill('engine_lost')
        return
      }
      if (!found.running) {
        await this.#settleFromRecord(found, broken)
        return
      }
      if (broken || this.#isOutputLost(found.pid)) {
        // What it writes from here on reaches nobody, so its result would be worth nothing.
        await this.#kill('engine_lost')
        return
      }
      await this.#deathWithin(inspectEveryMs)
    }
    await this.#doubtLateDeath()
  }

  #isOutputLost(rootPid: number): boolean {
    const { options, startedTicks } = this.#parts
    const { cgroup, execId } = options
    return cgroup !== null && rootPid > 0 && holdsOutput({ execId, cgroup, startedTicks }, rootPid)
  }

  /** The stream ended long before the command: it closed its output itself, or the engine lost us and says so here. */
  async #doubtLateDeath(): Promise<void> {
    if (this.#code === lostClientCode || this.#killing !== null) return
    const found = await this.#parts.handle.inspect().catch(() => null)
    if (found?.exitCode === lostClientCode) this.#cause ??= 'engine_lost'
  }

  async #settleFromRecord(
    found: { exitCode: number | null; pid: number },
    broken: boolean,
  ): Promise<void> {
    if (found.pid === 0) throw this.#notStarted()
    await this.#deathWithin(lateEventMs)
    if (this.#code !== null) return
    // The engine writes this code when it lost its client, whatever the command does: only the event knows better.
    if (!broken && found.exitCode !== lostClientCode) {
      this.#code = found.exitCode
      return
    }
    await this.#kill('engine_lost')
    this.#cause ??= 'engine_lost'
  }

  /** null when the container or the engine is gone, with the cause set. */
  async #inspect(): Promise<{ running: boolean; exitCode: number | null; pid: number } | null> {
    try {
      return await this.#parts.handle.inspect()
    } catch (thrown) {
      if (!(thrown instanceof EngineError)) throw thrown
      this.#cause ??= thrown.code === 'container_gone' ? 'container_gone' : 'engine_lost'
      return null
    }
  }

  async #refuseIfNotStarted(): Promise<void> {
    const found = await this.#parts.handle.inspect().catch(() => null)
    if (found?.running === false && found.pid === 0) throw this.#notStarted()
  }

  #notStarted(): EngineError {
    const words = this.#gate.withheld()
    return new EngineError(
      'exec_not_started',
      'caller',
      `The command could not be started in the container: ${words || 'the engine gave no reason'}`,
      { facts: { argv0: this.#parts.start.argv[0] } },
    )
  }

  async #deathWithin(ms: number): Promise<void> {
    if (this.#code !== null) return
    const timer = new AbortController()
    const late = delay(ms, undefined, { signal: timer.signal }).catch(() => undefined)
    await (this.#eventsLost ? late : Promise.race([this.#parts.handle.died, late]))
    timer.abort()
  }

  /** The first cause wins, later calls wait for the same kill. A command that has ended by itself is left at that. */
  #kill(cause: Cause): Promise<void> {
    if (this.#dead) return Promise.resolve()
    this.#killing ??= this.#killAll(cause)
    return this.#killing
  }

  async #killAll(cause: Cause): Promise<void> {
    const { handle, containerId, options, startedTicks } = this.#parts
    const { cgroup, execId } = options
    const found = await handle.inspect().catch(() => null)
    // Ended a moment ago: the engine waits for children that hold the output before it says so.
    const ended =
      found?.running === false && found.pid > 0 && cgroup?.pids().includes(found.pid) !== true
    if (!ended) this.#cause ??= cause
    if (!ended && cgroup !== null)
      await killTree(
        { execId, cgroup, startedTicks },
        {
          rootPid: found?.pid ?? 0,
          alone: () => isAlone(containerId, execId),
          over: () => this.#dead || handle.stream.destroyed,
          deadlineMs: killDeadlineMs,
        },
      )
    await this.#deathWithin(killedStreamMs)
    if (!this.#dead) handle.stream.destroy()
  }

  async #end(startedAt: number): Promise<ExecEnd> {
    if (this.#code === killedCode) this.#cause ??= await this.#whoKilled()
    return {
      exec: this.#parts.options.execId,
      exit: exitOfCode(this.#code),
      cause: this.#cause ?? 'exited',
      stdout: this.#cap.totals('stdout'),
      stderr: this.#cap.totals('stderr'),
      childrenLeft: await this.#childrenLeft(),
      durationMs: performance.now() - startedAt,
    }
  }

  /** Looks twice: the processes of a container that is killed die before the engine calls it dead. */
  async #whoKilled(): Promise<Cause | null> {
    if (await this.#isContainerGone()) return 'container_gone'
    await delay(deadContainerMs)
    return (await this.#isContainerGone()) ? 'container_gone' : null
  }

  async #isContainerGone(): Promise<boolean> {
    const { engine, containerId } = this.#parts
    try {
      const { status } = await engine.inspectContainer(containerId)
      return status !== 'running' && status !== 'paused'
    } catch (thrown) {
      return thrown instanceof EngineError && thrown.code === 'container_gone'
    }
  }

  /** Looks twice: a pipeline's last process may be on its way out. */
  async #childrenLeft(): Promise<boolean> {
    const { cgroup, execId } = this.#parts.options
    if (cgroup === null) return false
    const tree = { execId, cgroup, startedTicks: this.#parts.startedTicks }
    if (marked(tree).length === 0) return false
    await delay(drainPollMs)
    return marked(tree).length > 0
  }
}

function isNotStarted(thrown: unknown): boolean {
  return thrown instanceof EngineError && thrown.code === 'exec_not_started'
}

/**
 * Writes only after the loop has read what has arrived: a write to a socket that the engine closed destroys it, and
 * output that lies unread in it would go with it.
 */
async function pump(stdin: Readable, stream: Duplex, signal: AbortSignal): Promise<void> {
  try {
    for await (const chunk of stdin as AsyncIterable<Buffer>) {
      await afterReads()
      if (stream.destroyed || signal.aborted) return
      if (!stream.write(chunk)) await once(stream, 'drain', { signal })
    }
    if (!stream.destroyed) stream.end()
  } catch {
    // The command ended without reading all of its input, or the sender broke off: either shows elsewhere.
    if (!stream.destroyed) stream.end()
  }
}
