/** A gateway does not outlive its daemon: the execution that used it is run again from its first call. */
import path from 'node:path'
import t from 'tap'
import { TestDaemon } from '../../support/daemon.ts'
import { testEngine } from '../../support/engine.ts'
import { containersOf, endOf, readRun, root, sampleTask, until } from '../trials/setup.ts'
import { killBoth, nothingLeft, start } from './setup.ts'

const engine = await testEngine()
t.teardown(() => engine.dispose())

t.test(
  'both killed between two calls of mini-SWE-agent: counts are of the execution that ended',
  async (t) => {
    await using daemon = await TestDaemon.open(engine.socketPath)
    const replay = path.join(root, 'images/replay.yaml')
    const task = ['--task', sampleTask('reasoning-tags'), '--unqualified']
    const args = ['run', ...task, '--config', replay, '--json']
    const running = start(daemon, args)
    const called = async (): Promise<boolean> => {
      for (const { lease } of await daemon.client.leases())
        if (((await daemon.client.usage(lease).catch(() => null))?.calls ?? 0) >= 3) return true
      return false
    }
    await until('the agent has made some calls', called, 120_000)
    await killBoth(daemon, running)
    t.equal(
      (await containersOf(daemon, engine.engine)).length,
      2,
      'its sandbox and the one beside it',
    )
    await daemon.start()
    t.equal((await daemon.client.leases()).length, 1, 'the one without a gateway is taken over')
    t.equal((await containersOf(daemon, engine.engine)).length, 1)
    const { cli, results } = await readRun(daemon, await daemon.cli(['resume', '--json']))
    t.equal(cli.code, 0)
    t.match(results.map(endOf), [/^passed null tests_passed/])
    t.match(results[0]?.executions, [
      { blame: 'infra', reason: { code: 'runner_died' } },
      { blame: null },
    ])
    t.equal(results[0]?.usage.calls, results[0]?.steps, 'nothing of the first execution is counted')
    t.equal(results[0]?.reported?.steps, results[0]?.steps)
    await nothingLeft(t, daemon, engine)
  },
)
