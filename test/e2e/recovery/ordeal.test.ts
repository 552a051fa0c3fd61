/** A small job, its processes killed at random: the long form is test/bench/ordeal.ts, run by hand. */
import t from 'tap'
import { Random } from '../../runner/support/random.ts'
import { Scratch } from '../../runner/support/scratch.ts'
import { TestDaemon } from '../../support/daemon.ts'
import { testEngine } from '../../support/engine.ts'
import { jobFile, readRun } from '../trials/setup.ts'
import { ordeal, resultsInStore, totals } from './ordeal.ts'
import { nothingLeft } from './setup.ts'

const engine = await testEngine()
t.teardown(() => engine.dispose())

const solve = 'bash -c "cat > src/tally/__init__.py" < /dev/null\n'
const look = 'ls src > /dev/null; curl -sS -m 2 https://198.51.100.7/ || true\n'

t.test('runner, worker, daemon and database killed: each trial counts once', async (t) => {
  await using scratch = await Scratch.make()
  await using calm = await TestDaemon.open(engine.socketPath)
  const file = await jobFile(scratch, [
    { name: 'breaks', script: solve },
    { name: 'looks', script: look },
    { name: 'idle', script: 'true\n' },
  ])
  const expected = await readRun(calm, await calm.cli(['run', file, '--json']))
  await using daemon = await TestDaemon.open(engine.socketPath)
  const kills = ['worker', 'database', 'runner', 'daemon'] as const
  const { ran } = await ordeal({ daemon, job: [file], kills, random: new Random(7) })
  t.strictSame(totals(ran.results), totals(expected.results))
  t.strictSame(await resultsInStore(daemon.stateDir), [1, 1, 1])
  await nothingLeft(t, daemon, engine)
})
