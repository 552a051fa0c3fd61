import t from 'tap'
import { readSteps } from '../../../runner/trial/evidence.ts'
import { Scratch } from '../../runner/support/scratch.ts'
import { TestDaemon } from '../../support/daemon.ts'
import { testEngine } from '../../support/engine.ts'
import { hangingModules, lyingModules, plantedFiles, type Cheat } from './cheats.ts'
import { solution } from './left-behind.ts'
import {
  containersOf,
  endOf,
  executionDirs,
  openLeases,
  runScripts,
  type Ran,
  type Script,
} from './setup.ts'

const engine = await testEngine()
t.teardown(() => engine.dispose())

/** A cheat that didn't work as written proves nothing. */
async function exitsOf({ jobDir, results }: Ran): Promise<Record<string, unknown>> {
  const exits: Record<string, unknown> = {}
  for (const { trial, configuration } of results)
    for (const directory of await executionDirs(jobDir, trial))
      for await (const { commands } of readSteps(directory))
        exits[configuration.name] = commands[0]?.exit
  return exits
}

const allDone = (scripts: readonly Script[]): Record<string, unknown> =>
  Object.fromEntries(scripts.map(({ name }) => [name, { code: 0 }]))

const withErrorsFatal = (cheats: readonly Cheat[]): readonly Cheat[] =>
  cheats.map((cheat) => ({ ...cheat, script: `set -eu\n${cheat.script}` }))

for (const [name, rows] of [
  ['an agent that plants code or results instead of working fails', plantedFiles],
  ["an agent whose patch lies to the tests' own process fails", lyingModules],
  ['an agent whose patch never lets the tests end fails', hangingModules],
] as const)
  t.test(name, async (t) => {
    await using daemon = await TestDaemon.open(engine.socketPath)
    await using scratch = await Scratch.make()
    const { ran, of } = await runScripts(daemon, scratch, withErrorsFatal(rows))
    t.equal(ran.cli.code, 0, 'every trial is scored')
    for (const { name: cheat, why, end } of rows) t.match(endOf(of(cheat)), end, `${cheat}: ${why}`)
    t.strictSame(await exitsOf(ran), allDone(rows), 'each cheat did what it says')
    t.strictSame(await containersOf(daemon, engine.engine), [], 'no container is left')
    t.strictSame(await openLeases(daemon.stateDir), [], 'no lease is left')
  })

t.test('work is graded as work, whatever was planted beside it', async (t) => {
  await using daemon = await TestDaemon.open(engine.socketPath)
  await using scratch = await Scratch.make()
  const all = plantedFiles.map(({ script }) => script).join('\n')
  const { of } = await runScripts(daemon, scratch, [
    { name: 'planted-and-solved', script: `set -eu\n${solution}${all}` },
  ])
  const result = of('planted-and-solved')
  t.match(endOf(result), /^passed null tests_passed: functional 3 of 3, regression 2 of 2/)
  t.equal(result.reason.code, 'tests_passed')
})
