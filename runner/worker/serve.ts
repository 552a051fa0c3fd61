/** A worker beside a daemon: claims trials of every open job that its host can serve, until it is told to stop. */
import type { DaemonClient } from '../../daemon/protocol/client.ts'
import type { RunnerConfig } from '../config.ts'
import type { JobWatcher } from '../job/watcher.ts'
import { waitingGroups } from '../store/claim.ts'
import type { HardwareClass } from '../store/queue.ts'
import type { Store } from '../store/store.ts'
import { registerWorker, setWorkerState } from '../store/workers.ts'
import { DaemonGate } from './daemon-gate.ts'
import { JobCache } from './job-cache.ts'
import { reapDead } from './reap.ts'
import { Sweep } from './sweep.ts'
import { work } from './worker.ts'

export interface ServeContext {
  readonly store: Store
  readonly config: RunnerConfig
  readonly client: DaemonClient
  readonly slots: number
  readonly classes: readonly HardwareClass[]
  readonly watch: JobWatcher
  readonly say: (what: string) => void
  readonly drain: AbortSignal
  readonly signal: AbortSignal
  /** Ends when nothing is queued that it could serve: a pilot of a batch system. */
  readonly untilIdle: boolean
}

export async function serve(context: ServeContext): Promise<void> {
  const { store, config, client, slots, classes, drain, signal, untilIdle } = context
  const worker = await registerWorker(store, { daemon: config.socket, classes, slots })
  await using jobs = await JobCache.open(context)
  const jobDirOf = (job: string, planned: string): string => jobs.get(job)?.jobDir ?? planned
  const reap = (): Promise<number> => reapDead(store, { worker, job: null, jobDirOf, signal })
  await reap()
  await using _sweep = new Sweep(store)
  const draining = (): void => void setWorkerState(store, worker, 'draining').catch(() => {})
  drain.addEventListener('abort', draining, { once: true })
  try {
    const full = await work({
      store,
      worker,
      client,
      slots,
      classes,
      drain,
      signal,
      gate: new DaemonGate(client, null),
      jobOf: ({ job }) => jobs.get(job),
      reap,
      prepare: async () => {
        const groups = await waitingGroups(store.database)
        await jobs.prepare(groups.filter(({ hardware }) => classes.includes(hardware)))
      },
      serves: jobs.serves,
      isOver: async () =>
        untilIdle &&
        !(await waitingGroups(store.database)).some(
          (group) => group.state === 'open' && classes.includes(group.hardware),
        ),
    })
    if (full !== null) throw full
  } finally {
    drain.removeEventListener('abort', draining)
    await setWorkerState(store, worker, 'down').catch(() => {})
  }
}
