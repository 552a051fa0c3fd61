import t from 'tap'
import { testEngine } from '../../support/engine.ts'
import { repositories, trees } from './left-behind.ts'
import { checkRows } from './setup.ts'

const engine = await testEngine()
t.teardown(() => engine.dispose())

t.test('a tree that an agent left in any state is graded or is its failure', async (t) => {
  await checkRows(t, engine, trees)
})

t.test('nothing that an agent does to its repository changes what is graded', async (t) => {
  await checkRows(t, engine, repositories)
})
