/**
 * `kill -9` of daemon and runner in the middle of a trial costs the execution in flight and nothing else: nothing is
 * left unowned, `resume` finishes the job, and the fault is counted as infra.
 */
import { readdir } from 'node:fs/promises'
import path from 'node:path'
import t from 'tap'
import { Scratch } from '../../runner/support/scratch.ts'
import { TestDaemon } from '../../support/daemon.ts'
import { testEngine } from '../../support/engine.ts'
import { containersOf, endOf, executionDirs, readRun, tally, type Ran } from '../trials/setup.ts'
import {
  begun,
  halt,
  killBoth,
  letGo,
  nothingLeft,
  start,
  waiting,
  whenLease,
  type JournalLease,
  type Running,
} from './setup.ts'

const engine = await testEngine()
t.teardown(() => engine.dispose())
const scratch = await Scratch.make()
t.teardown(() => scratch[Symbol.asyncDispose]())
const script = await scratch.write('waiting.sh', waiting)

const run = (harness: string): string[] => ['run', '--task', tally, '--harness', harness, '--json']
const resume = async (daemon: TestDaemon): Promise<Ran> =>
  readRun(daemon, await daemon.cli(['resume', '--json']))

const sealing = ({ state, request }: JournalLease): boolean =>
  request.network === 'sealed' && ['creating', 'sealing', 'proving'].includes(state)
const verifying = ({ state, request }: JournalLease): boolean =>
  request.network === 'offline' && request.mounts.length > 0 && state === 'ready'

const moments = [
  { when: 'while the sandbox is being sealed', is: sealing, contains: 0 },
  { when: 'while the hidden tests run', is: verifying, contains: 1 },
] as const

for (const { when, is, contains } of moments)
  t.test(`both killed ${when}: the job finishes and nothing is left`, async (t) => {
    await using daemon = await TestDaemon.open(engine.socketPath)
    const running = start(daemon, run('oracle'))
    await whenLease(daemon, is, () => halt([daemon.pid, running.child.pid ?? 0]))
    t.equal((await killBoth(daemon, running)).signal, 'SIGKILL')
    t.ok(
      (await containersOf(daemon, engine.engine)).length >= contains,
      'its containers outlive it',
    )
    await daemon.start()
    const ran = await resume(daemon)
    t.equal(ran.cli.code, 0, 'every planned trial is scored')
    t.match(ran.results.map(endOf), [/^passed null tests_passed/])
    t.match(ran.results[0]?.executions, [
      { blame: 'infra', reason: { code: 'runner_died' } },
      { blame: null },
    ])
    t.equal(ran.results[0]?.executions.length, 2)
    t.equal((await executionDirs(ran.jobDir, ran.results[0]?.trial ?? '')).length, 2)
    await nothingLeft(t, daemon, engine)
  })

t.test('both killed while the agent works: three times, and it is void', async (t) => {
  await using daemon = await TestDaemon.open(engine.socketPath)
  let running: Running = start(daemon, run(`script:${script}`))
  const killed: string[] = []
  for (let time = 1; time <= 3; time += 1) {
    killed.push((await begun(daemon, killed)).lease)
    t.equal((await killBoth(daemon, running)).signal, 'SIGKILL')
    t.ok((await containersOf(daemon, engine.engine)).length >= 1, 'the sandbox outlives them')
    await daemon.start()
    t.match(await daemon.client.leases(), [{ lease: killed.at(-1), state: 'ready' }], 'adopted')
    running = start(daemon, ['resume', '--json'])
  }
  const { cli, results, jobDir } = await readRun(daemon, await running.ended)
  t.equal(cli.code, 1, 'a planned trial is not scored')
  t.match(results.map(endOf), [/^void infra executions_spent: .*3 executions/])
  t.strictSame(
    results[0]?.executions.map(({ blame, reason }) => `${blame} ${reason?.code}`),
    Array.from({ length: 3 }, () => 'infra runner_died'),
  )
  t.equal((await executionDirs(jobDir, results[0]?.trial ?? '')).length, 3, 'evidence of each')
  await nothingLeft(t, daemon, engine)
  const closed = await readdir(path.join(daemon.stateDir, 'leases', 'closed'))
  for (const lease of killed) t.ok(closed.includes(`${lease}.json`))
})

t.test('both killed while the agent works: once, and the next execution is scored', async (t) => {
  await using daemon = await TestDaemon.open(engine.socketPath)
  const running = start(daemon, run(`script:${script}`))
  const { lease } = await begun(daemon)
  await killBoth(daemon, running)
  await daemon.start()
  const again = start(daemon, ['resume', '--json'])
  await letGo(daemon, (await begun(daemon, [lease])).lease)
  const { cli, results } = await readRun(daemon, await again.ended)
  t.equal(cli.code, 0)
  t.match(results.map(endOf), [/^failed agent tests_failed/])
  t.match(results[0]?.executions, [
    { blame: 'infra', reason: { code: 'runner_died' } },
    { blame: 'agent' },
  ])
  await nothingLeft(t, daemon, engine)
})
