import t from 'tap'
import { testEngine } from '../../support/engine.ts'
import { leftRunning, sabotage } from './left-behind.ts'
import { checkRows } from './setup.ts'

const engine = await testEngine()
t.teardown(() => engine.dispose())

t.test('an agent that damages its sandbox has a scored trial all the same', async (t) => {
  await checkRows(t, engine, sabotage)
})

t.test('what an agent leaves running or full ends with its trial', async (t) => {
  await checkRows(t, engine, leftRunning)
})
