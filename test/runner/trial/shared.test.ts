/** What trials of one process share or leave to each other: readings of images, leases that come too late, streams that break. */
import t from 'tap'
import type { DaemonClient } from '../../../daemon/protocol/client.ts'
import { RunnerError } from '../../../runner/errors.ts'
import type { ExecutionContext } from '../../../runner/trial/context.ts'
import { Evidence } from '../../../runner/trial/evidence.ts'
import { HeldLease } from '../../../runner/trial/held-lease.ts'
import { PristineCache } from '../../../runner/trial/pristine-cache.ts'
import { StepRecorder } from '../../../runner/trial/step-recorder.ts'
import { failureOf, Scratch } from '../support/scratch.ts'

const task = { verify: 'patch', baseCommit: null } as const
const { signal } = new AbortController()

void t.test('a cancelled trial does not spoil those that wait for its reading', async (t) => {
  const cache = new PristineCache()
  const first = Promise.withResolvers<never>()
  const asked: string[] = []
  const get = (who: string, open: () => Promise<never>): Promise<Error> =>
    failureOf(() =>
      cache.get(
        'image',
        task,
        '/w',
        () => {
          asked.push(who)
          return open()
        },
        signal,
      ),
    )
  const lost = new RunnerError('transfer_failed', 'infra', 'its own')
  const ends = [
    get('first', () => first.promise),
    get('second', () => Promise.reject(lost)),
    get('third', () => Promise.reject(new RunnerError('collect_failed', 'task', 'no git'))),
    get('fourth', () => Promise.reject(lost)),
  ]
  t.same(asked, ['first'], 'the others wait')
  first.reject(new Error('cancelled'))
  const messages = (await Promise.all(ends)).map(({ message }) => message)
  t.same(messages, ['cancelled', 'its own', 'no git', 'no git'])
  t.same(asked, ['first', 'second', 'third'], 'one reads anew; what the task did holds for all')
  t.equal(cache.knows('image'), false, 'a failed reading is forgotten')
})

void t.test('a lease that is open when its trial has ended is closed again', async (t) => {
  const opened = Promise.withResolvers<object>()
  const closed: string[] = []
  const client = {
    openLease: () => opened.promise,
    closeLease: async (lease: string) => void closed.push(lease),
  } as unknown as DaemonClient
  const owner = new AsyncDisposableStack()
  const open = HeldLease.openFor(owner, client, { id: 'late', image: 'i' } as never, { signal })
  await owner.disposeAsync()
  opened.resolve({ lease: 'late' })
  t.match(await failureOf(() => open), { message: /late was opened for a trial that has ended/ })
  t.same(closed, ['late'])
})

void t.test('a fault of ours while steps are followed ends no other trial', async (t) => {
  await using scratch = await Scratch.make()
  const unhandled: unknown[] = []
  const note = (error: unknown): void => void unhandled.push(error)
  process.on('unhandledRejection', note)
  t.teardown(() => process.off('unhandledRejection', note))
  const broken = Promise.withResolvers<void>()
  const client = {
    async *events() {
      broken.resolve()
      yield await Promise.reject(new Error('an event that nobody understands'))
    },
  }
  const context = {
    client,
    configuration: { harness: { kind: 'noop' } },
    leases: { task: 'lease' },
    evidence: await Evidence.open(scratch.path),
  } as unknown as ExecutionContext
  const recorder = await StepRecorder.open(context, null, () => {})
  await broken.promise
  await new Promise(setImmediate)
  await new Promise(setImmediate)
  t.same(unhandled, [], 'this process would have ended, with all its trials')
  const { message } = await failureOf(() => recorder.finish(null))
  t.equal(message, 'an event that nobody understands', 'it is told at the end of its own trial')
})
