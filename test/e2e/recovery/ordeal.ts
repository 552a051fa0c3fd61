/**
 * A job whose processes are killed at random moments, until it is done all the same. What it ends with can be compared
 * with the same job undisturbed. The moments are chosen by the job's own progress, so a slow machine tries the same.
 */
import { existsSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import path from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { ledgerFile, listJobs } from '../../../runner/job/layout.ts'
import { readLedger } from '../../../runner/job/ledger.ts'
import type { TrialResult } from '../../../runner/result.ts'
import { clusterDirectory } from '../../../runner/store/cluster.ts'
import { Store } from '../../../runner/store/store.ts'
import type { Random } from '../../runner/support/random.ts'
import type { CliResult, TestDaemon } from '../../support/daemon.ts'
import { lastLine, openLeases, readRun, until, type Ran } from '../trials/setup.ts'
import { start, type Running } from './setup.ts'

export type Victim = 'runner' | 'worker' | 'daemon' | 'database' | 'engine'

export interface Ordeal {
  readonly daemon: TestDaemon
  /** What `run` is told: a job file, and whatever else. */
  readonly job: readonly string[]
  readonly kills: readonly Victim[]
  readonly random: Random
  /** Lines of the ledger from one kill to the next, at most; a trial has three. */
  readonly apart?: number
  /** Milliseconds from such a line to the kill, at most: in the middle of something, wherever that is. */
  readonly lingerMs?: number
  /** Kills the engine and starts it again; for those that own one. */
  readonly killEngine?: () => Promise<void>
  readonly say?: (what: string) => void
}

export interface Survived {
  readonly ran: Ran
  /** Kills that hit while something was left to do. */
  readonly killed: readonly Victim[]
  readonly resumes: number
}

const runLimitMs = 3_600_000
const lookMs = 600_000
const mostResumes = 40
const resume = ['resume', '--slots', '2', '--json']

export async function ordeal(options: Ordeal): Promise<Survived> {
  const { daemon, random, apart = 5, lingerMs = 0, say = () => {} } = options
  const killed: Victim[] = []
  const hands = new Hands(daemon, options.job, say)
  for (const victim of options.kills) {
    const goal = (await hands.lines()) + random.int(1, apart)
    const come = async (): Promise<boolean> => {
      hands.look()
      return hands.done || (await hands.lines()) >= goal
    }
    await until('the job has come further', come, lookMs)
    await delay(random.int(0, lingerMs))
    if (hands.done) break
    killed.push(victim)
    const lines = await hands.lines()
    say(`kill ${killed.length}: ${victim}, after ${lines} lines: ${await underWay(daemon)}`)
    if (victim === 'runner') await kill(hands.runner)
    else if (victim === 'worker') await kill(hands.worker)
    else if (victim === 'daemon') {
      await daemon.kill()
      await daemon.start()
    } else if (victim === 'database') process.kill(await databasePid(daemon.stateDir), 'SIGKILL')
    else await options.killEngine?.()
    hands.look()
  }
  const ran = await hands.end()
  return { ran, killed, resumes: hands.resumes }
}

/** The runner and the worker beside it, each begun again when it is gone before the job is done. */
class Hands {
  readonly #daemon: TestDaemon
  readonly #say: (what: string) => void
  runner: Running
  worker: Running
  resumes = 0

  constructor(daemon: TestDaemon, job: readonly string[], say: (what: string) => void) {
    this.#daemon = daemon
    this.#say = say
    this.runner = start(daemon, ['run', ...job, '--slots', '2', '--json'], runLimitMs)
    this.worker = this.#worker()
  }

  #worker(): Running {
    const args = ['worker', '--store', this.#daemon.stateDir, '--slots', '1']
    return start(this.#daemon, args, runLimitMs)
  }

  get done(): boolean {
    return this.runner.child.exitCode === 0
  }

  look(): void {
    if (isOver(this.worker)) {
      void this.worker.ended.then((ended) => this.#tell('worker', ended))
      this.worker = this.#worker()
    }
    if (!isOver(this.runner) || this.done) return
    void this.runner.ended.then((ended) => this.#tell('runner', ended))
    this.#resume()
  }

  /** When it ended by itself, also of what is void: so many kills may spoil more executions than a trial has. */
  #resume(): void {
    const flags = this.runner.child.exitCode === 1 ? ['--retry-void'] : []
    this.resumes += 1
    if (this.resumes > mostResumes) throw new Error(`resumed ${mostResumes} times, and not done`)
    this.runner = start(this.#daemon, [...resume, ...flags], runLimitMs)
  }

  #tell(who: string, { code, stderr }: CliResult): void {
    // killed by us: code is null
    if (code !== null) this.#say(`the ${who} ended with ${code}: ${lastLine(stderr)}`)
  }

  async lines(): Promise<number> {
    const jobs = path.join(this.#daemon.stateDir, 'jobs')
    const [job] = await listJobs(jobs)
    if (job === undefined) return 0
    return (await readLedger(ledgerFile(path.join(jobs, job)))).records.length
  }

  /** Waits for the job's end, whatever it takes. */
  async end(): Promise<Ran> {
    let ended = await this.runner.ended
    while (ended.code !== 0) {
      this.#tell('runner', ended)
      this.#resume()
      ended = await this.runner.ended
    }
    this.worker.child.kill('SIGTERM')
    await this.worker.ended
    return readRun(this.#daemon, ended)
  }
}

const isOver = ({ child }: Running): boolean => child.exitCode !== null || child.signalCode !== null

/** The leases of the moment, for people. */
async function underWay({ stateDir }: TestDaemon): Promise<string> {
  const leases = await openLeases(stateDir)
  const trials = new Set(leases.map(({ trial }) => trial).filter((trial) => trial !== null)).size
  const states = Object.entries(Object.groupBy(leases, ({ state }) => state))
  const counted = states.map(([state, those]) => `${those?.length ?? 0} ${state}`)
  return `${trials} trials at work, leases: ${counted.join(', ') || 'none'}`
}

async function kill({ child, ended }: Running): Promise<void> {
  child.kill('SIGKILL')
  await ended
}

/** Waited for: a database that was killed is started again by those who need it. */
const databasePid = (stateDir: string): Promise<number> =>
  until('the database runs', async () => {
    const file = path.join(clusterDirectory(stateDir), 'postmaster.pid')
    const pid = Number((await readFile(file, 'utf8').catch(() => '')).split('\n')[0])
    return pid > 0 && existsSync(`/proc/${pid}`) ? pid : null
  })

/** What a disturbed and an undisturbed job must agree on, trial by trial and in all. */
export function totals(results: readonly TrialResult[]): readonly object[] {
  const rows = results.map((one) => ({
    trial: `${one.task.name} ${one.configuration.name} ${one.run}`,
    verdict: one.verdict,
    reason: one.reason.code,
    functional: one.suites.functional,
    regression: one.suites.regression,
    steps: one.steps,
    usage: one.usage,
    costUsd: one.costUsd,
    patch: one.digests.patch,
  }))
  return rows.toSorted((a, b) => (a.trial < b.trial ? -1 : 1))
}

/** Standing results of each trial in the store: each must be one. */
export async function resultsInStore(stateDir: string): Promise<number[]> {
  await using store = await Store.open({ stateDir, heartbeatSeconds: 120 })
  const rows = await store.database.rows<{ n: number }>(
    `select count(r.trial)::int as n from closedbook.trials t
     left join closedbook.results r on r.trial = t.trial and r.superseded_at is null group by t.trial`,
  )
  return rows.map(({ n }) => n)
}
