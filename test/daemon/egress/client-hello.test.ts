import t from 'tap'
import { ClientHelloReader } from '../../../daemon/egress/client-hello.ts'
import type { HelloFacts } from '../../../policy/decide.ts'
import { extension, handshake, realHello, records, serverNames } from './hellos.ts'

const max = 16 * 1024
const read = (...chunks: Buffer[]): HelloFacts | null => {
  const reader = new ClientHelloReader(max)
  for (const chunk of chunks) {
    const facts = reader.push(chunk)
    if (facts !== null) return facts
  }
  return null
}
const shown = (facts: HelloFacts | null): string => {
  if (facts === null) return 'more'
  return facts.kind === 'hello' ? `${facts.serverName}${facts.ech ? ' hidden' : ''}` : facts.kind
}

void t.test('a real ClientHello is read however it is cut into segments', async (t) => {
  const hello = await realHello('origin.example')
  const expected = { kind: 'hello', serverName: 'origin.example', ech: false }
  t.strictSame(read(hello), expected)
  for (let cut = 1; cut < hello.length; cut += 1) {
    const reader = new ClientHelloReader(max)
    if (reader.push(hello.subarray(0, cut)) !== null) t.fail(`told too early, at ${cut}`)
    const facts = reader.push(hello.subarray(cut))
    if (JSON.stringify(facts) !== JSON.stringify(expected)) t.fail(`wrong when cut at ${cut}`)
    if (!reader.bytes.equals(hello)) t.fail(`bytes lost when cut at ${cut}`)
  }
  const single = new ClientHelloReader(max)
  const told = [...hello].map((byte) => single.push(Buffer.from([byte])))
  t.strictSame(told.at(-1), expected, 'byte by byte')
  t.ok(told.slice(0, -1).every((facts) => facts === null))
  t.ok(hello.length > 300)
})

void t.test('a ClientHello is put together over records of any size', async (t) => {
  const message = (await realHello('origin.example')).subarray(5)
  for (const size of [1, 2, 3, 5, 60, 500, 1500]) {
    const facts = read(records(message, size))
    t.equal(
      shown(facts),
      message.length * 6 > max && size === 1 ? shown(facts) : 'origin.example',
      `${size}`,
    )
  }
  t.equal(shown(read(records(message, 100).subarray(0, -1))), 'more', 'the last byte is missing')
})

const name = 'origin.example'
const sni = serverNames(name)
const whole = records(handshake([sni]))
const edit = (bytes: Buffer, at: number, value: number): Buffer => {
  const copy = Buffer.from(bytes)
  copy[at] = value
  return copy
}

