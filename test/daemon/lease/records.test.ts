/** What a lease is made of besides its sandbox: its states, its place on the host, its journal, events and bundles. */
import { createHash } from 'node:crypto'
import { mkdir, mkdtemp, readdir, readFile, rm, stat, utimes, writeFile } from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import { Readable } from 'node:stream'
import t from 'tap'
import { pack } from 'tar-stream'
import { Admission } from '../../../daemon/lease/admission.ts'
import { Bundles } from '../../../daemon/lease/bundles.ts'
import { diskUsage } from '../../../daemon/lease/disk-usage.ts'
import { DiskWatch } from '../../../daemon/lease/disk-watch.ts'
import { Expiry } from '../../../daemon/lease/expiry.ts'
import { createLogger } from '../../../daemon/logger.ts'
import { Retention } from '../../../daemon/retention.ts'
import { EventLog } from '../../../daemon/lease/event-log.ts'
import { ExecRecorder } from '../../../daemon/lease/exec-recorder.ts'
import { Journal, type LeaseRecord } from '../../../daemon/lease/journal.ts'
import { move, requireState } from '../../../daemon/lease/state.ts'
import type { ExecEnd } from '../../../daemon/protocol/exec-frames.ts'
import { execStartSchema } from '../../../daemon/protocol/exec-frames.ts'
import { leaseRequestSchema, leaseStates, resourcesSchema } from '../../../daemon/protocol/lease.ts'

const folder = await mkdtemp(path.join(os.tmpdir(), 'lease-'))
t.teardown(() => rm(folder, { recursive: true, force: true }))

void t.test('a lease moves along its table, and every state leads to the end', async (t) => {
  for (const state of leaseStates.slice(0, -2)) t.equal(move(state, 'closing'), 'closing')
  t.equal(move('closing', 'closed'), 'closed')
  for (const [from, to] of [
    ['closed', 'closing'],
    ['frozen', 'ready'],
    ['closing', 'ready'],
    ['admitted', 'ready'],
    ['ready', 'ready'],
  ] as const)
    t.throws(() => move(from, to), /illegal lease move/, `${from} → ${to}`)
  t.throws(() => requireState('lease0000001', 'frozen', ['ready'], 'run a command in'), {
    code: 'lease_wrong_state',
    blame: 'caller',
    message: /cannot run a command in lease lease0000001: it is frozen/,
  })
})

void t.test(
  'what is admitted is held until it is given back, and nothing is promised twice',
  async (t) => {
    const admission = new Admission({
      hostCpus: 4,
      cpus: 8,
      memoryBytes: 1000 * 2 ** 20,
      leases: 3,
    })
    const wants = (cpus: number, mebibytes: number) =>
      resourcesSchema.parse({ cpus, memoryBytes: mebibytes * 2 ** 20 })
    t.throws(() => admission.admit('a', wants(5, 16)), { code: 'lease_refused', message: /4 CPUs/ })
    t.throws(() => admission.admit('a', wants(1, 1001)), {
      code: 'lease_refused',
      message: /1000 MiB/,
    })
    const first = admission.admit('a', wants(4, 400))
    const second = admission.admit('b', wants(4, 400))
    t.throws(() => admission.admit('c', wants(0.5, 16)), { code: 'lease_no_capacity' }, 'CPUs')
    second[Symbol.dispose]()
    t.throws(() => admission.admit('c', wants(1, 601)), { code: 'lease_no_capacity' }, 'memory')
    admission.admit('c', wants(1, 16))
    admission.admit('d', wants(1, 16))
    t.throws(() => admission.admit('e', wants(1, 16)), { code: 'lease_no_capacity' }, 'number')
    first[Symbol.dispose]()
    first[Symbol.dispose]()
    admission.admit('e', wants(4, 500))
  },
)

const record = (
  lease: string,
  changes: Partial<Pick<LeaseRecord, 'state' | 'createdAt'>> = {},
): LeaseRecord => {
  const { model: _model, ...request } = leaseRequestSchema.parse({ image: 'sha256:1', trial: 't' })
  return {
    v: 1,
    lease,
    instance: 'i',
    state: 'ready',
    reason: null,
    request,
    hadModel: false,
    container: null,
    createdAt: '2026-01-01T00:00:00.000Z',
    expiresAt: '2026-01-02T00:00:00.000Z',
    proof: { before: [], after: [] },
    freeze: null,
    assisted: false,
    gpus: [],
    gpuNodes: [],
    ...changes,
  }
}

