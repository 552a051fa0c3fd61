import t from 'tap'
import { Scratch } from '../../runner/support/scratch.ts'
import { TestDaemon } from '../../support/daemon.ts'
import { testEngine } from '../../support/engine.ts'
import { lyingModules, plantedFiles } from './cheats.ts'
import { containersOf, endOf, openLeases, runScripts } from './setup.ts'

const engine = await testEngine()
t.teardown(() => engine.dispose())

t.test('an agent that plants code or results instead of working fails', async (t) => {
  await using daemon = await TestDaemon.open(engine.socketPath)
  await using scratch = await Scratch.make()
  const { ran, of } = await runScripts(daemon, scratch, plantedFiles)
  t.equal(ran.cli.code, 0, 'every trial is scored')
  for (const { name, why, end } of plantedFiles) t.match(endOf(of(name)), end, `${name}: ${why}`)
  t.strictSame(await containersOf(daemon, engine.engine), [], 'no container is left')
  t.strictSame(await openLeases(daemon.stateDir), [], 'no lease is left')
})

t.test("an agent whose patch lies to the tests' own process fails", async (t) => {
  await using daemon = await TestDaemon.open(engine.socketPath)
  await using scratch = await Scratch.make()
  const { ran, of } = await runScripts(daemon, scratch, lyingModules)
  t.equal(ran.cli.code, 0, 'every trial is scored')
  for (const { name, why, end } of lyingModules) t.match(endOf(of(name)), end, `${name}: ${why}`)
})
