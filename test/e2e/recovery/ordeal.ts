/**
 * A job whose processes are killed at random moments, until it is done all the same. What it ends with can be compared
 * with the same job undisturbed. The moments are chosen by the job's own progress, so a slow machine tries the same.
 */
import { readFile } from 'node:fs/promises'
import path from 'node:path'
import { ledgerFile, listJobs } from '../../../runner/job/layout.ts'
import { readLedger } from '../../../runner/job/ledger.ts'
import type { TrialResult } from '../../../runner/result.ts'
import { clusterDirectory } from '../../../runner/store/cluster.ts'
import { Store } from '../../../runner/store/store.ts'
import type { Random } from '../../runner/support/random.ts'
import type { TestDaemon } from '../../support/daemon.ts'
import { readRun, until, type Ran } from '../trials/setup.ts'
import { start, type Running } from './setup.ts'

export type Victim = 'runner' | 'worker' | 'daemon' | 'database' | 'engine'

export interface Ordeal {
  readonly daemon: TestDaemon
  /** Job file. */
  readonly file: string
  readonly kills: readonly Victim[]
  readonly random: Random
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

const runLimitMs = 1_200_000

export async function ordeal(options: Ordeal): Promise<Survived> {
  const { daemon, file, random, say = () => {} } = options
  const killed: Victim[] = []
  let resumes = 0
  let runner = start(daemon, ['run', file, '--slots', '2', '--json'], runLimitMs)
  const more = ['worker', '--store', daemon.stateDir, '--slots', '1']
  let worker = start(daemon, more, runLimitMs)
  const lines = async (): Promise<number> => {
    const [job] = await listJobs(path.join(daemon.stateDir, 'jobs'))
    if (job === undefined) return 0
    return (await readLedger(ledgerFile(path.join(daemon.stateDir, 'jobs', job)))).records.length
  }
  const over = async ({ child }: Running): Promise<boolean> => child.exitCode !== null
  for (const victim of options.kills) {
    const goal = (await lines()) + random.int(1, 5)
    await until(
      'the job has come further',
      async () => (await lines()) >= goal || (await over(runner)),
      600_000,
    )
    if (runner.child.exitCode === 0) break
    say(`kill ${killed.length + 1}: ${victim}, after ${await lines()} lines of the ledger`)
    killed.push(victim)
    if (victim === 'runner') await kill(runner)
    else if (victim === 'worker') {
      await kill(worker)
      worker = start(daemon, more, runLimitMs)
    } else if (victim === 'daemon') {
      await daemon.kill()
      await daemon.start()
    } else if (victim === 'database') process.kill(await databasePid(daemon.stateDir), 'SIGKILL')
    else await options.killEngine?.()
    if (victim !== 'runner' && !(await over(runner))) continue
    resumes += 1
    runner = start(daemon, ['resume', '--slots', '2', '--json'], runLimitMs)
  }
  let ended = await runner.ended
  while (ended.code !== 0) {
    say(`exit ${ended.code}, so it is resumed: ${ended.stderr.trim().split('\n').at(-1)}`)
    resumes += 1
    if (resumes > 30) throw new Error(`it never ends:\n${ended.stderr}`)
    ended = await daemon.cli(['resume', '--retry-void', '--json'], { timeoutMs: runLimitMs })
  }
  worker.child.kill('SIGTERM')
  await worker.ended
  return { ran: await readRun(daemon, ended), killed, resumes }
}

async function kill({ child, ended }: Running): Promise<void> {
  child.kill('SIGKILL')
  await ended
}

const databasePid = async (stateDir: string): Promise<number> => {
  const file = path.join(clusterDirectory(stateDir), 'postmaster.pid')
  return Number((await readFile(file, 'utf8')).split('\n')[0])
}

/** What a disturbed and an undisturbed job must agree on, trial by trial and in all. */
export function totals(results: readonly TrialResult[]): readonly object[] {
  const rows = results.map((one) => ({
    trial: `${one.task.name} ${one.configuration.name} ${one.run}`,
    verdict: one.verdict,
    reason: one.reason.code,
    functional: one.suites.functional.passed,
    regression: one.suites.regression.passed,
    steps: one.steps,
    calls: one.usage.calls,
    outputTokens: one.usage.outputTokens,
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