void t.test('the journal keeps whole records, forgets none, and guesses nothing', async (t) => {
  const directory = path.join(folder, 'journal')
  const journal = await Journal.open(directory)
  await journal.write(record('lease0000001'))
  await journal.write(record('lease0000001', { state: 'frozen' }))
  await journal.write(record('lease0000002', { createdAt: '2025-01-01T00:00:00.000Z' }))
  await writeFile(path.join(directory, 'open', 'lease0000003.json.x.tmp'), '{"v": 1, "lea')
  const again = await Journal.open(directory)
  t.strictSame(
    (await again.openRecords()).map(({ lease, state }) => `${lease} ${state}`).toSorted(),
    ['lease0000001 frozen', 'lease0000002 ready'],
  )
  t.notMatch(await readdir(path.join(directory, 'open')), /tmp/, 'what a crash tore is gone')
  await again.close(record('lease0000001', { state: 'closed' }))
  t.strictSame(
    (await again.openRecords()).map(({ lease }) => lease),
    ['lease0000002'],
  )
  t.strictSame(await again.leasesOfTrial('t'), ['lease0000002', 'lease0000001'], 'oldest first')
  t.strictSame(await again.leasesOfTrial('another'), [])
  t.equal((await stat(path.join(directory, 'open', 'lease0000002.json'))).mode & 0o077, 0)
  await writeFile(path.join(directory, 'open', 'foreign.json'), '{"v": 2}')
  await t.rejects(again.openRecords(), {
    code: 'journal_corrupt',
    message: /foreign\.json.*move it away/,
  })
})

void t.test(
  'a command that ran is told with its end, its totals, its head and its tail',
  async (t) => {
    const file = path.join(folder, 'execs.jsonl')
    await using log = await EventLog.open('lease0000001', file)
    let ends = 0
    const recorder = new ExecRecorder(log, () => (ends += 1))
    const end = (exec: string): ExecEnd => ({
      exec,
      exit: { code: 3 },
      cause: 'exited',
      stdout: { totalBytes: 100_000, droppedBytes: 0 },
      stderr: { totalBytes: 0, droppedBytes: 0 },
      childrenLeft: false,
      durationMs: 5,
    })
    t.ok(await recorder.idle(1), 'nothing runs')
    recorder.started('e1', execStartSchema.parse({ argv: ['a', 'b'.repeat(9000)] }))
    recorder.started('e2', execStartSchema.parse({ argv: ['c'] }))
    t.notOk(await recorder.idle(1), 'something does')
    const idle = recorder.idle(10_000)
    recorder.output('e1', Buffer.from('head'))
    for (let n = 0; n < 100; n += 1) recorder.output('e1', Buffer.alloc(999, 'x'))
    recorder.output('e1', Buffer.from('tail'))
    recorder.ended(end('e1'))
    recorder.failed('e2', 'no such program')
    t.ok(await idle)
    t.equal(ends, 2)
    const events = await Array.fromAsync(log.read(1, { follow: false }))
    t.match(
      events.map(({ event }) => event),
      [
        { type: 'exec.start', exec: 'e1' },
        { type: 'exec.start', exec: 'e2' },
        {
          type: 'exec.end',
          exec: 'e1',
          exit: { code: 3 },
          outputBytes: 100_000,
          head: /^head/,
          tail: /tail$/,
        },
        {
          type: 'exec.end',
          exec: 'e2',
          exit: 'unknown',
          cause: 'engine_lost',
          head: 'no such program',
        },
      ],
    )
    for (const { event } of events) {
      if (event.type === 'exec.end') t.ok(event.head.length <= 4096 && event.tail.length <= 4096)
      if (event.type === 'exec.start') t.ok((event.argv[1]?.length ?? 0) < 8200)
    }
  },
)

type Header = Parameters<ReturnType<typeof pack>['entry']>[0]

async function tarOf(entries: readonly (readonly [Header, string?])[]): Promise<Buffer> {
  const tar = pack()
  for (const [header, text] of entries) tar.entry(header, text ?? '')
  tar.finalize()
  return Buffer.concat(await Array.fromAsync(tar as AsyncIterable<Buffer>))
}
const nameOf = (bytes: Buffer): string => createHash('sha256').update(bytes).digest('hex')

