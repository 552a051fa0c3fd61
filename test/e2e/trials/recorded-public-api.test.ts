import t from 'tap'
import { testEngine } from '../../support/engine.ts'
import { checkRecordedRuns } from './recorded-runs.ts'

const engine = await testEngine()
t.teardown(() => engine.dispose())

t.test(
  'mini-SWE-agent adds a request parameter in one recorded run and not in the other',
  async (t) => {
    await checkRecordedRuns(t, engine, 'reasoning-tags')
  },
)
