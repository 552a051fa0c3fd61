/**
 * Ten kills: the sample benchmark (6 tasks x 3 runs x 2 configurations, mini-SWE-agent with recorded models) on an
 * engine of its own, whose runner, worker, daemon, database and engine are killed twice each at random moments, and the
 * same job undisturbed. By hand, as root:
 *   node --no-warnings test/bench/ordeal.ts [SEED] [SOCKET [JOBDIR]]
 * SOCKET: an engine that has our images and the tasks', so that they needn't be built again: 4 GB are copied.
 * JOBDIR: the job undisturbed, where it was run on that engine before; it may still be under way.
 */
import { execFileSync } from 'node:child_process'
import { cp, readFile } from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import { isDeepStrictEqual } from 'node:util'
import {
  engineSocketIn,
  startPrivateEngine,
  stopPrivateEngine,
} from '../../runner/host/private-engine.ts'
import type { ProcessRecord } from '../../runner/host/process-record.ts'
import { planFile, resultFile } from '../../runner/job/layout.ts'
import { readPlan, type Plan } from '../../runner/job/plan.ts'
import { readResult, type TrialResult } from '../../runner/result.ts'
import { ordeal, resultsInStore, totals, type Victim } from '../e2e/recovery/ordeal.ts'
import { root } from '../e2e/trials/setup.ts'
import { Random } from '../runner/support/random.ts'
import { Scratch } from '../runner/support/scratch.ts'
import { TestDaemon } from '../support/daemon.ts'

const seed = Number(process.argv[2] ?? 1)
const from = process.argv[3]
const done = process.argv[4]
// the runner's two slots and one of the worker beside it
const job = [path.join(root, 'images/sample-benchmark.yaml'), '--concurrency', '3']
const random = new Random(seed)
const say = (what: string): void =>
  console.log(`[${(performance.now() / 1000).toFixed(0).padStart(5)} s] ${what}`)

async function resultsOf(jobDir: string): Promise<TrialResult[]> {
  const { trials } = await readPlan(planFile(jobDir))
  const results: TrialResult[] = []
  for (const { trial } of trials) results.push(await readResult(resultFile(jobDir, trial)))
  return results
}

/** Runs it on a daemon of its own; its directory outlives that daemon's. */
async function undisturbed(socket: string, place: string): Promise<string> {
  await using daemon = await TestDaemon.open(socket)
  const limit = { timeoutMs: 3_600_000 }
  let ended = await daemon.cli(['run', ...job, '--out', place, '--json'], limit)
  // an engine that is out of breath can spoil a trial without being killed
  while (ended.code === 1)
    ended = await daemon.cli(['resume', place, '--retry-void', '--json'], limit)
  if (ended.code !== 0)
    throw new Error(`the undisturbed job ended with ${ended.code}:\n${ended.stderr}`)
  return place
}

/** Every image that the job starts containers by, with its name, which the other engine looks for. */
function copyImages({ tasks, configurations }: Plan, source: string, target: string): void {
  const ids = [
    ...tasks.map(({ image }) => image),
    ...configurations.map((one) => one.harnessDigest),
  ]
  const names = [...new Set(ids)].map((id) =>
    execFileSync(
      'docker',
      ['-H', `unix://${source}`, 'image', 'inspect', '-f', '{{index .RepoTags 0}}', id],
      { encoding: 'utf8' },
    ).trim(),
  )
  const own = [
    'closedbook/base:trixie',
    'closedbook/sglang-cpu:0.5.9',
    'closedbook/sglang-radix:0.5.3',
  ]
  const save = `docker -H unix://${source} save ${[...own, ...names].join(' ')}`
  execFileSync('sh', ['-c', `${save} | docker -H unix://${target} load -q`])
}

/** What both jobs must have planned alike, whatever their directories are called. */
const planned = ({ tasks, configurations }: Plan): object => ({
  tasks: tasks.map(({ name, digest, image }) => ({ name, digest, image })),
  configurations: configurations.map(({ name, digest, harnessDigest }) => ({
    name,
    digest,
    harnessDigest,
  })),
})

