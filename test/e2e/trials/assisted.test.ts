/** A person who runs a command in a trial's sandbox has helped or hindered the agent: recorded, graded, never scored. */
import t from 'tap'
import { Scratch } from '../../runner/support/scratch.ts'
import { TestDaemon } from '../../support/daemon.ts'
import { testEngine } from '../../support/engine.ts'
import { endOf, jobFile, openLeases, readRun, until, whileRunning } from './setup.ts'

const engine = await testEngine()
t.teardown(() => engine.dispose())

const waiting = 'touch /begun; while [ ! -e /go-on ]; do sleep 0.05; done'

t.test('a trial in which a person ran a command is void, by the operator', async (t) => {
  await using daemon = await TestDaemon.open(engine.socketPath)
  await using scratch = await Scratch.make()
  const job = await jobFile(scratch, [{ name: 'waiting', script: waiting }])
  const running = daemon.cli(['run', job, '--json'])
  const lease = await whileRunning(
    running,
    until('the script waits', async () => {
      const open = (await openLeases(daemon.stateDir)).find(({ network }) => network === 'sealed')
      if (open?.state !== 'ready') return null
      return daemon.client.readArchive(open.lease, '/begun').then(
        ({ tar }) => {
          tar.destroy()
          return open.lease
        },
        () => null,
      )
    }),
  )
  const typed = await daemon.cli(['exec', lease, '--', 'touch', '/go-on'])
  t.equal(typed.code, 0)
  const { cli, results } = await readRun(daemon, await running)
  const [result] = results
  if (result === undefined) throw new Error('no result')
  t.match(endOf(result), /^void operator assisted: a person ran a command in the sandbox/)
  t.equal(result.assisted, true)
  t.equal(result.suites.functional.planned, 3, 'graded all the same')
  t.equal(result.executions.length, 1, 'and not run again')
  t.equal(cli.code, 1, 'a planned trial is not scored')
})
