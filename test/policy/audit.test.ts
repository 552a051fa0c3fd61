/** What can be told from audit lines alone: totals, and whether a chain is whole. */
import t from 'tap'
import { canaries } from '../../daemon/network/proof.ts'
import { canaryTrace } from '../../policy/audit-canaries.ts'
import type { AuditEvent } from '../../policy/audit-event.ts'
import { AuditSummary } from '../../policy/audit-summary.ts'
import {
  AuditVerifier,
  lineHash,
  type AuditVerdict,
  type Expected,
} from '../../policy/audit-verify.ts'

const lease = 'lease0000001'
const base: AuditEvent = {
  seq: 1,
  time: '2026-01-01T00:00:00.000Z',
  lease,
  trial: 'a trial',
  kind: 'decision',
  protocol: 'tcp',
  host: null,
  address: '198.51.100.7',
  port: 22,
  action: 'deny',
  reason: 'direct_tcp',
  count: 1,
  bytesUp: 0,
  bytesDown: 0,
}

/** Lines of a log, chained as a daemon chains them. */
function chain(events: readonly Partial<AuditEvent>[], of = lease): string[] {
  const lines: string[] = []
  for (const [index, event] of events.entries()) {
    const last = lines.at(-1)
    const prev = last === undefined ? null : lineHash(last)
    lines.push(JSON.stringify({ ...base, lease: of, seq: index + 1, ...event, prev }))
  }
  return lines
}

const nothing: Expected = { proof: [], end: null }
function verify(
  lines: readonly string[],
  expected: Expected = nothing,
  only: string | null = lease,
): AuditVerdict[] {
  const verifier = new AuditVerifier(only, () => expected)
  for (const line of lines) verifier.add(line)
  return verifier.verdicts()
}
const codes = (lines: readonly string[], expected?: Expected): string[] =>
  verify(lines, expected).flatMap(({ problems }) =>
    problems.map(({ code, line }) => `${code} ${line}`),
  )

const whole = chain([{}, {}, {}, {}])
const [one = '', two = '', three = '', four = ''] = whole
const endOf = (lines: readonly string[]): Expected => {
  return { proof: [], end: { events: lines.length, head: lineHash(lines.at(-1) ?? '') } }
}

void t.test(
  'a whole chain is found whole, and what was noted at its end tells that it is complete',
  async (t) => {
    t.match(verify(whole), [
      {
        lease,
        trial: 'a trial',
        ok: true,
        events: 4,
        head: lineHash(four),
        complete: false,
        problems: { length: 0 },
      },
    ])
    t.match(verify(whole, endOf(whole)), [{ ok: true, complete: true }])
    t.match(verify([]), [{ ok: true, events: 0, head: null }], 'a lease that tried nothing')
  },
)

void t.test('every way to change a log shows, where it was done', async (t) => {
  const { prev: _prev, ...unchained } = JSON.parse(three) as AuditEvent
  const { host: _host, ...incomplete } = JSON.parse(three) as AuditEvent
  const rows: readonly (readonly [
    why: string,
    lines: string[],
    codes: string[],
    expected?: Expected,
  ])[] = [
    ['a changed field', [one, two.replace('"count":1', '"count":0'), three, four], ['chain 3']],
    ['a space', [one, two.replace(',', ', '), three, four], ['chain 3']],
    [
      'fields in another order',
      [one, two.replace('"trial":"a trial",', '').replace('}', ',"trial":"a trial"}'), three, four],
      ['chain 3'],
    ],
    ['a line left out', [one, three, four], ['gap 2']],
    ['the first left out', [two, three, four], ['gap 1']],
    ['lines changed over', [one, three, two, four], ['gap 2', 'gap 3', 'gap 4']],
    ['a line twice', [one, two, two, three, four], ['gap 3']],
    [
      'a line put between, numbered anew',
      [one, ...chain([{}, { count: 9 }, {}]).slice(1), four],
      ['chain 4'],
    ],
    [
      'another first line',
      [one.replace('"prev":null', `"prev":"${'a'.repeat(64)}"`), two],
      ['chain 1', 'chain 2'],
    ],
    ['a hash taken out', [one, two, JSON.stringify(unchained), four], ['unchained 3', 'chain 4']],
    [
      'all hashes taken out',
      [one].map((line) => line.replace(',"prev":null', '')),
      ['unchained null'],
    ],
    ['a field missing', [one, two, JSON.stringify(incomplete), four], ['not_an_event 3', 'gap 4']],
    [
      'a field more',
      [one, two.replace('}', ',"more":1}'), three, four],
      ['not_an_event 2', 'gap 3'],
    ],
    ['no JSON', [one, 'x', two], ['not_an_event 2']],
    ['an empty line', [one, '', two], ['not_an_event 2']],
    ['a line of another lease', [one, ...chain([{}], 'another00000'), two], ['not_an_event 2']],
    ['the end cut off, and the end was noted', [one, two], ['end null'], endOf(whole)],
    [
      'a new end, and the end was noted',
      [one, two, ...chain([{}, {}, { count: 2 }]).slice(2)],
      ['end null'],
      endOf(whole.slice(0, 3)),
    ],
  ]
  for (const [why, lines, expected, known] of rows) {
    t.strictSame(codes(lines, known), expected, why)
    t.equal(verify(lines, known)[0]?.ok, false, why)
  }
  t.strictSame(codes([one, two]), [], 'a cut end does not show where the end was not noted')
})