void t.test('a bundle is what its name says, and stays in its own tree', async (t) => {
  const bundles = await Bundles.open(path.join(folder, 'bundles'))
  const good = await tarOf([
    [{ name: 'tests/', type: 'directory', mode: 0o700 }],
    [{ name: 'tests/test.sh', mode: 0o4755 }, 'echo'],
    [{ name: 'tests/data', mode: 0o600, uid: 1000 }, 'data'],
    [{ name: 'tests/link', type: 'symlink', linkname: 'data' }],
  ])
  await bundles.put(nameOf(good), Readable.from([good.subarray(0, 700), good.subarray(700)]))
  await bundles.put(nameOf(good), Readable.from([good]))
  const root = bundles.pathOf(nameOf(good))
  t.equal(await readFile(path.join(root, 'tests/link'), 'utf8'), 'data')
  t.equal((await stat(path.join(root, 'tests/test.sh'))).mode & 0o7777, 0o755, 'no special bits')
  t.match(await stat(path.join(root, 'tests/data')), { uid: 0, mode: 0o100644 })

  const bad: readonly (readonly [what: string, entry: Header, said: RegExp])[] = [
    ['a way up', { name: '../outside' }, /leave its tree/],
    ['a way up inside', { name: 'a/../../outside' }, /leave its tree/],
    [
      'a link out',
      { name: 'link', type: 'symlink', linkname: '../../etc/passwd' },
      /leave its tree/,
    ],
    [
      'an absolute link',
      { name: 'link', type: 'symlink', linkname: '/etc/passwd' },
      /leave its tree/,
    ],
    ['a hard link', { name: 'link', type: 'link', linkname: 'data' }, /is a link/],
    ['a device', { name: 'null', type: 'character-device' }, /character-device/],
    ['a pipe', { name: 'pipe', type: 'fifo' }, /fifo/],
  ]
  for (const [what, entry, said] of bad) {
    const tar = await tarOf([[entry]])
    await t.rejects(
      bundles.put(nameOf(tar), Readable.from([tar])),
      { code: 'bad_request', message: said },
      what,
    )
  }
  await t.rejects(bundles.put('0'.repeat(64), Readable.from([good])), { message: /have sha256/ })
  await t.rejects(
    bundles.put(nameOf(good.subarray(0, 800)), Readable.from([good.subarray(0, 800)])),
    'a tar that is cut off',
  )
  t.strictSame(await readdir(bundles.directory), [nameOf(good)], 'nothing of them is left')

  await t.rejects(bundles.use(['0'.repeat(64)]), { code: 'bad_request' })
  const held = await bundles.use([nameOf(good)])
  await bundles.remove(nameOf(good))
  t.strictSame(await readdir(bundles.directory), [nameOf(good)], 'it is in use')
  await held[Symbol.asyncDispose]()
  await bundles.remove(nameOf(good))
  t.strictSame(await readdir(bundles.directory), [])
})

void t.test('links and files of a bundle can not be combined to write elsewhere', async (t) => {
  const bundles = await Bundles.open(path.join(folder, 'tricks'))
  const outside = path.join(folder, 'outside')
  const rows: readonly (readonly [
    what: string,
    entries: readonly (readonly [Header, string?])[],
  ])[] = [
    [
      'through a link to the parent of the tree',
      [
        [{ name: 'a', type: 'symlink', linkname: '.' }],
        [{ name: 'a/b', type: 'symlink', linkname: '..' }],
        [{ name: 'a/b/outside' }, 'x'],
      ],
    ],
    [
      'through a link that is inside by its name and outside by its place',
      [
        [{ name: 'd/', type: 'directory' }],
        [{ name: 'l', type: 'symlink', linkname: 'd' }],
        [{ name: 'l/up', type: 'symlink', linkname: '../..' }],
        [{ name: 'l/up/outside' }, 'x'],
      ],
    ],
  ]
  for (const [what, entries] of rows) {
    const tar = await tarOf(entries)
    await bundles.put(nameOf(tar), Readable.from([tar])).catch(() => {})
    await t.rejects(stat(outside), { code: 'ENOENT' }, what)
    await t.rejects(stat(path.join(bundles.directory, 'outside')), { code: 'ENOENT' }, what)
  }
})

