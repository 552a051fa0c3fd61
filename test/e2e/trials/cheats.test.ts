import t from 'tap'
import { Scratch } from '../../runner/support/scratch.ts'
import { TestDaemon } from '../../support/daemon.ts'
import { testEngine } from '../../support/engine.ts'
import { plantedFiles } from './cheats.ts'
import { solution } from './left-behind.ts'
import { checkRows, endOf, runScripts, type Row } from './setup.ts'

const engine = await testEngine()
t.teardown(() => engine.dispose())

/** A line that fails ends the script with a status that the check finds. */
const strictly = (rows: readonly Row[]): Row[] =>
  rows.map((row) => ({ ...row, script: `set -eu\n${row.script}` }))

t.test('an agent that plants code or results instead of working fails', async (t) => {
  await checkRows(t, engine, strictly(plantedFiles))
})

t.test('work is graded as work, whatever was planted beside it', async (t) => {
  await using daemon = await TestDaemon.open(engine.socketPath)
  await using scratch = await Scratch.make()
  const all = plantedFiles.map(({ script }) => script).join('\n')
  const { of } = await runScripts(daemon, scratch, [
    { name: 'planted-and-solved', script: `set -eu\n${solution}${all}` },
  ])
  t.match(
    endOf(of('planted-and-solved')),
    /^passed null tests_passed: functional 3 of 3, regression 2 of 2/,
  )
})
