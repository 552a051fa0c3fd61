/** Counts of attempts are exact however many there are, and the audit, the summary and the command line agree. */
import t from 'tap'
import { runInNamespace } from '../../../daemon/network/namespace.ts'
import type { AuditEvent } from '../../../policy/audit-event.ts'
import { SandboxWorld } from './setup.ts'

const world = await SandboxWorld.open()
t.teardown(() => world[Symbol.asyncDispose]())

/** `connect TOTAL PORTS AT-ONCE ADDRESS`, `udp TOTAL ADDRESS PORT`, `spread TOTAL`: prints what came of them by errno. */
const attempts = `
import collections, errno, json, selectors, socket, sys
kind, total = sys.argv[1], int(sys.argv[2])
seen = collections.Counter()
word = lambda number: errno.errorcode.get(number, 'ok')
def connect(target, poll, n):
    s = socket.socket(); s.setblocking(False)
    number = s.connect_ex(target(n))
    if number == errno.EINPROGRESS: poll.register(s, selectors.EVENT_WRITE); return True
    seen[word(number)] += 1; s.close(); return False
def connects(target, at_once):
    poll = selectors.DefaultSelector(); made = under_way = 0
    while made < total or under_way:
        while made < total and under_way < at_once:
            under_way += connect(target, poll, made); made += 1
        for key, _ in poll.select(10):
            seen[word(key.fileobj.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))] += 1
            poll.unregister(key.fileobj); key.fileobj.close(); under_way -= 1
if kind == 'connect':
    ports, at_once, address = int(sys.argv[3]), int(sys.argv[4]), sys.argv[5]
    connects(lambda n: (address, 10000 + n % ports), at_once)
elif kind == 'spread':
    connects(lambda n: (f'203.0.113.{n % 250}', 10000 + n // 250), 200)
else:
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    for _ in range(total):
        try: s.sendto(b'x', (sys.argv[3], int(sys.argv[4]))); seen['ok'] += 1
        except OSError as error: seen[word(error.errno)] += 1
names, values = [line.split() for line in open('/proc/net/netstat') if line.startswith('TcpExt:')]
print(json.dumps({'seen': seen, 'again': int(values[names.index('TCPSynRetrans')])}))
`
interface Outcome {
  readonly seen: Readonly<Record<string, number>>
  /** Connections that the kernel had to ask for again: a second was waited for each. */
  readonly again: number
}
const attempt = async (lease: string, ...args: string[]): Promise<Outcome> =>
  (await world.python(lease, attempts, args)) as Outcome

const sum = (events: readonly AuditEvent[], choose: (event: AuditEvent) => boolean): number =>
  events.filter(choose).reduce((total, { count }) => total + count, 0)

/** What everybody says was tried: the events, the API's summary, and the command line. */
async function told(lease: string): Promise<{ events: AuditEvent[]; attempts: number[] }> {
  const events = await world.audit(lease)
  const summary = await world.daemon.client.egress(lease)
  const { stdout } = await world.daemon.cli(['audit', lease, '--json'])
  const printed = stdout
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line) as AuditEvent)
  const isAttempt = ({ kind }: AuditEvent): boolean =>
    ['census', 'decision', 'aggregate'].includes(kind)
  return {
    events,
    attempts: [
      sum(events, isAttempt),
      sum(printed, isAttempt),
      summary.attempts,
      summary.denied,
      Object.values(summary.byReason).reduce((total, count) => total + count, 0),
    ],
  }
}

const nobody = (outcome: Outcome): string[] =>
  // A few ring at the tripwire, which takes them and resets them: a client may see the connection before the reset.
  Object.keys(outcome.seen).filter((word) => !['ECONNREFUSED', 'ECONNRESET', 'ok'].includes(word))

