/**
 * A set of trials of one task outside of any job: what qualification and probe are made of. Each is an ordinary
 * execution (lease, proof, freeze, collect, verify, record), run again after a fault of infrastructure as a job's are.
 * There is no ledger: results on disk say what is left when a set was interrupted. Evidence is laid out as a job's.
 */
import path from 'node:path'
import { packageVersion } from '../../daemon/protocol/version.ts'
import type { DaemonClient } from '../../daemon/protocol/client.ts'
import type { Configuration } from '../job/configuration.ts'
import { driversOf } from '../job/load-job.ts'
import { executionDir } from '../job/layout.ts'
import { makePlan, newJobId, type Plan, type PlannedTrial } from '../job/plan.ts'
import type { JobWatcher } from '../job/watcher.ts'
import type { ExecutionState } from '../job/trial-state.ts'
import { opaque } from '../opaque.ts'
import type { Task } from '../task/task.ts'
import { newLeaseIds } from '../trial/context.ts'
import { PristineCache } from '../trial/pristine-cache.ts'
import { recordTrial } from '../trial/record.ts'
import { executeTrial, type Measured } from '../trial/trial.ts'
import { openSet, type EndedTrial } from './open-set.ts'

const maxExecutions = 3

export interface TrialSet {
  /** `qualify` or `probe`. */
  readonly purpose: string
  readonly task: Task
  readonly image: string
  /** Of a verifier that has one of its own. */
  readonly verifierImage: string | null
  readonly configurations: readonly Configuration[]
  readonly runs: number
  readonly concurrency: number
  /** Starts over where an interrupted set could be gone on with. */
  readonly fresh: boolean
}

export interface TrialSetHost {
  readonly client: DaemonClient
  readonly stateDir: string
  readonly watch: JobWatcher
  readonly say: (what: string) => void
  readonly signal: AbortSignal
  /** Told what is planned, and how much of it is there already. */
  readonly onPlan?: (plan: Plan, recorded: number) => void
}

export interface RanSet {
  /** Name of the evidence's directory, below `evidence/` in the state directory. */
  readonly name: string
  readonly directory: string
  /** When it was planned, which may be before an interruption. */
  readonly startedAt: string
  readonly ended: readonly EndedTrial[]
}

export async function runTrialSet(set: TrialSet, host: TrialSetHost): Promise<RanSet> {
  const now = new Date()
  const planned = makePlan({
    name: `${set.purpose} ${set.task.name}`,
    tasks: [{ task: set.task, image: set.image, verifierImage: set.verifierImage }],
    configurations: await driversOf(set.configurations, host),
    runs: set.runs,
    closedbookVersion: packageVersion,
    now,
    job: newJobId(now).replace(/^j/, `${set.purpose}-`),
  })
  await using open = await openSet(path.join(host.stateDir, 'evidence'), planned, set)
  const { plan, directory } = open
  const name = plan.job
  if (name !== planned.job) {
    host.say(`going on with ${name}, which was interrupted; --fresh starts over`)
    await closeLeft(plan, host)
  }
  host.onPlan?.(plan, open.ended.length)
  const run = new RunningSet(set, host, plan, directory)
  const known = new Set(open.ended.map(({ planned }) => planned.trial))
  const waiting = plan.trials.filter(({ trial }) => !known.has(trial))
  const ended: EndedTrial[] = [...open.ended]
  const worker = async (): Promise<void> => {
    for (let next = waiting.shift(); next !== undefined; next = waiting.shift()) {
      host.signal.throwIfAborted()
      ended.push(await run.finish(next))
    }
  }
  const workers = Array.from({ length: Math.min(set.concurrency, waiting.length) }, worker)
  const ends = await Promise.allSettled(workers)
  host.signal.throwIfAborted()
  for (const end of ends) if (end.status === 'rejected') throw end.reason
  const order = new Map(plan.trials.map(({ trial }, index) => [trial, index]))
  const place = ({ planned }: EndedTrial): number => order.get(planned.trial) ?? 0
  return {
    ...{ name, directory, startedAt: plan.createdAt },
    ended: ended.toSorted((a, b) => place(a) - place(b)),
  }
}

/** The sandboxes of a process that died: their trials begin again. */
async function closeLeft(plan: Plan, { client, signal }: TrialSetHost): Promise<void> {
  const trials = new Set(plan.trials.map(({ trial }) => trial))
  for (const { lease, trial } of await client.leases({ signal }))
    if (trial !== null && trials.has(trial))
      await client.closeLease(lease, 'the process that opened it died', { signal })
}

class RunningSet {
  readonly #set: TrialSet
  readonly #host: TrialSetHost
  readonly #plan: Plan
  readonly #directory: string
  readonly #pristine = new PristineCache()

  constructor(set: TrialSet, host: TrialSetHost, plan: Plan, directory: string) {
    this.#set = set
    this.#host = host
    this.#plan = plan
    this.#directory = directory
  }

  async finish(planned: PlannedTrial): Promise<EndedTrial> {
    const { watch, signal } = this.#host
    const executions: ExecutionState[] = []
    while (true) {
      const execution = `x${executions.length + 1}-${opaque(4)}`
      const directory = executionDir(this.#directory, planned.trial, execution)
      watch.started(planned, execution)
      const measured = await this.#execute(planned, execution, directory)
      signal.throwIfAborted()
      executions.push(stateOf(execution, measured))
      const again =
        measured.verdict === 'void' &&
        measured.blame === 'infra' &&
        executions.length < maxExecutions
      if (measured.verdict === 'void') watch.faulted(planned, measured.reason, again)
      if (again) continue
      const { result, digest } = await recordTrial({
        plan: this.#plan,
        planned,
        jobDir: this.#directory,
        measured,
        executions,
      })
      watch.recorded(planned, result)
      return { planned, result, digest, directory }
    }
  }

  #execute(planned: PlannedTrial, execution: string, directory: string): Promise<Measured> {
    const { task, configurations } = this.#set
    const { client, watch, signal } = this.#host
    return executeTrial({
      plan: this.#plan,
      tasks: new Map([[task.name, task]]),
      configurations: new Map(configurations.map((one) => [one.name, one])),
      client,
      watch,
      signal,
      planned,
      execution,
      leases: newLeaseIds(),
      directory,
      pristine: this.#pristine,
      queueMs: 0,
    })
  }
}

const stateOf = (execution: string, measured: Measured): ExecutionState => ({
  execution,
  leases: [],
  startedAt: measured.startedAt,
  endedAt: measured.endedAt,
  blame: measured.blame,
  reason: measured.reason,
})
