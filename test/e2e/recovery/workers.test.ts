/**
 * Several workers on one job: each trial is scored once, whoever ran it, and a worker that dies costs the executions
 * that it had under way. Each has a daemon of its own; the store is the first's.
 */
import { cp, readFile, rename, rm } from 'node:fs/promises'
import path from 'node:path'
import t from 'tap'
import { Scratch } from '../../runner/support/scratch.ts'
import { TestDaemon } from '../../support/daemon.ts'
import { testEngine } from '../../support/engine.ts'
import { recordingOf, solving, writeHarnessJob } from '../trials/command-harness.ts'
import { endOf, jobFile, openLeases, readRun, tally, until } from '../trials/setup.ts'
import { begun, letGo, nothingLeft, start, waiting } from './setup.ts'

const engine = await testEngine()
t.teardown(() => engine.dispose())

const text = (a: string | undefined, b: string | undefined): number =>
  (a ?? '') < (b ?? '') ? -1 : 1

t.test(
  'a worker that is killed costs what it ran, and the job ends with each trial once',
  async (t) => {
    await using scratch = await Scratch.make()
    await using first = await TestDaemon.open(engine.socketPath)
    await using second = await TestDaemon.open(engine.socketPath)
    const names = ['one', 'two', 'three']
    const file = await jobFile(
      scratch,
      names.map((name) => ({ name, script: waiting })),
    )
    const spec = JSON.parse(await readFile(file, 'utf8')) as object
    await scratch.write('job.json', JSON.stringify({ ...spec, concurrency: 3 }))
    const running = start(first, ['run', file, '--slots', '1', '--json'])
    const own = await begun(first)
    const worker = start(second, ['worker', '--store', first.stateDir, '--slots', '2'])
    const lost = [await begun(second)]
    lost.push(await begun(second, [lost[0]?.lease ?? '']))
    const { trials } = (await first.json(['ps', 'latest'])) as { trials: { status: string }[] }
    t.strictSame(new Set(trials.map(({ status }) => status)), new Set(['running']))
    worker.child.kill('SIGKILL')
    await worker.ended
    // its host's next worker finds what it left, and so does the runner
    const next = start(second, ['worker', '--store', first.stateDir, '--slots', '1'])
    await letGo(first, own.lease)
    const seen = lost.map(({ lease }) => lease)
    const again = await Promise.all([begun(first, [own.lease]), begun(second, seen)])
    await letGo(first, again[0].lease)
    await letGo(second, again[1].lease)
    const { cli, results, jobDir } = await readRun(first, await running.ended)
    t.equal(cli.code, 0, 'every planned trial is scored')
    t.strictSame(
      results.map(({ configuration }) => configuration.name).toSorted(),
      names.toSorted(),
    )
    for (const result of results) t.match(endOf(result), /^failed agent tests_failed/)
    const executions = results.flatMap(({ executions }) =>
      executions.map(({ reason }) => reason?.code),
    )
    t.strictSame(executions.toSorted(text), [
      ...['runner_died', 'runner_died'],
      ...['tests_failed', 'tests_failed', 'tests_failed'],
    ])
    next.child.kill('SIGINT')
    t.equal((await next.ended).code, 0, 'it was told to stop, and had nothing to finish')
    for (const daemon of [first, second]) await nothingLeft(t, daemon, engine)
    const ledger = await readFile(path.join(jobDir, 'ledger.jsonl'), 'utf8')
    t.equal(ledger.match(/"type":"recorded"/g)?.length, names.length)
  },
)

t.test('a host that lacks the files of a job takes them from the store', async (t) => {
  await using scratch = await Scratch.make()
  await using first = await TestDaemon.open(engine.socketPath)
  await using second = await TestDaemon.open(engine.socketPath)
  await cp(tally, path.join(scratch.path, 'tally'), { recursive: true })
  await scratch.write('wait.sh', waiting)
  const driven = await writeHarnessJob(scratch, 'driven', recordingOf(solving))
  const file = await scratch.write(
    'job.json',
    JSON.stringify({
      tasks: ['tally'],
      configurations: [
        { name: 'waits', harness: 'script:wait.sh' },
        { name: 'solves', harness: 'oracle' },
        path.basename(driven),
      ],
      runs: 1,
      concurrency: 1,
      require: 'any',
    }),
  )
  const running = start(first, ['run', file, '--json'])
  const own = await begun(first)
  running.child.kill('SIGKILL')
  await running.ended
  const away = `${scratch.path}-away`
  await rename(scratch.path, away)
  t.teardown(() => rm(away, { recursive: true }))
  // The host where it was planned has them no more either; its worker closes what the dead runner left.
  const ended = start(second, ['worker', '--store', first.stateDir, '--until-idle'])
  await letGo(second, (await begun(second, [own.lease])).lease)
  const { code, stderr } = await ended.ended
  t.equal(code, 0, stderr)
  const { trials } = (await first.json(['ps', 'latest'])) as {
    trials: { configuration: string; verdict: string }[]
  }
  t.match(trials.map(({ configuration, verdict }) => `${configuration} ${verdict}`).toSorted(), [
    'driven passed',
    'solves passed',
    'waits failed',
  ])
})

t.test('a cancelled job ends where it runs; a job told to stop ends what it runs', async (t) => {
  await using scratch = await Scratch.make()
  await using daemon = await TestDaemon.open(engine.socketPath)
  const scripts = ['one', 'two'].map((name) => ({ name, script: waiting }))
  const file = await jobFile(scratch, scripts)
  const running = start(daemon, ['run', file, '--slots', '1', '--json'])
  const { lease } = await begun(daemon)
  t.match(await daemon.json(['cancel', 'latest']), { recorded: 0, running: 1, waiting: 1 })
  const { code, stderr } = await running.ended
  t.equal(code, 130)
  t.match(stderr, /was cancelled/)
  await until('its sandbox is closed', async () => (await openLeases(daemon.stateDir)).length === 0)
  t.match(await daemon.json(['ps']), { jobs: [{ state: 'cancelled', recorded: 0 }] })

  const resumed = start(daemon, ['resume', '--slots', '1', '--json'])
  let said = ''
  resumed.child.stderr?.on('data', (text: Buffer) => (said += text.toString()))
  const next = await begun(daemon, [lease])
  resumed.child.kill('SIGINT')
  await until('it says what a second will do', () => /again: cancel them/.test(said))
  await letGo(daemon, next.lease)
  const stopped = await resumed.ended
  t.equal(stopped.code, 130, 'one planned trial is left')
  t.match(stopped.stderr, /1 trials? (is|are) left; go on with: closedbook resume j/)
  t.match(await daemon.json(['ps']), { jobs: [{ state: 'paused', recorded: 1, failed: 1 }] })

  const last = start(daemon, ['resume', '--json'])
  await letGo(daemon, (await begun(daemon, [lease, next.lease])).lease)
  const { cli, results } = await readRun(daemon, await last.ended)
  t.equal(cli.code, 0)
  t.strictSame(
    results
      .flatMap(({ executions }) => executions.map(({ reason }) => reason?.code))
      .toSorted(text),
    ['cancelled', 'tests_failed', 'tests_failed'],
  )
  t.match(await daemon.json(['ps']), { jobs: [{ state: 'done', recorded: 2, failed: 2 }] })
})
