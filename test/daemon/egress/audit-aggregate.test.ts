/** A flood of equal denials: few lines, exact totals, bounded memory, nothing lost but by a kill. */
import { mkdtemp, readFile, rm, stat } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import t from 'tap'
import {
  aggregateRules,
  DenialAggregate,
  type AggregateRules,
} from '../../../daemon/egress/audit-aggregate.ts'
import { AuditLog } from '../../../daemon/egress/audit-log.ts'
import { readAudit } from '../../../daemon/egress/read-audit.ts'
import { auditEventSchema, type AuditEvent, type AuditRecord } from '../../../policy/audit-event.ts'

const folder = await mkdtemp(join(tmpdir(), 'aggregate-'))
t.teardown(() => rm(folder, { recursive: true, force: true }))
let files = 0
const open = (aggregate: AggregateRules = aggregateRules, maxBytes?: number): Promise<AuditLog> =>
  AuditLog.open(join(folder, `${(files += 1)}.jsonl`), {
    lease: 'lease0000001',
    trial: null,
    aggregate,
    ...(maxBytes === undefined ? {} : { maxBytes }),
  })
const denied: AuditRecord = {
  kind: 'decision',
  protocol: 'connect',
  action: 'deny',
  reason: 'not_allowed_host',
  host: 'denied.example',
  port: 443,
}
const read = async (log: AuditLog): Promise<AuditEvent[]> => {
  await log.settle()
  return Array.fromAsync(readAudit(log.file))
}
const sum = (events: readonly { count: number }[]): number =>
  events.reduce((total, { count }) => total + count, 0)

void t.test(
  'twenty are written in full, the rest counted, and the totals exact at any time',
  async (t) => {
    await using log = await open()
    for (let n = 1; n <= 1000; n += 1) {
      const event = log.append({ ...denied, connection: log.nextConnection(), detail: `${n}` })
      t.equal(event.seq, Math.min(n, 20))
      if (n % 250 === 0) t.equal(log.summary().attempts, n)
    }
    const events = await read(log)
    t.equal(events.length, 21)
    const last = events.at(-1)
    t.match(last, {
      seq: 21,
      kind: 'aggregate',
      host: 'denied.example',
      port: 443,
      action: 'deny',
      reason: 'not_allowed_host',
      count: 980,
      detail: '1000',
      connection: undefined,
      canary: undefined,
    })
    t.ok((last?.first ?? '') <= (last?.last ?? ''))
    for (const event of events) t.ok(auditEventSchema.safeParse(event).success)
    t.equal(sum(events), 1000)
    t.match(log.totals(), { events: 21, denied: 1000, byReason: { not_allowed_host: 1000 } })
    t.match(log.totals().targets, [{ host: 'denied.example', count: 1000 }])
  },
)

void t.test('only denials that are equal are counted together', async (t) => {
  await using log = await open({ ...aggregateRules, inFull: 1 })
  const different: readonly AuditRecord[] = [
    denied,
    { ...denied, port: 80 },
    { ...denied, host: 'other.example' },
    { ...denied, protocol: 'http' },
    { ...denied, reason: 'denied_host' },
    { ...denied, host: null, address: '198.51.100.7' },
    { ...denied, host: null, address: '198.51.100.8' },
  ]
  for (let n = 0; n < 2; n += 1) for (const record of different) log.append(record)
  const events = await read(log)
  t.strictSame(
    events.map(({ kind, count }) => `${kind} ${count}`),
    [...different.map(() => 'decision 1'), ...different.map(() => 'aggregate 1')],
  )
  t.equal(events.at(-1)?.address, '198.51.100.8')
})

void t.test(
  'allowed requests, closes, the census and our own proof always have lines of their own',
  async (t) => {
    await using log = await open({ ...aggregateRules, inFull: 1 })
    const rows: readonly AuditRecord[] = [
      { ...denied, action: 'allow', reason: 'allowed_host' },
      { ...denied, kind: 'close', action: 'none', reason: null },
      { ...denied, kind: 'census' },
      { ...denied, canary: true },
    ]
    for (const record of rows) for (let n = 0; n < 30; n += 1) log.append(record)
    log.canary = true
    for (let n = 0; n < 30; n += 1) log.append(denied)
    t.equal((await read(log)).length, 150)
  },
)

