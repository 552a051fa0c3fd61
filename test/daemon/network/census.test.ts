import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import t from 'tap'
import { Census, parseCensus } from '../../../daemon/network/census.ts'
import { hostAddresses, judge, canaries } from '../../../daemon/network/proof.ts'
import { listenerPorts, ports, routeArguments, rules } from '../../../daemon/network/rules.ts'
import type { AuditEvent, AuditRecord } from '../../../policy/audit-event.ts'

const set = (name: string, elements: readonly (readonly [string, string | number, number])[]) => ({
  set: {
    name,
    elem: elements.map(([address, second, packets]) => ({
      elem: { val: { concat: [address, second] }, counter: { packets, bytes: 1 } },
    })),
  },
})
const more = (name: string, packets: number) => ({ counter: { name: `${name}_more`, packets } })
const reading = (...objects: readonly object[]) =>
  parseCensus(JSON.stringify({ nftables: objects }))
const short = ({ protocol, address, port, reason, count, detail }: AuditRecord): string =>
  [protocol, address ?? '-', port ?? '-', reason, `x${count}`, detail ?? ''].join(' ').trim()
const asEvent = (record: AuditRecord): AuditEvent => ({
  seq: 1,
  time: new Date().toISOString(),
  lease: 'lease0000001',
  trial: null,
  host: null,
  address: null,
  port: null,
  count: 1,
  bytesUp: 0,
  bytesDown: 0,
  ...record,
})

const first = reading(
  { metainfo: { version: '1.0.6' } },
  set('tcp_attempts', [['198.51.100.7', 22, 2]]),
  set('udp_attempts', [
    ['198.51.100.7', 'domain', 0],
    ['224.0.0.251', 5353, 3],
  ]),
  set('other_attempts', [
    ['198.51.100.7', 'icmp', 1],
    ['198.51.100.8', 136, 4],
  ]),
  set('tcp_unanswered', [
    ['198.51.100.9', 443, 1],
    ['127.0.0.1', 3128, 2],
  ]),
  set('udp_unanswered', [['198.51.100.9', 53, 5]]),
  set('a_set_of_somebody', [['198.51.100.7', 1, 99]]),
  more('tcp_attempts', 10),
)

void t.test('a reading yields one record for each target, with why it was refused', async (t) => {
  t.strictSame(new Census().delta(first).map(short), [
    'tcp 198.51.100.7 22 direct_tcp x2',
    'udp 224.0.0.251 5353 direct_udp x3',
    'icmp 198.51.100.7 - direct_icmp x1',
    'other 198.51.100.8 - direct_other x4',
    'tcp 198.51.100.9 443 direct_tcp x1 no daemon was there to answer',
    'tcp 127.0.0.1 3128 internal_error x2 no daemon was there to answer',
    'udp 198.51.100.9 53 dns_query x5 no daemon was there to answer',
    'tcp - - direct_tcp x10 more addresses than the census keeps by name',
  ])
})

void t.test('the same is told once, and growth by its difference', async (t) => {
  const census = new Census()
  census.delta(first)
  t.strictSame(census.delta(first), [])
  const grown = reading(
    set('tcp_attempts', [
      ['198.51.100.7', 22, 5],
      ['198.51.100.7', 23, 1],
    ]),
    more('tcp_attempts', 11),
  )
  t.strictSame(census.delta(grown).map(short), [
    'tcp 198.51.100.7 22 direct_tcp x3',
    'tcp 198.51.100.7 23 direct_tcp x1',
    'tcp - - direct_tcp x1 more addresses than the census keeps by name',
  ])
})

void t.test('a census that is restored from the audit goes on where that ends', async (t) => {
  const events = new Census().delta(first).map(asEvent)
  const census = new Census()
  for (const event of events) census.restore(event)
  t.strictSame(census.delta(first), [], 'all of it was told before the restart')
  const later = new Census()
  for (const event of events.slice(1, -1)) later.restore(event)
  t.strictSame(
    later.delta(first).map(short),
    [events[0], events.at(-1)].map((event) => (event === undefined ? '' : short(event))),
    'what had not reached the log is told now',
  )
})

void t.test('an empty table and one without sets are nothing', async (t) => {
  t.strictSame(new Census().delta(parseCensus('{"nftables": []}')), [])
  t.strictSame(new Census().delta(parseCensus('{}')), [])
  t.throws(() => parseCensus('nft: no such file'))
})

void t.test(
  'the kernel takes the rules, and no rule lets a packet of another network out',
  async (t) => {
    const script = `
set -e
ip link set lo up
ip ${routeArguments.join(' ')}
nft -f - <<'EOF'
${rules}
EOF
ip route get 198.51.100.7
nft -j list table ip closedbook
`
    const { stdout } = await promisify(execFile)('unshare', ['--net', 'sh', '-c', script])
    t.match(stdout, /^local 198\.51\.100\.7 dev lo .*src 127\.0\.0\.1/)
    const census = parseCensus(stdout.slice(stdout.indexOf('{')))
    t.strictSame(census.entries, [])
    t.strictSame(Object.values(census.more), [0, 0, 0, 0, 0])
    t.strictSame(
      [...listenerPorts].toSorted((a, b) => a - b),
      [ports.dns, ports.http, ports.tls],
    )
  },
)

void t.test(
  'a canary that is missing, that ends otherwise or that left no event fails the proof',
  async (t) => {
    const list = canaries({ phase: 'before', model: false, exec: false })
    t.ok(hostAddresses().length <= 4)
    const one = list.find(({ name }) => name === 'raw-socket')
    const traced = list.find(({ name }) => name === 'direct-udp')
    if (one === undefined || traced === undefined) throw new Error('the proof has other canaries')
    const line = (name: string, exit: number, output = ''): string =>
      `\u0001${name} ${exit} ${output}\u0001\n`
    const rows: readonly (readonly [what: string, output: string, ok: boolean[]])[] = [
      ['as expected', line('raw-socket', 1, 'refused') + line('direct-udp', 1), [true, false]],
      ['it got through', line('raw-socket', 0) + line('direct-udp', 1), [false, false]],
      ['it did not run', line('direct-udp', 1), [false, false]],
      ['the program printed nothing', '', [false, false]],
      ['a forged line of another name', line('raw-sockets', 1), [false, false]],
    ]
    for (const [what, output, ok] of rows)
      t.strictSame(
        judge([one, traced], output, []).map((result) => result.ok),
        ok,
        what,
      )
    t.match(judge([traced], line('direct-udp', 1), []), [{ audited: false, ok: false }])
    t.match(judge([one], '', []), [{ seen: 'did not run', audited: null }])
  },
)
