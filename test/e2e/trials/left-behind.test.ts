import t from 'tap'
import { Scratch } from '../../runner/support/scratch.ts'
import { TestDaemon } from '../../support/daemon.ts'
import { testEngine } from '../../support/engine.ts'
import { leftRunning, repositories, sabotage, trees, type Remains } from './left-behind.ts'
import { containersOf, endOf, openLeases, runScripts } from './setup.ts'

const engine = await testEngine()
t.teardown(() => engine.dispose())

const groups: readonly (readonly [string, readonly Remains[]])[] = [
  ['a tree that an agent left in any state is graded or is its failure', trees],
  ['nothing that an agent does to its repository changes what is graded', repositories],
  ['an agent that damages its sandbox has a scored trial all the same', sabotage],
  ['what an agent leaves running or full ends with its trial', leftRunning],
]

for (const [name, rows] of groups)
  t.test(name, async (t) => {
    await using daemon = await TestDaemon.open(engine.socketPath)
    await using scratch = await Scratch.make()
    const { ran, of } = await runScripts(daemon, scratch, rows)
    t.equal(ran.cli.code, 0, 'every trial is scored')
    for (const { name: row, why, end } of rows) t.match(endOf(of(row)), end, `${row}: ${why}`)
    t.strictSame(await containersOf(daemon, engine.engine), [], 'no container is left')
    t.strictSame(await openLeases(daemon.stateDir), [], 'no lease is left')
  })