void t.test('lines of several leases may be mixed, each in its order', async (t) => {
  const other = chain([{}, {}], 'another00000')
  const lines = [one, other[0] ?? '', two, three, other[1] ?? '', four]
  t.match(verify(lines, nothing, null), [
    { lease, ok: true, events: 4 },
    { lease: 'another00000', ok: true, events: 2 },
  ])
})

void t.test('a thousand faults are told by the first of them and a number', async (t) => {
  const lines = Array.from({ length: 1000 }, () => 'x')
  t.match(verify(lines), [{ ok: false, problems: { length: 20 }, moreProblems: 980 }])
})

void t.test(
  'every canary that the proof says is recorded must be there, once for each proof',
  async (t) => {
    const canary = { canary: true }
    const leftBy: Readonly<Record<string, Partial<AuditEvent>>> = {
      'direct-tcp': { kind: 'census', port: 20_001 },
      'direct-tls': { protocol: 'tls', port: 443 },
      'direct-udp': { kind: 'census', protocol: 'udp', reason: 'direct_udp', port: 20_001 },
      'dns-name': {
        protocol: 'dns',
        host: `${'0'.repeat(16)}.canary.example`,
        address: null,
        reason: 'dns_query',
      },
      metadata: { kind: 'census', address: '169.254.169.254' },
      'denied-connect': {
        protocol: 'connect',
        host: `${'f'.repeat(16)}.denied.example`,
        reason: 'not_allowed_host',
      },
      'artifact-head': { protocol: 'hf', action: 'allow', reason: 'allowed_artifact' },
      'host-address-203.0.113.9': { kind: 'census', address: '203.0.113.9' },
    }
    const proof = Object.keys(leftBy).map((name) => ({ canary: name, audited: true }))
    const all = Object.values(leftBy).map((event) => ({ ...event, ...canary }))
    const found = (
      events: readonly Partial<AuditEvent>[],
      proofs = proof,
    ): AuditVerdict['canaries'] | undefined =>
      verify(chain(events), { proof: proofs, end: null })[0]?.canaries
    t.strictSame(found(all), { expected: proof.length, missing: [] })
    for (const [index, { canary: name }] of proof.entries())
      t.strictSame(found(all.toSpliced(index, 1))?.missing, [name], `${name} is missed`)
    t.strictSame(
      found(Object.values(leftBy))?.missing.length,
      proof.length,
      "the agent's own attempts are none",
    )
    t.strictSame(
      found(all, [...proof, ...proof])?.missing.length,
      proof.length,
      'two proofs leave two of each',
    )
    t.strictSame(found([...all, ...all], [...proof, ...proof])?.missing, [])
    t.strictSame(
      found([], [{ canary: 'ipv6', audited: null } as never, { canary: 'new', audited: true }]),
      {
        expected: 0,
        missing: [],
      },
    )
  },
)

void t.test('what every canary of the proof leaves is known here', (t) => {
  for (const { name, audited } of canaries({
    phase: 'before',
    model: true,
    exec: true,
    artifact: '/a',
  }))
    if (audited !== undefined) t.ok(canaryTrace(name) !== null, name)
  t.end()
})

void t.test('totals are exact, and targets beyond a cap are counted together', async (t) => {
  const summary = new AuditSummary()
  for (let n = 0; n < 1000; n += 1)
    summary.add({
      ...base,
      seq: n + 1,
      host: `${n}.example`,
      protocol: 'connect',
      count: 2,
      time: `2026-01-01T00:00:0${9 - (n % 10)}.000Z`,
    })
  summary.add({ ...base, kind: 'aggregate', host: '7.example', protocol: 'connect', count: 40 })
  const totals = summary.totals()
  t.match(totals, { events: 1001, attempts: 2040, denied: 2040, byReason: { direct_tcp: 2040 } })
  t.match(totals.targets[0], { host: '7.example', address: null, count: 42 })
  t.equal(
    totals.targets.reduce((total, { count }) => total + count, totals.moreTargets),
    2040,
  )
  t.equal(totals.targets.length, 512)
  t.match(
    totals,
    { from: '2026-01-01T00:00:00.000Z', until: '2026-01-01T00:00:09.000Z' },
    'also when the clock goes back',
  )
})
