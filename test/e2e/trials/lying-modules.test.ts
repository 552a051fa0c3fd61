import t from 'tap'
import { testEngine } from '../../support/engine.ts'
import { hangingModules, lyingModules } from './cheats.ts'
import { checkRows } from './setup.ts'

const engine = await testEngine()
t.teardown(() => engine.dispose())

t.test("an agent whose patch lies to the tests' own process fails", async (t) => {
  await checkRows(t, engine, lyingModules)
})

t.test('an agent whose patch never lets the tests end fails', async (t) => {
  await checkRows(t, engine, hangingModules)
})
