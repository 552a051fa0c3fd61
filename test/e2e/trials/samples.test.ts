/** The sample tasks on the small image by the harnesses without a model: what they promise to their reviewers. */
import t from 'tap'
import { Scratch } from '../../runner/support/scratch.ts'
import { TestDaemon } from '../../support/daemon.ts'
import { testEngine } from '../../support/engine.ts'
import { endOf, readRun, sampleTask } from './setup.ts'

const names = [
  'batch-errors',
  'chat-template-vesper',
  'parsed-variables',
  'reasoning-tags',
  'tool-call-detector-orrery',
]
const engine = await testEngine()
t.teardown(() => engine.dispose())

t.test(
  'of each sample task the no-op fails every requested test alone, and the oracle passes',
  async (t) => {
    await using daemon = await TestDaemon.open(engine.socketPath)
    await using scratch = await Scratch.make()
    const job = await scratch.write(
      'job.yaml',
      JSON.stringify({
        tasks: names.map(sampleTask),
        configurations: [
          { name: 'noop', harness: 'noop' },
          { name: 'oracle', harness: 'oracle' },
        ],
        runs: 1,
        concurrency: 2,
      }),
    )
    const cli = await daemon.cli(['run', job, '--json'])
    const { results } = await readRun(daemon, cli)
    t.equal(cli.code, 0)
    t.equal(results.length, 2 * names.length)
    for (const result of results) {
      const { functional, regression } = result.suites
      const name = `${result.configuration.name} of ${result.task.name}`
      t.ok(functional.planned >= 20, `${name}: ${functional.planned} functional tests`)
      t.ok(regression.planned >= 10, `${name}: ${regression.planned} regression tests`)
      t.equal(functional.missing + regression.missing, 0, `${name}: every planned test is reported`)
      t.equal(regression.passed, regression.planned, `${name}: what existed works`)
      const done = result.configuration.name === 'oracle'
      t.match(endOf(result), done ? /^passed null / : /^failed agent tests_failed: /, name)
      t.equal(functional.passed, done ? functional.planned : 0, `${name}: requested behaviour`)
      t.equal(functional.failed, done ? 0 : functional.planned, `${name}: requested behaviour`)
      t.equal(result.steps, done ? 1 : 0, `${name}: steps`)
    }
  },
)
