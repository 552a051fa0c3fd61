/** Who works: one row a process that claims trials. A row is not proof of life; `seen_at`, or its process, is. */
import { randomBytes } from 'node:crypto'
import type { Sql } from './database.ts'
import { isDead, thisProcess, type ProcessIdentity } from './process.ts'
import type { HardwareClass } from './queue.ts'
import type { Store } from './store.ts'

export interface WorkerFacts {
  /** Socket of the daemon that it works beside, absolute. */
  readonly daemon: string
  readonly classes: readonly HardwareClass[]
  readonly slots: number
}

export interface WorkerRow extends ProcessIdentity {
  readonly worker: string
  readonly daemon: string
  readonly state: 'up' | 'draining' | 'down'
  readonly silentSeconds: number
}

export async function registerWorker(store: Store, facts: WorkerFacts): Promise<string> {
  const self = await thisProcess()
  const worker = `w-${self.host.slice(0, 40)}-${randomBytes(4).toString('hex')}`
  await store.persist(() =>
    store.database.rows(
      `insert into closedbook.workers (worker, host, boot_id, pid, start_time, daemon, classes, slots)
       values ($1, $2, $3, $4, $5, $6, $7, $8) on conflict (worker) do nothing`,
      [
        worker,
        self.host,
        self.boot,
        self.pid,
        self.startTime,
        facts.daemon,
        [...facts.classes],
        facts.slots,
      ],
    ),
  )
  return worker
}

export const setWorkerState = async (
  store: Store,
  worker: string,
  state: WorkerRow['state'],
): Promise<void> => {
  await store.database.rows(
    'update closedbook.workers set state = $2, seen_at = now() where worker = $1',
    [worker, state],
  )
}

export const beat = async (store: Store, worker: string): Promise<void> => {
  await store.database.rows('update closedbook.workers set seen_at = now() where worker = $1', [
    worker,
  ])
}

/** Classes of hardware that some worker which lives can serve. */
export async function liveClasses(store: Store): Promise<HardwareClass[]> {
  const rows = await store.database.rows<WorkerRow & { classes: HardwareClass[] }>(
    `select ${workerColumns}, w.classes from closedbook.workers w where w.state = 'up'`,
  )
  const live: HardwareClass[] = []
  for (const row of rows)
    if (!(await isGone(row, store.heartbeatSeconds))) live.push(...row.classes)
  return live
}

export const workerColumns = `w.worker, w.host, w.boot_id as boot, w.pid, w.start_time as "startTime", w.daemon, w.state,
  extract(epoch from now() - w.seen_at)::float8 as "silentSeconds"`

/** Every worker that there ever was, the newest first; one that doesn't live any more is `gone`, whatever its row says. */
export async function allWorkers(store: Store): Promise<
  {
    worker: string
    host: string
    state: 'up' | 'draining' | 'gone'
    classes: HardwareClass[]
    slots: number
    silentSeconds: number
  }[]
> {
  const rows = await store.database.rows<WorkerRow & { classes: HardwareClass[]; slots: number }>(
    `select ${workerColumns}, w.classes, w.slots from closedbook.workers w order by w.seen_at desc`,
  )
  const all = []
  for (const row of rows) {
    const { worker, host, state, classes, slots, silentSeconds } = row
    const gone = state === 'down' || (await isGone(row, store.heartbeatSeconds))
    all.push({
      worker,
      host,
      state: gone ? ('gone' as const) : state,
      classes,
      slots,
      silentSeconds,
    })
  }
  return all
}

export async function readWorker(sql: Sql, worker: string): Promise<WorkerRow | null> {
  const [row] = await sql.rows<WorkerRow>(
    `select ${workerColumns} from closedbook.workers w where w.worker = $1`,
    [worker],
  )
  return row ?? null
}

/** A worker on another host counts as alive until its heartbeat is missed. */
export async function isGone(row: WorkerRow, heartbeatSeconds: number): Promise<boolean> {
  if (row.state === 'down') return true
  return (await isDead(row)) ?? row.silentSeconds > heartbeatSeconds
}
