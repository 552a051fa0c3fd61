/** The event stream of a lease: numbered, kept, followed, and read at the pace of who reads. */
import { execFile } from 'node:child_process'
import { appendFile } from 'node:fs/promises'
import path from 'node:path'
import { promisify } from 'node:util'
import t from 'tap'
import { EventLog, readEvents } from '../../../daemon/lease/event-log.ts'
import { scratch } from '../server/listener.ts'

const { directory: folder, remove } = await scratch()
t.teardown(remove)

void t.test(
  'events are numbered over restarts, followed, and a torn line is left out',
  async (t) => {
    const file = path.join(folder, 'events.jsonl')
    const state = (name: 'ready' | 'closing') =>
      ({ type: 'state', state: name, reason: null }) as const
    {
      await using log = await EventLog.open('lease0000001', file)
      log.append(state('ready'))
    }
    await appendFile(file, '{"seq": 2, "ti')
    const log = await EventLog.open('lease0000001', file)
    const seen: string[] = []
    const following = (async () => {
      for await (const { seq, event } of log.read(1, { follow: true }))
        seen.push(`${seq} ${event.type === 'state' ? event.state : event.type}`)
    })()
    log.append(state('closing'))
    await log[Symbol.asyncDispose]()
    await following
    log.append(state('closing'))
    t.strictSame(seen, ['1 ready', '2 closing'])
    await log[Symbol.asyncDispose]()
  },
)

void t.test('events are read some at a time, however many and long, and from any on', async (t) => {
  const file = path.join(folder, 'many-events.jsonl')
  await using log = await EventLog.open('lease0000002', file)
  const state = (reason: string | null) => ({ type: 'state', state: 'ready', reason }) as const
  for (let n = 1; n <= 5_000; n += 1) log.append(state(null))
  log.append(state('x'.repeat(700_000)))
  log.append(state('last'))
  const sizes: number[] = []
  const numbers: number[] = []
  for await (const piece of log.pieces(2, { follow: false })) {
    sizes.push(piece.length)
    numbers.push(...piece.map(({ seq }) => seq))
  }
  t.ok(sizes.length >= 3, 'not all at once')
  t.same(
    numbers,
    Array.from({ length: 5_001 }, (_, index) => index + 2),
  )
  const over = new AbortController()
  const waiting = Array.fromAsync(log.read(5_002, { follow: true, signal: over.signal }))
  log.append(state('one more'))
  const heard = log.read(5_003, { follow: true, signal: over.signal })
  t.match((await heard.next()).value, { seq: 5_003, event: { reason: 'one more' } })
  over.abort()
  t.same(
    (await waiting).map(({ seq }) => seq),
    [5_002, 5_003],
    'a reader that goes away ends its reading',
  )
  await heard.return(undefined)
  const closed = await Array.fromAsync(readEvents(file, 5_002))
  t.same(
    closed.flat().map(({ seq }) => seq),
    [5_002, 5_003],
  )
  t.same(await Array.fromAsync(readEvents(`${file}.none`, 1)), [])
})

void t.test('a reader takes nothing from a log that closes while it reads', async (t) => {
  const file = path.join(folder, 'closing-events.jsonl')
  const log = await EventLog.open('lease0000003', file)
  const following = Array.fromAsync(log.read(1, { follow: true }))
  const state = (reason: string) => ({ type: 'state', state: 'closing', reason }) as const
  log.append(state('é😀'))
  // the file is open now: what follows waits behind one write
  for await (const { seq } of log.read(1, { follow: true })) if (seq === 1) break
  for (let n = 2; n <= 6; n += 1) log.append(state('é😀'.repeat(n)))
  await log[Symbol.asyncDispose]()
  const all = [1, 2, 3, 4, 5, 6]
  t.same(
    (await following).map(({ seq }) => seq),
    all,
  )
  const kept = (await Array.fromAsync(readEvents(file, 1))).flat()
  t.same(
    kept.map(({ seq }) => seq),
    all,
  )
  t.match(kept.at(-1), { event: { reason: 'é😀'.repeat(6) } })
})

void t.test('a disk that takes no more is told, and what was whole stays', async (t) => {
  const file = path.join(folder, 'full.jsonl')
  const script = path.join(import.meta.dirname, 'events-until-full.ts')
  // The test runner's hooks would turn the failed write into a signal.
  const argv = ['-u', 'NODE_OPTIONS', 'prlimit', '--fsize=1000', process.execPath, script, file]
  const { stdout } = await promisify(execFile)('env', argv)
  t.match(JSON.parse(stdout), { code: 'audit_write_failed', message: /EFBIG.*the lease is closed/ })
  const left = (await Array.fromAsync(readEvents(file, 1))).flat()
  t.ok(left.length > 0 && left.length < 20, `${left.length} events`)
  t.strictSame(
    left.map(({ seq }) => seq),
    left.map((_, n) => n + 1),
  )
})