void t.test(
  'a hundred connections at once, a thousand datagrams, queries and requests',
  async (t) => {
    const lease = await world.lease()
    t.strictSame((await told(lease)).attempts, [0, 0, 0, 0, 0], 'our proof is not counted')
    t.strictSame(nobody(await attempt(lease, 'connect', '100', '20', '100', '198.51.100.9')), [])
    const udp = await attempt(lease, 'udp', '1000', '198.51.100.9', '4433')
    t.strictSame(udp.seen, { EPERM: 1000 })
    await world.run(lease, [
      'sh',
      '-c',
      'for n in 1 2 3; do curl -s http://198.51.100.80/$n -H "Host: a.example"; done; curl -s https://198.51.100.43/; ' +
        'curl -s -x http://127.0.0.1:3128 https://denied.example/; getent hosts name.example',
    ])
    const { events, attempts: counts } = await told(lease)
    t.strictSame(new Set(counts), new Set([100 + 1000 + 3 + 1 + 1 + 2]))
    const tcp = events
      .filter(({ address }) => address === '198.51.100.9')
      .filter(({ protocol }) => protocol === 'tcp')
    for (let port = 10000; port < 10020; port += 1)
      t.equal(
        sum(tcp, (event) => event.port === port),
        5,
        `five at port ${port}`,
      )
    t.equal(
      sum(events, ({ protocol, port }) => protocol === 'udp' && port === 4433),
      1000,
    )
    t.strictSame(
      events.map(({ seq }) => seq),
      events.map((_, n) => (events[0]?.seq ?? 0) + n),
      'numbers without a gap',
    )
  },
)

void t.test('floods of 20,000 connections are refused at once and counted exactly', async (t) => {
  const lease = await world.lease({ resources: { cpus: 2 } })
  const rows = [
    ['20', '200', '198.51.100.10', 'to twenty ports'],
    ['1', '2000', '198.51.100.11', 'to one port, two thousand at once'],
  ] as const
  for (const [ports, atOnce, address, words] of rows) {
    const outcome = await attempt(lease, 'connect', '20000', ports, atOnce, address)
    t.strictSame(nobody(outcome), [], words)
    t.equal(outcome.again, 0, `${words}: none had to wait`)
    const { events } = await told(lease)
    t.equal(
      sum(events, (event) => event.address === address),
      20_000,
      words,
    )
  }
  const { events, attempts: counts } = await told(lease)
  t.strictSame(new Set(counts), new Set([40_000]))
  t.ok(events.length < 1000, `${events.length} events tell of them`)
})

void t.test('more targets than the census names are still counted', async (t) => {
  const lease = await world.lease({ resources: { cpus: 2 } })
  t.strictSame(nobody(await attempt(lease, 'spread', '6000')), [])
  const { events, attempts: counts } = await told(lease)
  t.strictSame(new Set(counts), new Set([6000]))
  const unnamed = events.filter(({ address }) => address === null)
  // The canaries of the proof have their places among the 4096 as well.
  t.ok(sum(unnamed, () => true) >= 6000 - 4096)
  t.ok(sum(unnamed, () => true) < 6000 - 4096 + 50)
  for (const event of unnamed)
    t.match(event, { kind: 'census', port: null, reason: 'direct_tcp', detail: /more addresses/ })
})

/** Each from a socket of its own that is closed at once: the most that a namespace's table of flows can be made to hold. */
const datagrams = `
import json, socket, sys
sent = 0
for name, total in (('loopback', 30000), ('names', 5000)):
    for n in range(total):
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        target = ('127.0.1.%d' % (n % 200), 1024 + n // 200) if name == 'loopback' else ('203.0.113.%d' % (n % 200), 53)
        s.sendto(b'no query at all', target); s.close(); sent += 1
print(json.dumps(sent))
`

void t.test('a flood of datagrams fills no table, and none of its queries is missed', async (t) => {
  const lease = await world.lease({ resources: { cpus: 2 } })
  t.equal(await world.python(lease, datagrams, []), 35_000)
  const { events, attempts: counts } = await told(lease)
  t.strictSame(
    new Set(counts),
    new Set([5000]),
    'loopback is no attempt, and an error that answers an answer is none',
  )
  t.strictSame([...new Set(events.map(({ reason }) => reason))], ['dns_query'])
  const flows = await runInNamespace(await world.pidOf(lease), [
    'cat',
    '/proc/sys/net/netfilter/nf_conntrack_count',
  ])
  t.ok(Number(flows) < 20_000, `${flows.trim()} flows are remembered`)
})

void t.test('what was tried and not yet read is in the audit of a closed lease', async (t) => {
  const lease = await world.lease()
  const udp = await attempt(lease, 'udp', '50', '198.51.100.12', '7')
  t.strictSame(udp.seen, { EPERM: 50 })
  const report = await world.daemon.client.freeze(lease)
  t.match(report, { empty: true })
  await world.daemon.client.closeLease(lease, 'done')
  t.equal(
    sum(await world.audit(lease), ({ port }) => port === 7),
    50,
  )
  const result = await world.daemon.cli(['audit', lease])
  t.match(result.stdout, /deny\s+udp\s+198\.51\.100\.12:7\s+direct_udp/)
  t.equal(result.code, 0)
})
