/**
 * PTY sessions as the daemon sees them. The sessions are the pty-host's; who may open, watch and control them is decided
 * here. What a host that died held is ended: a program whose output nobody reads would do work that nobody can see.
 */
import { randomBytes } from 'node:crypto'
import type { IncomingMessage } from 'node:http'
import { Socket } from 'node:net'
import type { Duplex, Readable } from 'node:stream'
import { setTimeout as delay } from 'node:timers/promises'
import { Cgroup } from '../engine/cgroup.ts'
import { RequestError } from '../errors.ts'
import { killTree } from '../exec/kill-tree.ts'
import { enterExec, isAlone } from '../exec/live-execs.ts'
import { castLine } from '../protocol/pty-cast.ts'
import { ptyClose, ptyProtocol } from '../protocol/pty-frames.ts'
import {
  ptyViewSchema,
  ptyViewsSchema,
  type PtyOpen,
  type PtyRole,
  type PtyView,
} from '../protocol/pty.ts'
import { HostLink, type HostLinkOptions } from './host-link.ts'
import type { HostEvent } from './host-protocol.ts'
import { castFile, mendCast, openCast, readViews } from './ptys-on-disk.ts'
import { relay, viewerRequest } from './relay.ts'
import { countsSchema, newTally, type Tally } from './tally.ts'
import { writeView } from './sessions.ts'

/** The sandbox that a session is opened in. */
export interface PtyPlace {
  readonly lease: string
  readonly trial: string | null
  readonly container: string
  readonly initPid: number
  /** Hears of the session until its end. */
  readonly onEvent: (event: HostEvent) => void
}

export interface AttachRights {
  readonly mayControl: boolean
  readonly name: string
  /** It came in by the unix socket, which stands on no credential: nothing can end it but itself. */
  readonly local: boolean
  /** Aborts when the credential behind it ends. */
  readonly over: AbortSignal
}

/** For metrics. */
export interface PtyCounts extends Tally {
  /** Running sessions, by role. */
  readonly running: Readonly<Record<PtyRole, number>>
  /** Open now. */
  readonly attachments: number
}

const findAgainMs = 5_000
/** One that lives and doesn't answer is waited for: it holds the work of agents. */
const findLiveMs = 30_000
const lostKillMs = 10_000
const closeMs = 5_000
const countMs = 2_000
const listMs = 10_000
const findMs = 60_000

export class Ptys implements AsyncDisposable {
  readonly #directory: string
  readonly #link: HostLink
  /** By lease; of leases that are open. */
  readonly #places = new Map<string, PtyPlace>()
  /** Running ones, by id: held among the execs of their container. */
  readonly #running = new Map<
    string,
    { readonly view: PtyView; readonly live: Disposable | null }
  >()

