/** A runner that lives outlasts its daemon and its containers: what was spoilt is run again, a bounded number of times. */
import t from 'tap'
import { readPlan } from '../../../runner/job/plan.ts'
import { planFile } from '../../../runner/job/layout.ts'
import { Scratch } from '../../runner/support/scratch.ts'
import { TestDaemon } from '../../support/daemon.ts'
import { testEngine } from '../../support/engine.ts'
import { endOf, jobFile, readRun, tally, until } from '../trials/setup.ts'
import { begun, halt, letGo, nothingLeft, start, waiting, whenLease } from './setup.ts'
import path from 'node:path'
import { listJobs } from '../../../runner/job/layout.ts'

const engine = await testEngine()
t.teardown(() => engine.dispose())
const scratch = await Scratch.make()
t.teardown(() => scratch[Symbol.asyncDispose]())
const script = await scratch.write('waiting.sh', waiting)

t.test('a daemon killed while the agent works: the runner waits for the next one', async (t) => {
  await using daemon = await TestDaemon.open(engine.socketPath)
  const running = start(daemon, ['run', '--task', tally, '--harness', `script:${script}`, '--json'])
  let said = ''
  running.child.stderr?.on('data', (text: Buffer) => (said += text.toString()))
  const { lease } = await begun(daemon)
  await daemon.kill()
  await until('the runner has noticed', () => said.includes('it is run again'))
  await daemon.start()
  await letGo(daemon, (await begun(daemon, [lease])).lease)
  const { cli, results } = await readRun(daemon, await running.ended)
  t.equal(cli.code, 0)
  t.match(results.map(endOf), [/^failed agent tests_failed/])
  t.match(results[0]?.executions, [{ blame: 'infra' }, { blame: 'agent' }])
  t.equal(results[0]?.executions.length, 2)
  await nothingLeft(t, daemon, engine)
})

t.test('a daemon killed while the hidden tests run: the same', async (t) => {
  await using daemon = await TestDaemon.open(engine.socketPath)
  const running = start(daemon, ['run', '--task', tally, '--harness', 'oracle', '--json'])
  await whenLease(
    daemon,
    ({ request, state }) =>
      request.mounts.length > 0 && request.network === 'offline' && state === 'ready',
    () => halt([daemon.pid]),
  )
  await daemon.kill()
  await daemon.start()
  const { cli, results } = await readRun(daemon, await running.ended)
  t.equal(cli.code, 0, cli.stderr)
  t.match(results.map(endOf), [/^passed null tests_passed/])
  t.match(results[0]?.executions, [{ blame: 'infra' }, { blame: null }])
  t.equal(results[0]?.executions.length, 2)
  await nothingLeft(t, daemon, engine)
})

t.test('containers removed under the agent: run again twice, then void', async (t) => {
  await using daemon = await TestDaemon.open(engine.socketPath)
  const job = await jobFile(scratch, [
    { name: 'once', script: waiting },
    { name: 'always', script: waiting },
  ])
  const running = start(daemon, ['run', job, '--json'])
  const seen: string[] = []
  const removed = { once: 0, always: 0 }
  const jobsDir = path.join(daemon.stateDir, 'jobs')
  while (removed.once < 2 || removed.always < 3) {
    const open = await begun(daemon, seen)
    seen.push(open.lease)
    const plan = await readPlan(planFile(path.join(jobsDir, (await listJobs(jobsDir))[0] ?? '')))
    const { configuration } = plan.trials.find(({ trial }) => trial === open.trial) ?? {}
    const name = configuration === 'once' ? 'once' : 'always'
    removed[name] += 1
    if (name === 'once' && removed.once === 2) await letGo(daemon, open.lease)
    else await engine.engine.removeContainer(open.container ?? '')
  }
  const { cli, results } = await readRun(daemon, await running.ended)
  t.equal(cli.code, 1, 'one planned trial is not scored')
  const of = (name: string) => results.find(({ configuration }) => configuration.name === name)
  const ends = (name: string) =>
    of(name)?.executions.map(({ blame, reason }) => `${blame} ${reason?.code}`)
  t.strictSame(
    [of('once')?.verdict, ends('once')],
    ['failed', ['infra sandbox_gone', 'agent tests_failed']],
  )
  t.strictSame(
    [of('always')?.verdict, of('always')?.blame, ends('always')],
    ['void', 'infra', Array.from({ length: 3 }, () => 'infra sandbox_gone')],
  )
  t.match(cli.stderr, /once · run 1: .*\[sandbox_gone\]; it is run again/)
  t.match(cli.stderr, /always · run 1: .*\[sandbox_gone\]; it is void/)
  await nothingLeft(t, daemon, engine)
})

t.test(
  'an interrupted runner closes what it opened, and interrupts burn no execution',
  async (t) => {
    await using daemon = await TestDaemon.open(engine.socketPath)
    let running = start(daemon, ['run', '--task', tally, '--harness', `script:${script}`, '--json'])
    const seen: string[] = []
    for (const name of ['SIGINT', 'SIGTERM', 'SIGINT'] as const) {
      seen.push((await begun(daemon, seen)).lease)
      const { ended } = running
      let said = ''
      running.child.stderr?.on('data', (text: Buffer) => (said += text.toString()))
      running.child.kill(name)
      if (name === 'SIGINT') {
        await until('it says what a second will do', () => /again: cancel them/.test(said))
        t.equal((await daemon.client.leases()).length, 1, 'what runs goes on')
        running.child.kill(name)
      }
      const { code, stdout, stderr } = await ended
      t.equal(code, 130, name)
      t.equal(stdout, '')
      t.match(stderr, /go on with: closedbook resume j\d+/)
      await nothingLeft(t, daemon, engine)
      running = start(daemon, ['resume', '--json'])
    }
    await letGo(daemon, (await begun(daemon, seen)).lease)
    const { cli, results } = await readRun(daemon, await running.ended)
    t.equal(cli.code, 0)
    t.strictSame(
      results[0]?.executions.map(({ blame, reason }) => `${blame} ${reason?.code}`),
      [...Array.from({ length: 3 }, () => 'operator interrupted'), 'agent tests_failed'],
    )
    await nothingLeft(t, daemon, engine)
  },
)