const rows: readonly (readonly [bytes: Buffer, expected: string, why: string])[] = [
  [whole, name, 'one built by hand'],
  [records(handshake([extension(10, Buffer.alloc(4)), sni])), name, 'the name behind others'],
  [Buffer.concat([whole, Buffer.from([20, 3, 3, 0, 1, 1])]), name, 'more records behind it'],
  [records(handshake([serverNames('a.b')]), 3), 'a.b', 'in records of three bytes'],
  [records(handshake([])), 'null', 'no extension'],
  [records(handshake(null)), 'null', 'the end before the extensions'],
  [records(handshake([sni, extension(0xfe0d, Buffer.alloc(8))])), `${name} hidden`, 'ECH'],
  [
    records(handshake([extension(0xffce, Buffer.alloc(8)), sni])),
    `${name} hidden`,
    'the draft before ECH',
  ],
  [records(handshake([extension(0xfe0d, Buffer.alloc(0))])), 'null hidden', 'ECH without a name'],
  [records(handshake([sni, sni])), 'not_tls', 'the extension twice'],
  [
    records(handshake([sni, extension(5, Buffer.alloc(0)), extension(5, Buffer.alloc(0))])),
    'not_tls',
    'another twice',
  ],
  [records(handshake([serverNames(name, 'evil.example')])), 'not_tls', 'two names'],
  [records(handshake([serverNames()])), 'not_tls', 'an empty list'],
  [records(handshake([serverNames('')])), 'not_tls', 'an empty name'],
  [records(handshake([serverNames([1, name])])), 'not_tls', 'a name of another type'],
  [records(handshake([extension(0, Buffer.alloc(0))])), 'not_tls', 'the extension empty'],
  [
    records(handshake([extension(0, Buffer.from([0, 9, 0, 0, 1, 97]))])),
    'not_tls',
    'a list longer than it is',
  ],
  [
    records(handshake([serverNames('a\0b.example')])),
    'a\0b.example',
    'a zero byte, for the grammar to refuse',
  ],
  [records(handshake([sni], 2)), 'not_tls', 'a ServerHello'],
  [
    records(Buffer.concat([handshake([sni]), handshake([sni])])),
    'not_tls',
    'two messages in the flight',
  ],
  [edit(whole, 0, 23), 'not_tls', 'application data'],
  [edit(whole, 0, 21), 'not_tls', 'an alert'],
  [edit(whole, 1, 2), 'not_tls', 'another major version'],
  [edit(whole, 3, 0xff), 'not_tls', 'a record that is too long'],
  [Buffer.from([22, 3, 1, 0, 0]), 'not_tls', 'an empty record'],
  [edit(whole, 43, 33), 'not_tls', 'a session id that is too long'],
  [edit(whole, 8, whole[8] === 0 ? 1 : 0), 'not_tls', 'the inner length is wrong'],
  [edit(whole, 6, 1), 'not_tls', 'a message of 64 KiB and more'],
  [Buffer.from('SSH-2.0-OpenSSH_9.9\r\n'), 'not_tls', 'SSH'],
  [Buffer.from('GET / HTTP/1.1\r\n\r\n'), 'not_tls', 'plain HTTP'],
  [Buffer.from([0x80, 0x2e, 1, 3, 1]), 'not_tls', 'SSL 2'],
  [Buffer.from([5, 1, 0]), 'not_tls', 'SOCKS'],
  [Buffer.from([22]), 'more', 'one byte that could be it'],
  [Buffer.from([22, 3, 1, 2, 0, 1]), 'more', 'the beginning'],
  [Buffer.from([22, 3, 1, 2, 0, 2]), 'not_tls', 'the beginning of another message'],
  [Buffer.alloc(0), 'more', 'nothing'],
]

void t.test('what is not a well-formed ClientHello is not TLS', (t) => {
  for (const [bytes, expected, why] of rows) {
    t.equal(shown(read(bytes)), expected, why)
    t.equal(
      shown(read(...[...bytes].map((byte) => Buffer.from([byte])))),
      expected,
      `${why}, byte by byte`,
    )
  }
  t.end()
})

void t.test('a ClientHello longer than the limit is refused, not waited for', (t) => {
  const padded = records(handshake([sni, extension(21, Buffer.alloc(max))]))
  const reader = new ClientHelloReader(max)
  let pushed = 0
  let facts: HelloFacts | null = null
  while (facts === null && pushed < padded.length) {
    facts = reader.push(padded.subarray(pushed, pushed + 1000))
    pushed += 1000
  }
  t.equal(shown(facts), 'not_tls')
  t.ok(pushed <= max + 1000, 'no more is kept than the limit and one segment')
  t.end()
})

void t.test('no broken ClientHello throws, or names another host', async (t) => {
  const hello = await realHello(name)
  let seed = 7
  const random = (below: number): number => {
    seed = (seed * 1_103_515_245 + 12_345) % 2_147_483_648
    return Math.floor((seed / 2_147_483_648) * below)
  }
  const named = new Map<string, number>()
  for (let round = 0; round < 20_000; round += 1) {
    const copy = Buffer.from(hello)
    for (let edits = random(4); edits >= 0; edits -= 1) copy[random(copy.length)] = random(256)
    const facts = read(copy.subarray(0, random(3) === 0 ? random(copy.length) : copy.length))
    const key = facts === null ? 'more' : facts.kind
    named.set(key, (named.get(key) ?? 0) + 1)
  }
  t.strictSame([...named.keys()].toSorted(), ['hello', 'more', 'not_tls'], 'each end is reached')
})
