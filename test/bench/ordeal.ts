/**
 * Ten kills: a job of 6 tasks x 3 runs x 2 configurations on an engine of its own, whose runner, worker, daemon,
 * database and engine are killed twice each at random moments, and the same job undisturbed. By hand, as root:
 *   node --no-warnings test/bench/ordeal.ts [SEED] [SOCKET]
 * SOCKET: an engine that has our images, so that they needn't be built.
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
import { ordeal, resultsInStore, totals, type Victim } from '../e2e/recovery/ordeal.ts'
import { readRun, tally } from '../e2e/trials/setup.ts'
import { Random } from '../runner/support/random.ts'
import { Scratch } from '../runner/support/scratch.ts'
import { TestDaemon } from '../support/daemon.ts'

const seed = Number(process.argv[2] ?? 1)
const from = process.argv[3]
const random = new Random(seed)
const say = (what: string): void =>
  console.log(`[${(performance.now() / 1000).toFixed(0).padStart(5)} s] ${what}`)

function copyImage(name: string, source: string, target: string): void {
  const docker = (socket: string): string => `docker -H unix://${socket}`
  execFileSync('sh', ['-c', `${docker(source)} save ${name} | ${docker(target)} load`])
}

await using scratch = await Scratch.make()
const names = ['one', 'two', 'three', 'four', 'five', 'six']
for (const name of names) {
  const directory = path.join(scratch.path, name)
  await cp(tally, directory, { recursive: true })
  const toml = await readFile(path.join(directory, 'task.toml'), 'utf8')
  await scratch.write(`${name}/task.toml`, toml.replace('fixture/tally', `fixture/${name}`))
}
await scratch.write('looks.sh', 'ls src; curl -sS -m 2 https://198.51.100.7/ || true\n')
const file = await scratch.write(
  'job.json',
  JSON.stringify({
    tasks: names,
    configurations: [
      { name: 'solves', harness: 'oracle' },
      { name: 'looks', harness: 'script:looks.sh' },
    ],
    runs: 3,
    concurrency: { trials: 3 },
  }),
)

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
  if (from !== undefined)
    for (const name of ['closedbook/base:trixie', 'closedbook/sglang-cpu:0.5.9'])
      copyImage(name, from, socket)
  say(`seed ${seed}, ${os.availableParallelism()} CPUs; undisturbed first`)
  await using calm = await TestDaemon.open(socket)
  const limit = { timeoutMs: 1_200_000 }
  let ended = await calm.cli(['run', file, '--json'], limit)
  // an engine that is out of breath can spoil a trial without being killed
  while (ended.code === 1) ended = await calm.cli(['resume', '--retry-void', '--json'], limit)
  const expected = await readRun(calm, ended)
  say(`undisturbed: exit ${expected.cli.code}, ${expected.results.length} trials`)
  await using daemon = await TestDaemon.open(socket)
  const victims: readonly Victim[] = ['runner', 'worker', 'daemon', 'database', 'engine']
  const kills = [...victims, ...victims]
    .map((victim) => ({ victim, at: random.int(0, 1_000_000) }))
    .toSorted((a, b) => a.at - b.at)
    .map(({ victim }) => victim)
  const { ran, killed, resumes } = await ordeal({ daemon, file, kills, random, killEngine, say })
  const standing = await resultsInStore(daemon.stateDir)
  const executions = ran.results.reduce((sum, one) => sum + one.executions.length, 0)
  const same = isDeepStrictEqual(totals(ran.results), totals(expected.results))
  say(`killed ${killed.length} times: ${killed.join(', ')}; resumed ${resumes} times`)
  say(`${ran.results.length} trials in ${executions} executions`)
  say(`standing results a trial: ${[...new Set(standing)].join(', ')}`)
  say(`totals equal to the undisturbed run: ${same}`)
  const before = totals(expected.results)
  for (const [index, row] of totals(ran.results).entries())
    if (!isDeepStrictEqual(row, before[index]))
      say(`differs: ${JSON.stringify(row)} and undisturbed ${JSON.stringify(before[index])}`)
  process.exitCode = same && standing.every((n) => n === 1) ? 0 : 1
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