void t.test(
  'the disk watch acts while there is too much, and looks only while something runs',
  async (t) => {
    const directory = path.join(folder, 'upper')
    await mkdir(directory)
    await writeFile(path.join(directory, 'data'), Buffer.alloc(300_000))
    const used = await diskUsage(directory)
    t.ok((used?.bytes ?? 0) >= 300_000)
    t.equal(used?.files, 2, 'the directory is one')
    const two = await Promise.all([diskUsage(path.join(folder, 'nowhere')), diskUsage(directory)])
    t.strictSame(two, [null, used], 'each question has its own answer')
    t.equal(await diskUsage(null), null)
    const children = await readFile(`/proc/self/task/${process.pid}/children`, 'utf8')
    for (const pid of children.trim().split(' ')) process.kill(Number(pid), 'SIGKILL')
    let again = null
    while (again === null) again = await diskUsage(directory)
    t.strictSame(again, used, 'a shell that was killed is replaced')
    const odd = path.join(folder, ' $(id) "\\ \t')
    await mkdir(odd)
    t.match(await diskUsage(odd), { files: 1 }, 'a name is a name, to its last blank')
    const next = await readFile(`/proc/self/task/${process.pid}/children`, 'utf8')
    for (const pid of next.trim().split(' ')) process.kill(Number(pid), 'SIGSTOP')
    t.equal(await diskUsage(directory, 200), null, 'one that hangs is waited for so long')
    t.strictSame(await diskUsage(directory), used, 'and replaced')
    let active = false
    let acted = Promise.withResolvers<string>()
    let looks = 0
    using watch = new DiskWatch(directory, {
      limitBytes: 100_000,
      active: () => {
        looks += 1
        return active
      },
      onLimit: (words) => acted.resolve(words),
      intervalMs: 5,
    })
    // Its own timer keeps no process alive.
    const alive = setInterval(() => {}, 1000)
    t.teardown(() => clearInterval(alive))
    while (looks < 3) await new Promise((turn) => setTimeout(turn, 5))
    t.notOk(watch.hit)
    active = true
    t.match(await acted.promise, /^[34]\d{5} bytes; its limit is 100000$/)
    t.ok(watch.hit)
    acted = Promise.withResolvers()
    t.match(await acted.promise, /bytes/, 'and again')
  },
)

void t.test('records of closed leases go when an operator has kept them long enough', async (t) => {
  const place = (name: string): string => path.join(folder, 'retention', name)
  for (const name of ['closed', 'audit', 'events']) await mkdir(place(name), { recursive: true })
  const day = 86_400_000
  const now = Date.now()
  for (const [lease, ageDays] of [
    ['old', 31],
    ['young', 29],
  ] as const) {
    for (const name of ['audit', 'events'])
      await writeFile(path.join(place(name), `${lease}.jsonl`), '')
    const entry = path.join(place('closed'), `${lease}.json`)
    await writeFile(entry, '{}')
    await utimes(entry, new Date(now - ageDays * day), new Date(now - ageDays * day))
  }
  // Open still: it has records, and no entry among the closed.
  await writeFile(path.join(place('audit'), 'open.jsonl'), '')
  const options = {
    closed: place('closed'),
    records: [place('audit'), place('events')],
    log: createLogger({ level: 'silent' }),
  }
  using forEver = new Retention({ ...options, days: null })
  t.strictSame(await forEver.sweep(now), [])
  // Of its own accord it sweeps at once; a second one finds nothing more.
  using month = new Retention({ ...options, days: 30 })
  await month.sweep(now)
  t.strictSame(await readdir(place('closed')), ['young.json'])
  t.strictSame(await readdir(place('audit')), ['open.jsonl', 'young.jsonl'])
  t.strictSame(await readdir(place('events')), ['young.jsonl'])
  t.strictSame(await month.sweep(now), [])
})

void t.test('a lease expires by a clock that nobody sets', (t) => {
  const expiry = new Expiry(60)
  const before = Date.parse(expiry.at)
  t.notOk(expiry.passed)
  const realNow = Date.now
  t.teardown(() => (Date.now = realNow))
  Date.now = () => realNow() + 3_600_000
  t.notOk(expiry.passed, 'the wall clock was set an hour ahead')
  expiry.renew(60)
  t.ok(Date.parse(expiry.at) - before > 3_500_000, 'dates follow the wall clock')
  Date.now = realNow
  t.ok(new Expiry(60, new Date(Date.now() - 1).toISOString()).passed, 'adopted too late')
  t.end()
})
