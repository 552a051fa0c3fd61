/** Searching and checking the logs of many leases: the same answers with and without what is noted beside them. */
import { appendFile, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import t from 'tap'
import { checkAudit, totalsOf } from '../../../daemon/egress/audit-check.ts'
import { closingFile, readClosing } from '../../../daemon/egress/audit-closing.ts'
import { AuditLog } from '../../../daemon/egress/audit-log.ts'
import { mayHold, searchAudit } from '../../../daemon/egress/audit-query.ts'
import type { AuditQuery } from '../../../daemon/protocol/audit.ts'
import type { AuditEvent, AuditRecord } from '../../../policy/audit-event.ts'

const folder = await mkdtemp(join(tmpdir(), 'query-'))
t.teardown(() => rm(folder, { recursive: true, force: true }))
const fileOf = (lease: string): string => join(folder, `${lease}.jsonl`)

const record = (changes: Partial<AuditRecord>): AuditRecord => ({
  kind: 'decision',
  protocol: 'connect',
  action: 'deny',
  reason: 'not_allowed_host',
  port: 443,
  ...changes,
})
const logs: Readonly<Record<string, readonly AuditRecord[]>> = {
  lease0000001: [
    record({ host: 'a.example', canary: true }),
    record({ host: 'a.example' }),
    record({
      host: 'sub.a.example',
      detail: '"host":"b.example" "reason":"direct_tcp" "canary":true',
    }),
    record({ host: 'nota.example' }),
  ],
  lease0000002: [
    record({
      kind: 'census',
      protocol: 'udp',
      reason: 'direct_udp',
      address: '198.51.100.7',
      port: 53,
      count: 9,
    }),
    record({ host: 'b.example', action: 'allow', reason: 'allowed_host' }),
    record({ host: 'b.example', kind: 'close', action: 'none', reason: null, bytesUp: 3 }),
  ],
  lease0000003: [record({ protocol: 'dns', host: 'a.example', port: 53, reason: 'dns_query' })],
}
for (const [lease, records] of Object.entries(logs)) {
  await using log = await AuditLog.open(fileOf(lease), { lease, trial: `trial of ${lease}` })
  for (const each of records) log.append(each)
}
const found = async (query: AuditQuery, leases = Object.keys(logs)): Promise<string[]> => {
  const pieces = await Array.fromAsync(searchAudit(leases.map(fileOf), query))
  return pieces
    .join('')
    .split('\n')
    .slice(0, -1)
    .map((line) => JSON.parse(line) as AuditEvent)
    .map(({ lease, seq }) => `${lease.at(-1)}:${seq}`)
}

const rows: readonly (readonly [query: AuditQuery, events: string])[] = [
  [{}, '1:2 1:3 1:4 2:1 2:2 2:3 3:1'],
  [{ canaries: true }, '1:1 1:2 1:3 1:4 2:1 2:2 2:3 3:1'],
  [{ canaries: false, limit: 2 }, '1:2 1:3'],
  [{ limit: 5 }, '1:2 1:3 1:4 2:1 2:2'],
  [{ host: 'a.example' }, '1:2 3:1'],
  [{ host: 'a.example', canaries: true }, '1:1 1:2 3:1'],
  [{ host: '*.a.example' }, '1:3'],
  [{ host: '*.example' }, '1:2 1:3 1:4 2:2 2:3 3:1'],
  [{ host: 'example' }, ''],
  [{ host: 'b.example' }, '2:2 2:3'],
  [{ host: 'A.example' }, ''],
  [{ host: '198.51.100.7' }, '2:1'],
  [{ host: '198.51.100' }, ''],
  [{ host: '"' }, ''],
  [{ reason: 'direct_tcp' }, ''],
  [{ reason: 'not_allowed_host' }, '1:2 1:3 1:4'],
  [{ protocol: 'dns' }, '3:1'],
  [{ protocol: 'dns', reason: 'direct_udp' }, ''],
  [{ action: 'allow' }, '2:2'],
  [{ action: 'deny', protocol: 'udp' }, '2:1'],
  [{ kind: 'close' }, '2:3'],
  [{ host: 'a.example', protocol: 'dns' }, '3:1'],
  [{ since: '2000-01-01T00:00:00Z' }, '1:2 1:3 1:4 2:1 2:2 2:3 3:1'],
  [{ since: '2999-01-01T00:00:00Z' }, ''],
  [{ until: '2000-01-01T00:00:00Z' }, ''],
  [{ until: '2999-01-01T00:00:00Z', host: '*.a.example' }, '1:3'],
]

void t.test(
  'a search finds what its conditions say, and no text of a sandbox is taken for a field',
  async (t) => {
    for (const [query, events] of rows)
      t.equal((await found(query)).join(' '), events, JSON.stringify(query))
  },
)

void t.test('what is noted beside a log only saves reading it', async (t) => {
  for (const lease of Object.keys(logs)) t.ok((await readClosing(fileOf(lease))) !== null)
  let passed = 0
  for (const [query, events] of rows)
    for (const lease of Object.keys(logs)) {
      const closing = await readClosing(fileOf(lease))
      if (closing === null || mayHold(closing, query)) continue
      passed += 1
      t.notMatch(events, new RegExp(`${lease.at(-1)}:`), `${lease} ${JSON.stringify(query)}`)
    }
  t.ok(passed > 25, `${passed} logs were passed over`)
  for (const lease of Object.keys(logs)) await rm(closingFile(fileOf(lease)))
  for (const [query, events] of rows)
    t.equal((await found(query)).join(' '), events, `none noted: ${JSON.stringify(query)}`)
})

void t.test('instants count to the millisecond, from and before', async (t) => {
  const [line = ''] = (await readFile(fileOf('lease0000003'), 'utf8')).split('\n')
  const { time } = JSON.parse(line) as AuditEvent
  const later = new Date(Date.parse(time) + 1).toISOString()
  const only = ['lease0000003']
  t.strictSame(await found({ since: time }, only), ['3:1'])
  t.strictSame(await found({ since: later }, only), [])
  t.strictSame(await found({ until: later }, only), ['3:1'])
  t.strictSame(await found({ until: time }, only), [])
})

void t.test(
  'a log that is gone, empty or torn at its end stops no search; a spoilt one does',
  async (t) => {
    const torn = 'lease0000004'
    await writeFile(fileOf(torn), await readFile(fileOf('lease0000003'), 'utf8'))
    await appendFile(fileOf(torn), '{"seq":2,"protocol":"dns"')
    await writeFile(fileOf('lease0000005'), '')
    t.strictSame(await found({ protocol: 'dns' }, ['gone00000000', 'lease0000005', torn]), ['3:1'])
    await appendFile(fileOf(torn), '\n')
    await t.rejects(found({ protocol: 'dns' }, [torn]), { code: 'audit_corrupt' })
  },
)

void t.test('a search through large logs ends when nobody listens', async (t) => {
  const lease = 'lease0000006'
  {
    await using log = await AuditLog.open(fileOf(lease), { lease, trial: null })
    for (let n = 0; n < 5000; n += 1) log.append(record({ host: `${n % 50}.example` }))
  }
  t.equal((await found({ host: '7.example' }, [lease])).length, 100)
  t.equal((await found({}, [lease])).length, 5000)
  const pieces = searchAudit([fileOf(lease)], {}, { signal: AbortSignal.abort() })
  await t.rejects(Array.fromAsync(pieces))
})

void t.test(
  'a closed log is checked against how it ended, and totals are noted or counted',
  async (t) => {
    const lease = 'lease0000007'
    const file = fileOf(lease)
    {
      await using log = await AuditLog.open(file, { lease, trial: null })
      for (let n = 0; n < 4; n += 1) log.append(record({ host: 'a.example' }))
    }
    const options = { lease, proof: [] }
    t.match(await checkAudit(file, options), [{ ok: true, complete: true, events: 4 }])
    const noted = await totalsOf(file, {})
    const text = await readFile(file, 'utf8')
    await writeFile(file, text.split('\n').slice(0, 3).join('\n') + '\n')
    t.match(
      await checkAudit(file, options),
      [{ ok: false, problems: [{ code: 'end' }] }],
      'cut off',
    )
    await writeFile(file, text)
    await appendFile(file, '{"seq":')
    t.match(await checkAudit(file, options), [{ ok: false, problems: [{ code: 'torn', line: 5 }] }])
    t.match(
      await checkAudit(file, { ...options, bytes: Buffer.byteLength(text) }),
      [{ ok: true, complete: false }],
      'of a log that grows only what is whole is looked at',
    )
    await writeFile(file, text)
    await rm(closingFile(file))
    t.strictSame(await totalsOf(file, {}), noted)
    t.match(await checkAudit(file, options), [{ ok: true, complete: false }])
  },
)
