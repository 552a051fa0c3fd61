import { createHash } from 'node:crypto'
import { appendFileSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import t from 'tap'
import type { Comparison } from '../../../runner/report/compare.ts'
import type { Report } from '../../../runner/report/report.ts'
import type { RegradeRecord } from '../../../runner/regrade/record.ts'
import { writeTrivialTask } from '../../bench/trivial-task.ts'
import { TestDaemon } from '../../support/daemon.ts'
import { testEngine } from '../../support/engine.ts'
import { Scratch } from '../support/scratch.ts'

/** Every file of a directory with the digest of its bytes. */
const contentOf = (dir: string): readonly string[] =>
  readdirSync(dir, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => path.join(entry.parentPath, entry.name))
    .map((file) => `${file} ${createHash('sha256').update(readFileSync(file)).digest('hex')}`)
    .toSorted()

void t.test(
  'stored patches are graded again with the tests as they are now, and the source stays',
  async (t) => {
    await using scratch = await Scratch.make()
    await using engine = await testEngine()
    await using daemon = await TestDaemon.open(engine.socketPath)
    const task = await writeTrivialTask(path.join(scratch.path, 'task'))
    const script = await scratch.write('agent.sh', 'echo 42 > answer.txt\n')
    const job = await scratch.write(
      'job.yaml',
      JSON.stringify({
        tasks: [task],
        runs: 1,
        configurations: [
          { name: 'nothing', harness: 'noop' },
          { name: 'writer', harness: `script:${script}` },
        ],
      }),
    )
    const source = path.join(scratch.path, 'source')
    const ran = await daemon.cli(['run', job, '--out', source, '--json'])
    t.equal(ran.code, 0, ran.stderr)
    const { trials: told } = JSON.parse(ran.stdout.trim().split('\n').at(-1) ?? '') as {
      trials: { trial: string; configuration: string }[]
    }
    const idOf = (name: string): string =>
      told.find(({ configuration }) => configuration === name)?.trial ?? ''
    const writer = idOf('writer')
    const before = contentOf(source)
    const verdicts = ({ trials }: RegradeRecord): string[] =>
      trials.map(
        (one) => `${one.configuration} ${one.before.verdict} ${one.after.verdict} ${one.how}`,
      )
    const again = async (...args: string[]) =>
      (await daemon.json(['regrade', source, ...args])) as RegradeRecord & { directory: string }

    const same = await again('--trial', writer, '--out', path.join(scratch.path, 'same'))
    t.strictSame(verdicts(same), ['writer passed passed graded'])
    t.strictSame(contentOf(source), before, 'the source is as it was')

    // Other tests: what was passed is so no more.
    const tests = path.join(task, 'tests', 'exists.sh')
    writeFileSync(
      tests,
      readFileSync(tests, 'utf8').replace(
        '[ -e "$1" ]',
        'grep -q 43 "$1" || [ "$1" = readme.txt ]',
      ),
    )
    const stricter = await daemon.cli([
      'regrade',
      source,
      '--out',
      path.join(scratch.path, 'stricter'),
    ])
    t.equal(stricter.code, 0, stricter.stderr)
    t.match(stricter.stdout, /2 of 2 trials graded again, 1 verdict changed/)
    t.match(stricter.stdout, /closedbook\/trivial.*writer.*1.*passed.*failed/)
    t.match(stricter.stdout, /closedbook\/trivial: other tests than planned/)
    t.strictSame(contentOf(source), before)
    const report = (await daemon.json(['report', path.join(scratch.path, 'stricter')])) as Report
    t.match(report, {
      complete: true,
      configurations: [
        { name: 'nothing', rate: { passAt1: 0 } },
        { name: 'writer', rate: { passAt1: 0 } },
      ],
    })
    t.match(
      report.notices.map(({ code }) => code),
      ['regraded', 'regraded'],
    )
    const compared = (await daemon.json([
      'compare',
      `${source}:writer`,
      `${source}:nothing`,
    ])) as Comparison
    t.match(compared, { passAt1: { difference: 1 }, test: { p: 1, better: 1 } })
    const apart = (await daemon.json([
      'compare',
      `${source}:writer`,
      `${path.join(scratch.path, 'stricter')}:writer`,
    ])) as Comparison
    t.match(
      apart,
      { tasks: { length: 0 }, changed: ['closedbook/trivial'] },
      'other tests are another task',
    )

    // Evidence that is not what was graded is no evidence.
    const executions = path.join(source, 'trials', writer, 'executions')
    appendFileSync(path.join(executions, readdirSync(executions)[0] ?? '', 'patch.diff'), '\n')
    const forged = await daemon.cli([
      'regrade',
      source,
      '--trial',
      writer,
      '--out',
      path.join(scratch.path, 'forged'),
    ])
    t.equal(forged.code, 1)
    t.match(forged.stdout, /passed.*void.*can't be graded again: what was collected/)
    t.match(forged.stdout, /NOT COMPLETE: 1 trial could not be graded again/)

    // Another image is refused, unless told which.
    appendFileSync(path.join(task, 'environment', 'Dockerfile'), 'RUN echo more > /more.txt\n')
    const refused = await daemon.cli([
      'regrade',
      source,
      '--out',
      path.join(scratch.path, 'refused'),
    ])
    t.equal(refused.code, 65)
    t.match(
      refused.stderr,
      /the image of task closedbook\/trivial was sha256:\w+ and is sha256:\w+; .*--image planned/,
    )
    const nothing = report.trials.find(({ configuration }) => configuration === 'nothing')
    t.equal(nothing?.evidence?.includes('/executions/x1-'), true)
    const planned = await again(
      ...[
        '--image',
        'planned',
        '--trial',
        idOf('nothing'),
        '--out',
        path.join(scratch.path, 'planned'),
      ],
    )
    t.match(verdicts(planned), ['nothing failed failed graded'])
  },
)