/** How often executions ended by which reason. */
function reasons(results: readonly TrialResult[]): string {
  const codes = results.flatMap(({ executions }) =>
    executions.map((one) => one.reason?.code ?? '?'),
  )
  const counted = Object.entries(Object.groupBy(codes, (code) => code))
  return counted.map(([code, those]) => `${those?.length ?? 0} ${code}`).join(', ')
}

await using scratch = await Scratch.make()
const stateDir = path.join(scratch.path, 'engine-of-its-own')
let engine: ProcessRecord = await startPrivateEngine(stateDir)
const killEngine = async (): Promise<void> => {
  process.kill(engine.pid, 'SIGKILL')
  // what it left behind may be in the way of the next for a moment
  for (let tries = 1; ; tries += 1)
    try {
      engine = await startPrivateEngine(stateDir)
      return
    } catch (error) {
      if (tries === 10) throw error
      say(`the engine did not start: ${String(error).split('\n').at(-1)}`)
    }
}
try {
  const socket = engineSocketIn(stateDir)
  say(`seed ${seed}, ${os.availableParallelism()} CPUs`)
  const calm = done ?? (await undisturbed(from ?? socket, path.join(scratch.path, 'undisturbed')))
  const expected = await readPlan(planFile(calm))
  if (from !== undefined) {
    copyImages(expected, from, socket)
    say('images are copied')
  }
  await using daemon = await TestDaemon.open(socket)
  const victims: readonly Victim[] = ['runner', 'worker', 'daemon', 'database', 'engine']
  const kills = [...victims, ...victims]
    .map((victim) => ({ victim, at: random.int(0, 1_000_000) }))
    .toSorted((a, b) => a.at - b.at)
    .map(({ victim }) => victim)
  const hurt = { kills, random, apart: 14, lingerMs: 15_000, killEngine, say }
  const { ran, killed, resumes } = await ordeal({ daemon, job, ...hurt })
  const disturbed = await readPlan(planFile(ran.jobDir))
  const standing = await resultsInStore(daemon.stateDir)
  const executions = ran.results.reduce((sum, one) => sum + one.executions.length, 0)
  say(`killed ${killed.length} times: ${killed.join(', ')}; resumed ${resumes} times`)
  say(`${ran.results.length} trials in ${executions} executions: ${reasons(ran.results)}`)
  say(`standing results a trial: ${[...new Set(standing)].join(', ')}`)
  const calmResults = await resultsOf(calm)
  say(`undisturbed: ${calmResults.length} trials: ${reasons(calmResults)}`)
  const alike = isDeepStrictEqual(planned(disturbed), planned(expected))
  const [now, before] = [totals(ran.results), totals(calmResults)]
  const same = isDeepStrictEqual(now, before)
  say(`same plan: ${alike}; totals equal to the undisturbed run: ${same}`)
  for (const [index, row] of now.entries())
    if (!isDeepStrictEqual(row, before[index]))
      say(`differs: ${JSON.stringify(row)} and undisturbed ${JSON.stringify(before[index])}`)
  process.exitCode = alike && same && standing.every((n) => n === 1) ? 0 : 1
  if (process.exitCode !== 0) {
    const kept = path.join(os.tmpdir(), path.basename(ran.jobDir))
    await cp(ran.jobDir, kept, { recursive: true })
    say(`the job is kept in ${kept}`)
  }
} catch (error) {
  say(String((error as Error).stack))
  process.exitCode = 1
} finally {
  await stopPrivateEngine(engine, stateDir)
  // a killed engine leaves its mounts
  const mounts = (await readFile('/proc/self/mountinfo', 'utf8')).split('\n')
  for (const mount of mounts.map((line) => line.split(' ')[4] ?? '').reverse())
    if (mount.startsWith(`${stateDir}/`)) execFileSync('umount', ['-l', mount])
}
