/** logs of a trial that is known by what its runner has published alone: over a killed daemon, from execution to execution. */
import type { ChildProcess } from 'node:child_process'
import t from 'tap'
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
