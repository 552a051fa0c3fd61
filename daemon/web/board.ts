/**
 * What runners have published, kept up to date: a first load of what a page needs, then the stream of changes. The
 * browser reconnects by itself and says which change it saw last; while nobody looks at the page, the stream is closed.
 */
import type { BoardEntry, BoardList } from '../protocol/board.ts'
import type { JobDocument, ReportDocument, TrialDocument } from '../protocol/board-documents.ts'
import { silentSince, type AliveDocument } from '../protocol/board-life.ts'
import { json } from './api.ts'

type Kinds = {
  job: JobDocument
  trial: TrialDocument
  report: ReportDocument
  alive: AliveDocument
}
type Kind = keyof Kinds

export type Connection = 'connecting' | 'live' | 'lost' | 'paused'

export class BoardStore {
  readonly #maps: { [K in Kind]: Map<string, Kinds[K]> } = {
    job: new Map(),
    trial: new Map(),
    report: new Map(),
    alive: new Map(),
  }
  /** Times of the newest that was published of each job, by the daemon's clock. */
  readonly #heard = new Map<string, string>()
  #clockAheadMs = 0
  readonly #watchers = new Set<() => void>()
  readonly #loaded = new Map<string, Promise<void>>()
  #source: EventSource | null = null
  #at: string | null = null
  #onConnection: (state: Connection) => void = () => {}

  get jobs(): ReadonlyMap<string, JobDocument> {
    return this.#maps.job
  }

  get reports(): ReadonlyMap<string, ReportDocument> {
    return this.#maps.report
  }

  trial(job: string, trial: string): TrialDocument | undefined {
    return this.#maps.trial.get(`${job}.${trial}`)
  }

  /** By trial id. */
  trialsOf(job: string): Map<string, TrialDocument> {
    const found = new Map<string, TrialDocument>()
    for (const [id, document] of this.#maps.trial)
      if (id.startsWith(`${job}.`)) found.set(document.trial, document)
    return found
  }

  /** When the runner of a job that is said to run was heard of last, where that is too long ago. */
  silentSince(job: string): string | null {
    if (this.jobs.get(job)?.state !== 'running') return null
    const heard = { last: this.#heard.get(job) ?? '', signs: this.#maps.alive.has(job) }
    return silentSince(heard, Date.now() + this.#clockAheadMs)
  }

  watch(told: () => void, signal: AbortSignal): void {
    this.#watchers.add(told)
    signal.addEventListener('abort', () => this.#watchers.delete(told), { once: true })
  }

  /** Once for each kind and beginning of ids; what comes later comes by the stream. */
  async load(kind: Kind, prefix = ''): Promise<void> {
    const key = `${kind} ${prefix}`
    const loading = this.#loaded.get(key) ?? this.#load(kind, prefix)
    this.#loaded.set(key, loading)
    try {
      await loading
    } catch (error) {
      this.#loaded.delete(key)
      throw error
    }
  }

  /** The job that a trial belongs to. */
  async jobOf(trial: string): Promise<string | null> {
    const query = new URLSearchParams({ suffix: `.${trial}` })
    const { entries } = await json<BoardList>(`/v1/board/trial?${query}`)
    return entries[0]?.id.split('.')[0] ?? null
  }

  start(onConnection: (state: Connection) => void): void {
    this.#onConnection = onConnection
    document.addEventListener('visibilitychange', () => {
      if (document.hidden) {
        this.#source?.close()
        this.#source = null
        onConnection('paused')
      } else this.#connect()
    })
    // on pages that show nothing of it too, the stream tells whether the daemon is there
    void this.load('job').catch(() => onConnection('lost'))
  }

  stop(): void {
    this.#source?.close()
    this.#source = null
  }

  #connect(): void {
    if (this.#source !== null || this.#at === null || document.hidden) return
    const query = new URLSearchParams({ kinds: 'job,trial,report,alive', from: this.#at })
    const source = new EventSource(`/v1/board/changes?${query}`)
    this.#source = source
    this.#onConnection('connecting')
    source.addEventListener('hello', () => this.#onConnection('live'))
    source.addEventListener('error', () => {
      this.#onConnection('lost')
      if (source.readyState !== EventSource.CLOSED) return
      this.#source = null
      // not a lost connection but a refusal: asking tells whether the session has ended
      json('/v1/session').then(
        () => setTimeout(() => this.#connect(), 2000),
        () => {},
      )
    })
    source.addEventListener('put', (event) => {
      this.#at = event.lastEventId
      this.#take(JSON.parse(event.data) as BoardEntry)
      this.#tell()
    })
    source.addEventListener('remove', (event) => {
      this.#at = event.lastEventId
      const { kind, id } = JSON.parse(event.data) as BoardEntry
      if (kind in this.#maps) this.#maps[kind as Kind].delete(id)
      this.#tell()
    })
    source.addEventListener('reset', (event) => {
      this.#at = event.lastEventId
      const again = [...this.#loaded.keys()]
      this.#loaded.clear()
      for (const map of Object.values(this.#maps)) map.clear()
      for (const key of again) {
        const [kind = 'job', prefix = ''] = key.split(' ')
        void this.load(kind as Kind, prefix).catch(() => {})
      }
    })
  }

  async #load(kind: Kind, prefix: string): Promise<void> {
    const query = new URLSearchParams({ full: 'true', prefix })
    const { at, now, entries } = await json<BoardList>(`/v1/board/${kind}?${query}`)
    if (now !== undefined) this.#clockAheadMs = Date.parse(now) - Date.now()
    for (const entry of entries) this.#take(entry)
    // changes from the first load on: what a later load overlaps with is only told twice
    this.#at ??= at
    this.#connect()
    this.#tell()
  }

  #take({ kind, id, time, document: value }: BoardEntry): void {
    const job = id.split('.')[0] ?? ''
    if (kind !== 'report' && time > (this.#heard.get(job) ?? '')) this.#heard.set(job, time)
    // anyone with a token of role run may publish anything; what is no document of ours is not shown
    if (!(kind in this.#maps) || !hasShape(kind as Kind, value)) return
    ;(this.#maps[kind as Kind] as Map<string, unknown>).set(id, value)
  }

  #tell(): void {
    for (const told of this.#watchers) told()
  }
}

const needed: Readonly<Record<Kind, Readonly<Record<string, (value: unknown) => boolean>>>> = {
  job: {
    job: isText,
    name: isText,
    createdAt: isText,
    tasks: Array.isArray,
    configurations: Array.isArray,
    trials: Array.isArray,
    runs: isNumber,
  },
  trial: {
    trial: isText,
    job: isText,
    task: isText,
    configuration: isText,
    startedAt: isText,
    evidence: Array.isArray,
    costUsd: isNumber,
    steps: isNumber,
    inputTokens: isNumber,
    outputTokens: isNumber,
    denied: isNumber,
  },
  report: { configurations: Array.isArray, planned: isNumber, scored: isNumber },
  alive: { job: isText },
}

function isText(value: unknown): boolean {
  return typeof value === 'string'
}

function isNumber(value: unknown): boolean {
  return typeof value === 'number'
}

function hasShape(kind: Kind, value: unknown): boolean {
  if (typeof value !== 'object' || value === null) return false
  const fields = value as Readonly<Record<string, unknown>>
  return Object.entries(needed[kind]).every(([name, fits]) => fits(fields[name]))
}

/** Newest first. */
export const newest = (jobs: Iterable<JobDocument>): JobDocument[] =>
  [...jobs].toSorted((a, b) => (a.createdAt < b.createdAt ? 1 : -1))