void t.test(
  'one name at several addresses is one key, and the aggregate names none of them',
  async (t) => {
    await using log = await open({ ...aggregateRules, inFull: 1 })
    for (const address of ['198.51.100.7', '198.51.100.8', '198.51.100.9'])
      log.append({ ...denied, address })
    t.match((await read(log)).at(-1), { kind: 'aggregate', count: 2, address: null })
  },
)

void t.test(
  'an aggregate comes each second without being asked for, and a window ends',
  async (t) => {
    await using log = await open({ inFull: 2, windowMs: 300, everyMs: 20, keys: 10 })
    // Its own timer keeps no process alive.
    const alive = setInterval(() => {}, 1_000)
    t.teardown(() => clearInterval(alive))
    const followed: AuditEvent[] = []
    for (let n = 0; n < 5; n += 1) log.append(denied)
    for await (const event of log.events({ follow: true })) {
      followed.push(event)
      if (event.kind === 'aggregate') break
    }
    t.strictSame(
      followed.map(({ count }) => count),
      [1, 1, 3],
    )
    // The next is written in full again as soon as the window is over.
    const deadline = performance.now() + 5_000
    let event = log.append(denied)
    let tries = 1
    while (event.seq <= 2 && performance.now() < deadline) {
      await new Promise((turn) => setImmediate(turn))
      event = log.append(denied)
      tries += 1
    }
    t.ok(event.seq > 2)
    t.equal(event.kind, 'decision')
    t.equal(sum(await read(log)), 5 + tries)
  },
)

void t.test('the key that began first makes room, and its count is written then', async (t) => {
  const told: AuditRecord[] = []
  let counted = 0
  const aggregate = new DenialAggregate(
    { write: (record) => void told.push(record), count: () => (counted += 1) },
    { ...aggregateRules, inFull: 1, keys: 100 },
  )
  t.teardown(() => aggregate.stop())
  let written = 0
  const write = (): AuditEvent => {
    written += 1
    return {} as AuditEvent
  }
  for (let n = 0; n < 1000; n += 1)
    for (let times = 0; times < 3; times += 1)
      aggregate.take({ ...denied, host: `${n}.example` }, write)
  t.equal(written, 1000)
  t.equal(counted, 2000)
  t.equal(told.length, 900, 'what was forgotten was told')
  t.strictSame(new Set(told.map(({ count }) => count)), new Set([2]))
  aggregate.drain()
  t.equal(sum(told as { count: number }[]), 2000)
})

void t.test(
  'a hundred thousand denials of a few kinds cost little, and a closed log has them all',
  async (t) => {
    const log = await open()
    for (let n = 0; n < 100_000; n += 1) log.append({ ...denied, host: `${n % 7}.example` })
    t.equal(log.summary().denied, 100_000)
    await log.close()
    const events = await Array.fromAsync(readAudit(log.file))
    t.equal(sum(events), 100_000)
    t.ok(events.length < 400, `${events.length} events`)
    t.ok((await stat(log.file)).size < 400 * 1024)
    const again = await AuditLog.open(log.file, { lease: 'lease0000001', trial: null })
    t.equal(again.summary().denied, 100_000, 'and so has who reads it again')
    await again.close()
  },
)

void t.test(
  'a log that is full says so to whoever tries, aggregates or not, and closes',
  async (t) => {
    const log = await open({ ...aggregateRules, inFull: 1 }, 1000)
    log.append(denied)
    log.append(denied)
    t.throws(
      () => {
        for (let n = 0; ; n += 1) log.append({ ...denied, host: `${n}.example` })
      },
      { code: 'audit_full', blame: 'agent' },
    )
    t.match(await log.failed, { code: 'audit_full' })
    t.throws(() => log.append(denied), { code: 'audit_full' }, 'not even counted')
    await t.rejects(log.close(), { code: 'audit_full' })
    t.match(await readFile(log.file, 'utf8'), /\n$/, 'whole lines')
  },
)