  constructor(options: Omit<HostLinkOptions, 'onEvent' | 'onLost'>) {
    this.#directory = options.directory
    this.#link = new HostLink({
      ...options,
      onEvent: (event) => this.#hear(event),
      onLost: (pid) => void this.#lost(pid),
    })
  }

  /** After a restart: what the last daemon's host still runs. Call before leases are adopted. */
  async find(): Promise<void> {
    if (!(await this.#link.find())) return
    for (const view of await this.#held(findMs).catch(() => []))
      if (view.state === 'running') this.#running.set(view.pty, { view, live: null })
  }

  /** An open lease of an earlier daemon; returns its running sessions. What ran and is gone is told as lost. */
  async adopt(place: PtyPlace): Promise<PtyView[]> {
    this.#places.set(place.lease, place)
    const known = await readViews(this.#directory, place.lease)
    const running: PtyView[] = []
    for (const view of known.filter(({ state }) => state === 'running')) {
      const held = this.#running.get(view.pty)
      if (held === undefined) {
        await this.#markLost(view)
        continue
      }
      held.live?.[Symbol.dispose]()
      this.#running.set(view.pty, {
        view: held.view,
        live: enterExec(place.container, view.pty),
      })
      running.push(held.view)
    }
    return running
  }

  /** Sessions of leases that were not adopted end. */
  async endUnowned(): Promise<void> {
    const leases = new Set([...this.#running.values()].map(({ view }) => view.lease))
    for (const lease of leases) if (!this.#places.has(lease)) await this.closeLease(lease)
  }

  async open(place: PtyPlace, open: PtyOpen): Promise<PtyView> {
    this.#places.set(place.lease, place)
    await this.#link.require()
    const { lease, trial, container, initPid } = place
    const body = { lease, trial, container, initPid, open }
    return ptyViewSchema.parse(await this.#link.ask('POST', '/sessions', { body }))
  }

  /** In the order in which they were opened; ended ones too. */
  async list(lease: string): Promise<PtyView[]> {
    const known = await readViews(this.#directory, lease)
    if (!known.some(({ state }) => state === 'running')) return known
    const live = new Map((await this.#views()).map((view) => [view.pty, view]))
    return known.map((view) => live.get(view.pty) ?? view)
  }

  async view(lease: string, pty: string): Promise<PtyView> {
    const found = (await this.list(lease)).find((view) => view.pty === pty)
    if (found !== undefined) return found
    throw new RequestError(
      'not_found',
      'caller',
      `lease ${lease} has no PTY session ${pty}; GET /v1/leases/${lease}/ptys lists them`,
    )
  }

  async close(lease: string, pty: string): Promise<PtyView> {
    const view = await this.view(lease, pty)
    if (view.state !== 'running') return view
    const container = this.#places.get(lease)?.container
    const alone = container !== undefined && isAlone(container, pty)
    await this.#link.ask('DELETE', `/sessions/${pty}?alone=${alone}`)
    return this.view(lease, pty)
  }

  async mark(lease: string, pty: string, label: string): Promise<void> {
    const view = await this.view(lease, pty)
    if (view.state !== 'running') return
    await this.#link.ask('POST', `/sessions/${pty}/markers`, { body: { label } })
  }

  /** A mark in the recordings of all that runs in a lease. Never fails. */
  markAll(lease: string, label: string): void {
    for (const { view } of this.#running.values())
      if (view.lease === lease)
        void this.#link
          .ask('POST', `/sessions/${view.pty}/markers`, { body: { label: label.slice(0, 1000) } })
          .catch(() => {})
  }

  /** A host that can't say, or isn't there, has done nothing. */
  async counts(): Promise<PtyCounts> {
    const running = { agent: 0, harness: 0, person: 0 }
    for (const { view } of this.#running.values()) running[view.role] += 1
    const answer = this.#link.connected
      ? await this.#link.ask('GET', '/counts', { withinMs: countMs }).catch(() => null)
      : null
    const counts = countsSchema.safeParse(answer).data ?? { ...newTally(), attachments: 0 }
    return { ...counts, running }
  }

  hasRunning(lease: string): boolean {
    return [...this.#running.values()].some(({ view }) => view.lease === lease)
  }

  async recording(lease: string, pty: string): Promise<Readable> {
    await this.view(lease, pty)
    const cast = await openCast(castFile(this.#directory, lease, pty))
    if (cast !== null) return cast
    throw new RequestError('not_found', 'caller', `session ${pty} has no recording`)
  }

  /** Serves a viewer over an upgraded connection. */
  attach(
    request: IncomingMessage,
    socket: Duplex,
    head: Buffer,
    { pty, rights }: { pty: string; rights: AttachRights },
  ): void {
    if (request.headers.upgrade?.toLowerCase() !== 'websocket')
      throw new RequestError(
        'bad_request',
        'caller',
        `this path speaks ${ptyProtocol} over WebSocket`,
      )
    const attachment = randomBytes(12).toString('hex')
    const { mayControl, name, local, over } = rights
    const viewer = viewerRequest(request, { pty, attachment, mayControl, name })
    // What came behind the request would be lost with a socket that is given away; no client sends before it is answered.
    if (local && head.length === 0 && socket instanceof Socket && this.#link.give(viewer, socket))
      return
    relay(this.#link.socketPath, socket, head, viewer)
    const revoke = (): void =>
      void this.#link
        .ask('DELETE', `/attachments/${attachment}?code=${ptyClose.unauthorized}`)
        .catch(() => socket.destroy())
    if (over.aborted) revoke()
    else over.addEventListener('abort', revoke, { once: true })
    socket.once('close', () => over.removeEventListener('abort', revoke))
  }

  /** Its container is gone, so its sessions have ended. */
  async closeLease(lease: string): Promise<void> {
    if (this.#link.connected)
      await this.#link.ask('DELETE', `/leases/${lease}`, { withinMs: closeMs }).catch(() => {})
    this.#places.delete(lease)
    for (const [pty, { view }] of this.#running) if (view.lease === lease) this.#over(pty)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#link[Symbol.asyncDispose]()
  }

  async #views(): Promise<PtyView[]> {
    if (!this.#link.connected) return []
    return this.#held(listMs).catch(() => [])
  }

  async #held(withinMs: number): Promise<PtyView[]> {
    return ptyViewsSchema.parse(await this.#link.ask('GET', '/sessions', { withinMs })).ptys
  }

  #hear(event: HostEvent): void {
    const { view, type } = event
    const place = this.#places.get(view.lease)
    if (type === 'started') {
      const live = place === undefined ? null : enterExec(place.container, view.pty)
      this.#running.set(view.pty, { view, live })
    }
    if (type === 'ended') this.#over(view.pty)
    place?.onEvent(event)
  }

  #over(pty: string): void {
    this.#running.get(pty)?.live?.[Symbol.dispose]()
    this.#running.delete(pty)
  }

  async #lost(pid: number): Promise<void> {
    // A host that was only slow is there again; one that died or hangs isn't.
    const from = performance.now()
    do {
      // Sessions of a host that is new meanwhile are none of these.
      const running = [...this.#running.values()]
      const held = await this.#findAgain()
      if (held !== null) {
        const still = new Map(held.map((view) => [view.pty, view]))
        for (const { view } of running) {
          if (!this.#running.has(view.pty)) continue
          const now = still.get(view.pty)
          if (now === undefined) await this.#markLost(view)
          else if (now.state !== 'running') this.#hear({ type: 'ended', view: now })
        }
        return
      }
      await delay(100)
      const patienceMs = (await this.#link.isHost(pid)) ? findLiveMs : findAgainMs
      if (performance.now() - from > patienceMs) break
    } while (this.#running.size > 0)
    await this.#link.kill(pid)
    for (const { view } of [...this.#running.values()]) await this.#markLost(view)
  }

  async #findAgain(): Promise<PtyView[] | null> {
    try {
      return (await this.#link.find()) ? await this.#held(listMs) : null
    } catch {
      return null
    }
  }

  async #markLost(view: PtyView): Promise<void> {
    const place = this.#places.get(view.lease)
    if (place !== undefined) await this.#kill(view.pty, place)
    const lost: PtyView = {
      ...view,
      state: 'lost',
      exit: 'unknown',
      cause: 'host_lost',
      endedAt: new Date().toISOString(),
      viewers: 0,
      controlled: false,
    }
    const file = castFile(this.#directory, view.lease, view.pty)
    await mendCast(file, (seconds) =>
      castLine(
        seconds,
        'm',
        'the process that held the session ended; what followed is not recorded',
      ),
    ).catch(() => {})
    writeView(this.#directory, lost)
    this.#over(view.pty)
    place?.onEvent({ type: 'ended', view: lost })
  }

  async #kill(pty: string, { initPid }: PtyPlace): Promise<void> {
    try {
      const tree = { execId: pty, cgroup: Cgroup.ofPid(initPid), startedTicks: 0 }
      const alone = (): boolean => false
      const over = (): boolean => true
      await killTree(tree, { rootPid: 0, alone, over, deadlineMs: lostKillMs })
    } catch {
      // The container is gone, and with it the program.
    }
  }
}
