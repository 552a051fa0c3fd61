/** A harness that is described by a file runs inside the task's sandbox: metered, recorded, and judged by what we saw. */
import { execFile } from 'node:child_process'
import { readFile } from 'node:fs/promises'
import path from 'node:path'
import { promisify } from 'node:util'
import t from 'tap'
import { readSteps } from '../../../runner/trial/evidence.ts'
import { Scratch } from '../../runner/support/scratch.ts'
import { TestDaemon } from '../../support/daemon.ts'
import { testEngine } from '../../support/engine.ts'
import { start } from '../recovery/setup.ts'
import {
  leftOpen,
  recordingOf,
  solving,
  waitingSolution,
  writeHarnessJob,
} from './command-harness.ts'
import { endOf, executionDirs, readRun, tally, until } from './setup.ts'

const engine = await testEngine()
t.teardown(() => engine.dispose())
const scratch = await Scratch.make()
t.teardown(() => scratch[Symbol.asyncDispose]())

const runWith = (config: string): string[] => [
  ...['run', '--task', tally, '--config', config],
  ...['--unqualified', '--json'],
]

/** What was put out; a mark may come in the middle of a line. */
const spoken = (cast: string): string =>
  cast
    .trim()
    .split('\n')
    .slice(1)
    .map((line) => JSON.parse(line) as [number, string, string])
    .filter(([, kind]) => kind === 'o')
    .map(([, , text]) => text)
    .join('')

t.test('it solves the task; calls, tokens, steps, recording and denials are ours', async (t) => {
  await using daemon = await TestDaemon.open(engine.socketPath)
  const config = await writeHarnessJob(scratch, 'solving', recordingOf(solving))
  const { cli, results, jobDir } = await readRun(daemon, await daemon.cli(runWith(config)))
  t.match(results.map(endOf), [/^passed null tests_passed/], cli.stderr)
  const [result] = results
  t.match(result, {
    assisted: false,
    usage: { calls: solving.length, inputTokens: 100 * solving.length },
    steps: solving.length,
    configuration: { harness: /^command:/ },
    egress: { denied: 2, byReason: { dns_query: 2 } },
  })
  const [directory = ''] = await executionDirs(jobDir, result?.trial ?? '')
  const steps = []
  for await (const step of readSteps(directory)) steps.push(step)
  t.strictSame(
    steps.map(({ commands }) => commands.map(({ command }) => command)),
    solving.map(({ command }) => (command === undefined ? [] : [command])),
  )
  const cast = await readFile(path.join(directory, 'terminal.cast'), 'utf8')
  t.match(cast.split('\n')[0], /"version": ?2/)
  t.match(spoken(cast), 'model: first, a look')
  t.match(cast, /"m",\s*"step 1: ls; getent/, 'a step is marked where it begins')
  t.match(cast, /"m",\s*"blocked nowhere\.example:53/, 'a refused attempt is marked in it')
  t.match(await readFile(path.join(directory, 'trajectory.json'), 'utf8'), 'first, a look')
  t.strictSame(await leftOpen(daemon), [], 'nothing is left of it')
})

t.test(
  'kill -9 of the daemon amid a command: the same execution goes on, and nothing is lost',
  async (t) => {
    await using daemon = await TestDaemon.open(engine.socketPath)
    const config = await writeHarnessJob(scratch, 'waiting', recordingOf(waitingSolution))
    const running = start(daemon, runWith(config))
    const session = await until('the command has begun', async () => {
      const [pty] = await daemon.client.ptys()
      return pty !== undefined && pty.bytes > 0 ? pty : null
    })
    const seen: Buffer[] = []
    const offsets: number[] = []
    const viewer = daemon.client.attachPty(session.lease, session.pty, {
      from: 0,
      onOutput: (bytes, offset) => {
        seen.push(Buffer.from(bytes))
        offsets.push(offset)
      },
    })
    const shown = () => Buffer.concat(seen).toString()
    await until('the agent counts', () => shown().includes('model: wait'))
    await daemon.kill()
    await daemon.start()
    const { results, jobDir } = await readRun(daemon, await running.ended)
    t.match(results.map(endOf), [/^passed null tests_passed/])
    t.equal(results[0]?.executions.length, 1, 'no execution was lost')
    t.match(results[0]?.usage, { calls: waitingSolution.length }, 'the meter went on where it was')
    const end = await viewer.ended
    t.strictSame(end.exit, { code: 0 })
    t.equal(Buffer.concat(seen).length, end.finalOffset, 'every byte')
    t.strictSame(
      offsets,
      offsets.toSorted((a, b) => a - b),
      'in order',
    )
    t.match(shown(), 'model: done')
    const [directory = ''] = await executionDirs(jobDir, results[0]?.trial ?? '')
    const cast = await readFile(path.join(directory, 'terminal.cast'), 'utf8')
    t.match(spoken(cast), 'model: done')
    t.match(cast, /"x",\s*"0"/, 'its end is recorded as well')
  },
)

t.test('an image that the file names is pinned by the plan, and is what runs', async (t) => {
  await using daemon = await TestDaemon.open(engine.socketPath)
  const tag = 'closedbook-test/named-harness:1'
  const docker = (...argv: string[]) =>
    promisify(execFile)('docker', ['-H', `unix://${engine.socketPath}`, ...argv])
  const id = await engine.baseImage()
  await docker('tag', id, tag)
  t.teardown(() => docker('rmi', tag))
  const argv = ['{{harness_dir}}/bin/busybox', 'true']
  const file = await scratch.write(
    'driver.json',
    JSON.stringify({ name: 'named', image: tag, argv }),
  )
  const config = await writeHarnessJob(scratch, 'named', recordingOf(solving), file)
  const ran = await daemon.cli(runWith(config))
  const { results } = await readRun(daemon, ran)
  t.match(results.map(endOf), [/^failed agent tests_failed/], ran.stderr)
  t.equal(results[0]?.digests.harness, id)
  await scratch.write('driver.json', JSON.stringify({ name: 'named', image: 'gone:1', argv }))
  const refused = await daemon.cli(['plan', '--task', tally, '--config', config, '--unqualified'])
  t.not(refused.code, 0)
  t.match(refused.stderr, /gone:1/)
})

t.test('what a harness inside does to itself excuses nothing', async (t) => {
  await using daemon = await TestDaemon.open(engine.socketPath)
  const config = await writeHarnessJob(
    scratch,
    'suicide',
    recordingOf([{ text: 'I end what drives me', command: 'kill -9 $PPID' }, { text: 'done' }]),
  )
  const { results } = await readRun(daemon, await daemon.cli(runWith(config)))
  t.match(results.map(endOf), [/^failed agent tests_failed.*harness_ended/])
})
