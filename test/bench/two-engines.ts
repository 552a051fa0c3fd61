/**
 * Two workers on two engines in one job, one of them with (stand-in) H100s and killed on the way. By hand, as root:
 *   node --no-warnings test/bench/two-engines.ts SOCKET
 * SOCKET: an engine without GPUs that has our images. The other is started, and gets the task's image by save and load.
 */
import { execFileSync } from 'node:child_process'
import { cp, readFile } from 'node:fs/promises'
import path from 'node:path'
import { Store } from '../../runner/store/store.ts'
import { resultsInStore } from '../e2e/recovery/ordeal.ts'
import { start } from '../e2e/recovery/setup.ts'
import { readRun, tally, until } from '../e2e/trials/setup.ts'
import { Scratch } from '../runner/support/scratch.ts'
import { TestDaemon } from '../support/daemon.ts'
import { GpuHost } from '../support/gpu-host.ts'

const socket = process.argv[2] ?? '/var/run/docker.sock'
const limitMs = 1_200_000
const say = (what: string): void =>
  console.log(`[${(performance.now() / 1000).toFixed(0).padStart(5)} s] ${what}`)

await using scratch = await Scratch.make()
for (const [name, hardware] of [
  ['one', 'cpu'],
  ['two', 'cpu'],
  ['kernel', 'h100'],
] as const) {
  await cp(tally, path.join(scratch.path, name), { recursive: true })
  const toml = await readFile(path.join(scratch.path, name, 'task.toml'), 'utf8')
  const changed = toml
    .replace('fixture/tally', `fixture/${name}`)
    .replace(/^hardware = .*$/m, '')
    .replace('[closedbook]', `[closedbook]\nhardware = "${hardware}"`)
  await scratch.write(`${name}/task.toml`, changed)
}
await scratch.write('slow.sh', 'sleep 3\n')
const file = await scratch.write(
  'job.json',
  JSON.stringify({
    tasks: ['one', 'two', 'kernel'],
    configurations: [{ name: 'solves', harness: 'oracle' }, { harness: 'script:slow.sh' }],
    runs: 2,
    concurrency: 4,
  }),
)

interface Ran {
  readonly task: string
  readonly daemon: string
  readonly reason: string | null
}

await using gpus = await GpuHost.open()
await using first = await TestDaemon.open(socket)
await using second = await TestDaemon.open(gpus.engine.socketPath, { gpu: gpus.config })
const { plan } = (await first.json(['plan', '--task', tally, '--harness', 'noop'])) as {
  plan: { tasks: { image: string }[] }
}
const image = plan.tasks[0]?.image ?? ''
const docker = (at: string): string => `docker -H unix://${at}`
execFileSync('sh', [
  '-c',
  `${docker(socket)} save ${image} | ${docker(gpus.engine.socketPath)} load`,
])
say(`both engines have ${image.slice(0, 19)}`)

const args = ['worker', '--store', first.stateDir, '--slots', '2']
let worker = start(second, args, limitMs)
await until('the worker is there', () => existsWorker(), 60_000)
const running = start(first, ['run', file, '--slots', '1', '--json'], limitMs)
const executions = async (): Promise<Ran[]> => {
  await using store = await Store.open({ stateDir: first.stateDir, heartbeatSeconds: 120 })
  return await store.database.rows<Ran>(
    `select t.task, w.daemon, e.reason ->> 'code' as reason from closedbook.executions e
     join closedbook.trials t using (trial) join closedbook.workers w using (worker) order by e.started_at`,
  )
}
const onSecond = (one: Ran): boolean => one.daemon.startsWith(second.stateDir)
await until(
  'the second worker runs something',
  async () => (await executions()).filter(onSecond).length >= 3,
  300_000,
)
worker.child.kill('SIGKILL')
await worker.ended
say('the second worker is killed; another begins')
worker = start(second, args, limitMs)
const { cli, results } = await readRun(first, await running.ended)
worker.child.kill('SIGTERM')
await worker.ended
const all = await executions()
say(`exit ${cli.code}: ${results.length} trials in ${all.length} executions`)
say(
  `on the first engine ${all.filter((one) => !onSecond(one)).length}, on the second ${all.filter(onSecond).length}`,
)
say(`spoilt: ${all.filter(({ reason }) => reason === 'runner_died').length} by the kill`)
const strays = all.filter((one) => one.task === 'fixture/kernel' && !onSecond(one))
say(`H100 trials on the host without one: ${strays.length}`)
const standing = await resultsInStore(first.stateDir)
say(`standing results a trial: ${[...new Set(standing)].join(', ')}`)
process.exitCode = cli.code === 0 && strays.length === 0 && standing.every((n) => n === 1) ? 0 : 1

async function existsWorker(): Promise<boolean> {
  await using store = await Store.openIfThere({ stateDir: first.stateDir, heartbeatSeconds: 120 })
  if (store === null) return false
  return (await store.database.rows('select worker from closedbook.workers')).length > 0
}
