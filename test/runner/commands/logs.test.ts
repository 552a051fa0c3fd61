/**
 * logs of a trial that is known by what its runner has published alone: over a killed daemon, from execution to
 * execution; and by its files, from before it began.
 */
import type { ChildProcess } from 'node:child_process'
import { appendFile, mkdir } from 'node:fs/promises'
import path from 'node:path'
import t from 'tap'
import { executionDir, ledgerFile, planFile } from '../../../runner/job/layout.ts'
import { appendLedger } from '../../../runner/job/ledger.ts'
import { writePlan } from '../../../runner/job/plan.ts'
import { syntheticPlan } from '../support/synthetic-job.ts'
import { TestDaemon } from '../../support/daemon.ts'
import { testEngine } from '../../support/engine.ts'
import { until } from '../../support/pty.ts'

const engine = await testEngine()
t.teardown(() => engine.dispose())
const daemon = await TestDaemon.open(engine.socketPath)
t.teardown(() => daemon[Symbol.asyncDispose]())

const put = async (at: string, body: object): Promise<void> =>
  void (await daemon.client.call('PUT', `/v1/board/${at}`, { body }))
const stand = (state: 'running' | 'recorded', execution: string): Promise<void> =>
  put('trial/jobone.trialone', { state, execution })
const step = async (execution: string, n: number): Promise<void> => {
  const facts = { commands: [], tokens: null, costUsd: 0, denied: [] }
  const line = { step: n, time: '2026-03-01T12:00:00Z', text: `${execution}, ${n}`, ...facts }
  const at = `/v1/board/steps/jobone.trialone.${execution}/lines?from=${n}`
  await daemon.client.callText('POST', at, `${JSON.stringify(line)}\n`)
}

t.test('what was published is followed to its end, and over the death of the daemon', async (t) => {
  await put('job/jobone', {
    ...{ job: 'jobone', state: 'running' },
    trials: [{ trial: 'trialone' }, { trial: 'trialtwo' }],
  })
  const seen = { text: '' }
  const listen = ({ stdout, stderr }: ChildProcess): void => {
    for (const stream of [stdout, stderr])
      stream?.on('data', (text: Buffer) => (seen.text += text.toString()))
  }
  const following = daemon.cli(['logs', '-f', 'trialo'], { onSpawn: listen })
  await stand('running', 'first')
  await step('first', 1)
  await until('the first step is shown', () => seen.text.includes('first, 1'))
  await daemon.kill()
  await until('it is told', () => seen.text.includes('connection lost'))
  await daemon.start()
  await step('first', 2)
  await until('the second step is shown', () => seen.text.includes('first, 2'))
  await stand('running', 'second')
  await step('second', 1)
  await until('the next execution is shown', () => seen.text.includes('second, 1'))
  await step('second', 2)
  await stand('recorded', 'second')
  const { code, stdout, stderr } = await following
  t.equal(code, 0)
  t.same(
    [...stdout.matchAll(/(first|second), \d/g)].map(([text]) => text),
    ['first, 1', 'first, 2', 'second, 1', 'second, 2'],
    'each once, in order',
  )
  t.match(stderr, /connection lost.*\n· connected again\n· another execution has begun\n$/)
  t.match(await daemon.cli(['logs', 'trialone', '--json']), {
    code: 0,
    stdout: /^\{"step":1,.*"second, 1".*\n\{"step":2,.*"second, 2".*\n$/,
    stderr: '',
  })
  t.match(await daemon.cli(['logs', 'trialtwo']), { code: 0, stdout: '', stderr: 'no step yet\n' })
  t.match(await daemon.cli(['logs', 'trial']), { code: 2, stderr: /the beginning of 2 trials/ })
})

t.test('a trial that waits for its turn is followed from its files as they come', async (t) => {
  const plan = syntheticPlan({ tasks: 1, runs: 1, configurations: [{ name: 'c', chance: 1 }] })
  const trial = plan.trials[0]?.trial ?? ''
  const jobDir = path.join(daemon.stateDir, 'jobs', plan.job)
  await writePlan(planFile(jobDir), plan)
  const seen = { text: '' }
  const following = daemon.cli(['logs', '-f', trial], {
    onSpawn: ({ stdout }) => stdout?.on('data', (text: Buffer) => (seen.text += text.toString())),
  })
  t.match(await daemon.cli(['logs', trial]), { code: 0, stderr: 'no step yet\n' })
  const directory = executionDir(jobDir, trial, 'x1-abcd')
  const write = async (n: number): Promise<void> => {
    const facts = { commands: [], tokens: null, costUsd: 0, denied: [] }
    const line = { step: n, time: '2026-03-01T12:00:00Z', text: `said ${n}`, ...facts }
    await appendFile(path.join(directory, 'steps.jsonl'), `${JSON.stringify(line)}\n`)
    await until(`step ${n} is shown`, () => seen.text.includes(`said ${n}`))
  }
  await mkdir(directory, { recursive: true })
  await write(1)
  await write(2)
  const said = { v: 1 as const, time: '2026-03-01T12:00:00Z', trial, execution: 'x1-abcd' }
  const digest = 'sha256:0'
  await appendLedger(ledgerFile(jobDir), [
    { ...said, type: 'started', leases: [] },
    { ...said, type: 'recorded', verdict: 'passed', result: 'r', digest },
  ])
  const { code, stdout, stderr } = await following
  t.match({ code, stderr }, { code: 0, stderr: '' })
  t.same([...stdout.matchAll(/said \d/g)].map(String), ['said 1', 'said 2'], 'each once')
})
