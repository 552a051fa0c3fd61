import { execFile } from 'node:child_process'
import { appendFile, mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import t from 'tap'
import { AuditLog, type AuditLogOptions } from '../../../daemon/egress/audit-log.ts'
import { readClosing } from '../../../daemon/egress/audit-closing.ts'
import { readAudit } from '../../../daemon/egress/read-audit.ts'
import { auditEventSchema, type AuditEvent, type AuditRecord } from '../../../policy/audit-event.ts'
import { lineHash } from '../../../policy/audit-verify.ts'

const folder = await mkdtemp(join(tmpdir(), 'audit-'))
t.teardown(() => rm(folder, { recursive: true, force: true }))
let files = 0
const newFile = (): string => join(folder, `${(files += 1)}.jsonl`)
const options: AuditLogOptions = { lease: 'lease0000001', trial: null }
const denied: AuditRecord = {
  kind: 'decision',
  protocol: 'tcp',
  action: 'deny',
  reason: 'direct_tcp',
  address: '198.51.100.7',
}
const allowed: AuditRecord = {
  kind: 'decision',
  protocol: 'connect',
  action: 'allow',
  reason: 'allowed_host',
  host: 'origin.example',
  port: 443,
}
const all = async (file: string): Promise<AuditEvent[]> => Array.fromAsync(readAudit(file))
const linesOf = async (file: string): Promise<string[]> =>
  (await readFile(file, 'utf8')).split('\n').slice(0, -1)

void t.test('events are numbered without a gap, also after the log was opened again', async (t) => {
  const file = newFile()
  {
    await using log = await AuditLog.open(file, { ...options, trial: 'a trial' })
    t.equal(log.append(denied).seq, 1)
    t.equal(log.append({ ...allowed, connection: log.nextConnection() }).seq, 2)
  }
  await using log = await AuditLog.open(file, options)
  t.equal(log.append(denied).seq, 3)
  t.equal(log.nextConnection(), 2, 'connection numbers go on as well')
  await log.flush()
  const events = await all(file)
  t.strictSame(
    events.map(({ seq }) => seq),
    [1, 2, 3],
  )
  t.strictSame(
    events.map(({ trial }) => trial),
    ['a trial', 'a trial', null],
  )
  for (const event of events) t.ok(auditEventSchema.safeParse(event).success)
  t.strictSame(log.summary(), {
    attempts: 3,
    denied: 2,
    allowed: 1,
    byReason: { allowed_host: 1, direct_tcp: 2 },
  })
})

void t.test('a torn last line is cut off, and that is an event', async (t) => {
  const file = newFile()
  {
    await using log = await AuditLog.open(file, options)
    log.append(denied)
  }
  await appendFile(file, '{"seq":2,"time":"2026-')
  t.equal((await all(file)).length, 1, 'a reader does not take it for an event')
  await using log = await AuditLog.open(file, options)
  log.append(denied)
  await log.flush()
  const events = await all(file)
  t.match(events, [
    { seq: 1 },
    { seq: 2, kind: 'lifecycle', detail: /22 bytes was cut off/ },
    { seq: 3 },
  ])
})

void t.test('a log that was changed is refused', async (t) => {
  const line = (seq: number, lease: string): string =>
    `${JSON.stringify({ seq, lease, kind: 'decision', count: 1 })}\n`
  const rows: readonly (readonly [text: string, why: string])[] = [
    [line(1, options.lease) + line(3, options.lease), 'a gap'],
    [line(1, options.lease) + line(1, options.lease), 'a number twice'],
    [line(2, options.lease), 'a lost beginning'],
    [line(1, 'another00000'), 'the log of another lease'],
    [`${line(1, options.lease)}\0\0\0\0\n`, 'zeros, as a power cut leaves'],
    [`not json\n${line(1, options.lease)}`, 'a line that is no event'],
  ]
  for (const [text, why] of rows) {
    const file = newFile()
    await writeFile(file, text)
    await t.rejects(AuditLog.open(file, options), { code: 'audit_corrupt', blame: 'infra' }, why)
    t.equal(await readFile(file, 'utf8'), text, `${why}: it is left as it was`)
  }
})

void t.test('each line has the hash of the one before, over restarts and torn lines', async (t) => {
  const file = newFile()
  const policy = 'a'.repeat(64)
  {
    await using log = await AuditLog.open(file, { ...options, trial: 'ä trial', policy })
    log.append({ ...allowed, connection: log.nextConnection(), detail: 'x', canary: true })
    log.append(denied)
  }
  await appendFile(file, '{"seq":3,"time":"2026-')
  {
    await using log = await AuditLog.open(file, options)
    log.append(denied)
    log.govern({ policy: 'b'.repeat(64) })
    log.append(denied)
  }
  const lines = await linesOf(file)
  const events = lines.map((line) => auditEventSchema.parse(JSON.parse(line)))
  t.equal(events.length, 5)
  t.strictSame(
    events.map(({ prev }) => prev),
    [null, ...lines.slice(0, -1).map((line) => lineHash(line))],
  )
  t.strictSame(
    events.map((event) => event.policy?.[0]),
    ['a', 'a', undefined, undefined, 'b'],
    'the policy in force is in each',
  )
  t.strictSame(
    events.map((event) => JSON.stringify(event)),
    lines,
    'whoever parses a line and writes it again has the same bytes',
  )
})

void t.test('a log with a changed line is not gone on with', async (t) => {
  const file = newFile()
  {
    await using log = await AuditLog.open(file, options)
    for (let n = 0; n < 3; n += 1) log.append(denied)
  }
  const [first = '', second = '', third = ''] = await linesOf(file)
  const { prev: _prev, ...unchained } = JSON.parse(second) as AuditEvent
  const rows: readonly (readonly [lines: string[], why: string])[] = [
    [[first, second.replace('deny', 'allow'), third], 'changed'],
    [[first, second.replace(/"prev":"./, '"prev":"z'), third], 'another hash'],
    [[first, JSON.stringify(unchained), third], 'no hash in the midst of hashes'],
  ]
  for (const [lines, why] of rows) {
    await writeFile(file, lines.map((line) => `${line}\n`).join(''))
    await t.rejects(AuditLog.open(file, options), { code: 'audit_corrupt' }, why)
  }
})

void t.test('a log from before the chain is gone on with, and chained from there', async (t) => {
  const file = newFile()
  const old = JSON.stringify({ seq: 1, lease: options.lease, kind: 'decision', count: 1 })
  await writeFile(file, `${old}\n`)
  {
    await using log = await AuditLog.open(file, options)
    t.match(log.append(denied), { seq: 2, prev: lineHash(old) })
  }
  await using again = await AuditLog.open(file, options)
  t.equal(again.append(denied).seq, 3)
})

void t.test('what a sandbox says is escaped, whoever forgot to', async (t) => {
  const file = newFile()
  await using log = await AuditLog.open(file, options)
  const hostile = [
    '\u001b]0;x\u0007',
    'a\r\nb',
    '\u2028',
    '\u202e',
    '\ud800',
    '\0',
    'é',
    '"canary":true',
  ]
  for (const text of hostile) log.append({ ...denied, host: text, detail: text })
  await log.flush()
  const text = await readFile(file, 'utf8')
  // oxlint-disable-next-line no-control-regex
  t.match(text, /^[\n\u0020-\u007e]*$/, 'no byte that a terminal acts on')
  const events = await all(file)
  t.equal(events.length, hostile.length, 'no line more than events')
  t.match(events[0], { host: '\\x1b]0;x\\x07', detail: '\\x1b]0;x\\x07' })
})

void t.test('how a log ended is noted beside it, and no longer when it goes on', async (t) => {
  const file = newFile()
  const log = await AuditLog.open(file, { ...options, trial: 'a trial' })
  for (let n = 0; n < 3; n += 1) log.append(denied)
  log.append({ ...allowed, connection: 1 })
  log.append({ ...denied, canary: true, host: 'ours.example' })
  log.append({ ...allowed, kind: 'close', action: 'none', reason: null, bytesUp: 7, bytesDown: 9 })
  t.equal(await readClosing(file), null)
  const totals = log.totals()
  await log.close()
  const closing = await readClosing(file)
  t.match(closing, {
    trial: 'a trial',
    bytes: (await stat(file)).size,
    head: lineHash((await linesOf(file)).at(-1) ?? ''),
    hosts: ['198.51.100.7', 'origin.example', 'ours.example'],
    tags: [
      'decision tcp deny direct_tcp',
      'decision connect allow allowed_host',
      'close connect none null',
    ],
  })
  t.strictSame(closing?.totals, totals)
  t.match(totals, { events: 6, attempts: 4, denied: 3, allowed: 1, bytesUp: 7, bytesDown: 9 })
  t.match(totals.targets, [
    { address: '198.51.100.7', reason: 'direct_tcp', count: 3 },
    { host: 'origin.example', address: null, port: 443, reason: 'allowed_host', count: 1 },
  ])
  await using again = await AuditLog.open(file, options)
  t.equal(await readClosing(file), null)
  t.strictSame(again.totals(), totals, 'read again it comes to the same')
})

void t.test('nothing is dropped in a flood, and flush means written', async (t) => {
  const file = newFile()
  await using log = await AuditLog.open(file, options)
  const count = 100_000
  const start = performance.now()
  for (let n = 0; n < count; n += 1) log.append({ ...denied, detail: `attempt ${n}` })
  await log.flush()
  const perSecond = count / ((performance.now() - start) / 1000)
  let seen = 0
  for await (const event of readAudit(file)) {
    if (event.seq !== seen + 1 || event.detail !== `attempt ${seen}`)
      t.fail(`event ${seen} is wrong`)
    seen += 1
  }
  t.equal(seen, count)
  t.equal(log.summary().attempts, count)
  t.ok(perSecond > 20_000, `${Math.round(perSecond)} a second`)
})

void t.test('flush does not wait for what is appended after it', async (t) => {
  const file = newFile()
  await using log = await AuditLog.open(file, options)
  let flushed = false
  let rounds = 0
  const first = log.append(denied)
  const flushing = log.flush().then(() => (flushed = true))
  while (!flushed && rounds < 10_000) {
    log.append(denied)
    rounds += 1
    await new Promise((turn) => setImmediate(turn))
  }
  await flushing
  t.ok(rounds < 10_000)
  t.ok((await all(file)).some(({ seq }) => seq === first.seq))
})

void t.test(
  'canaries are marked and not counted, counts weigh, and only attempts count',
  async (t) => {
    await using log = await AuditLog.open(newFile(), options)
    log.canary = true
    t.equal(log.append(denied).canary, true)
    log.append({ ...denied, kind: 'census', count: 9 })
    log.canary = false
    log.append({ ...denied, canary: true })
    t.equal(log.append({ ...denied, protocol: 'udp', reason: 'direct_udp', count: 5 }).count, 5)
    log.append({ ...allowed, kind: 'close', action: 'none', reason: null, bytesUp: 10 })
    log.append({ ...allowed, kind: 'lifecycle', protocol: 'none', action: 'none', reason: null })
    log.append({ ...denied, kind: 'census', protocol: 'icmp', reason: 'direct_icmp', count: 3 })
    t.strictSame(log.summary(), {
      attempts: 8,
      denied: 8,
      allowed: 0,
      byReason: { direct_icmp: 3, direct_udp: 5 },
    })
  },
)

void t.test('an attempt that the tripwire and the census both saw is one attempt', async (t) => {
  await using log = await AuditLog.open(newFile(), options)
  log.append(denied)
  log.append(denied)
  log.append({ ...denied, kind: 'census', port: 22, count: 1 })
  log.append({ ...denied, kind: 'census', port: 9418, count: 2 })
  t.equal(log.summary().attempts, 3, 'two by the tripwire, one more by the census')
  log.append({ ...denied, kind: 'census', address: '203.0.113.9', port: 22, count: 4 })
  t.strictSame(log.summary().byReason, { direct_tcp: 7 })
})

void t.test(
  'a host and a detail that are too long are cut, and line ends stay inside',
  async (t) => {
    const file = newFile()
    await using log = await AuditLog.open(file, options)
    log.append({ ...denied, host: 'h'.repeat(9999), detail: `a\nb${'d'.repeat(9999)}` })
    await log.flush()
    const [event] = await all(file)
    t.equal(event?.host?.length, 512)
    t.equal(event?.detail?.length, 1024)
    t.ok(auditEventSchema.safeParse(event).success)
  },
)

void t.test('onEvent sees each event in its order', async (t) => {
  const seen: number[] = []
  await using log = await AuditLog.open(newFile(), {
    ...options,
    onEvent: ({ seq }) => seen.push(seq),
  })
  log.append(denied)
  log.append(allowed)
  t.strictSame(seen, [1, 2])
})

void t.test('events can be filtered, and followed until the log is closed', async (t) => {
  const log = await AuditLog.open(newFile(), options)
  for (let n = 0; n < 3; n += 1) log.append(denied)
  log.append(allowed)
  const some = await Array.fromAsync(
    log.events({ from: 2, actions: ['deny'], kinds: ['decision'] }),
  )
  t.strictSame(
    some.map(({ seq }) => seq),
    [2, 3],
  )
  const following = log.events({ from: 4, follow: true })[Symbol.asyncIterator]()
  t.match(await following.next(), { value: { seq: 4 } })
  const next = following.next()
  log.append(denied)
  t.match(await next, { value: { seq: 5 } })
  const last = following.next()
  await log.close()
  t.match(await last, { done: true })
  const aborted = log.events({ follow: true, signal: AbortSignal.abort() })
  await t.rejects(Array.fromAsync(aborted))
})

void t.test('a log that can not be written fails once, and takes nothing more', async (t) => {
  const file = newFile()
  const script = join(import.meta.dirname, 'write-until-full.ts')
  // The test runner's hooks would turn the failed write into a signal.
  const argv = ['-u', 'NODE_OPTIONS', 'prlimit', '--fsize=1000', process.execPath, script, file]
  const { stdout } = await promisify(execFile)('env', argv)
  t.match(JSON.parse(stdout), {
    flush: /^audit_write_failed: .*EFBIG.*check that disk/,
    failed: 'audit_write_failed',
    append: /^audit_write_failed/,
    close: /^audit_write_failed/,
  })

  await using again = await AuditLog.open(file, options)
  const { seq } = again.append(denied)
  await again.flush()
  const events = await all(file)
  t.equal(events.length, seq, 'what was written before is still a whole log')
  t.match(events.at(-2), { kind: 'lifecycle', detail: /torn/ })
})

void t.test('a log that has reached its limit fails, with all that fitted written', async (t) => {
  const file = newFile()
  const log = await AuditLog.open(file, { ...options, maxBytes: 2000 })
  let appended = 0
  t.throws(
    () => {
      for (; ; appended += 1) log.append(denied)
    },
    { code: 'audit_full', blame: 'agent' },
  )
  t.match(await log.failed, { code: 'audit_full' })
  await t.rejects(log.close(), { code: 'audit_full' })
  t.equal((await all(file)).length, appended)
  t.ok((await stat(file)).size <= 2000)
})

void t.test('a closed log takes nothing more, and closing again is nothing', async (t) => {
  const log = await AuditLog.open(newFile(), options)
  await log.close()
  await log.close()
  t.throws(() => log.append(denied), { code: 'audit_closed' })
})
