/** ClientHello and DNS: what a sandbox sends in bytes. A second, simpler reader must agree with whatever is accepted. */
import t from 'tap'
import { ClientHelloReader } from '../../daemon/egress/client-hello.ts'
import {
  dnsCode,
  encodeDnsAnswer,
  encodeDnsFault,
  parseDnsQuery,
} from '../../daemon/egress/dns-message.ts'
import { decide, type HelloFacts } from '../../policy/decide.ts'
import { policySchema } from '../../policy/policy.ts'
import { extension, handshake, realHello, records, serverNames } from '../daemon/egress/hellos.ts'
import { Mutator } from './mutator.ts'

const max = 16 * 1024
const host = 'origin.example'
const policy = policySchema.parse({ version: 1, connect: { allow: [host] } })

function read(chunks: readonly Buffer[]): HelloFacts | null {
  const reader = new ClientHelloReader(max)
  for (const chunk of chunks) {
    const facts = reader.push(chunk)
    if (facts !== null) return facts
  }
  return null
}

/** Trusts every length; throws where one leads beyond the end. */
function simpleHello(flight: Buffer): { name: string | null; ech: boolean } {
  const payloads: Buffer[] = []
  for (let at = 0; at + 5 <= flight.length && flight[at] === 22;) {
    const end = at + 5 + flight.readUInt16BE(at + 3)
    payloads.push(flight.subarray(at + 5, end))
    at = end
  }
  const hello = Buffer.concat(payloads)
  let at = 4 + 34
  at += 1 + hello.readUInt8(at)
  at += 2 + hello.readUInt16BE(at)
  at += 1 + hello.readUInt8(at)
  const end = 4 + hello.readUIntBE(1, 3)
  const found = { name: null as string | null, ech: false }
  if (at === end) return found
  for (at += 2; at < end;) {
    const type = hello.readUInt16BE(at)
    const length = hello.readUInt16BE(at + 2)
    const data = hello.subarray(at + 4, at + 4 + length)
    if (type === 0) found.name = data.toString('latin1', 5, 5 + data.readUInt16BE(3))
    if (type === 0xfe0d || type === 0xffce) found.ech = true
    at += 4 + length
  }
  return found
}

void t.test('a ClientHello made at random is read for what it is, however it is cut', (t) => {
  const random = new Mutator(1)
  for (let round = 0; round < 2_000; round += 1) {
    const name = `${random.pick(['a', 'origin', 'x-1', 'very-long-label-of-a-name'])}.${random.pick(['example', 'test'])}`
    const ech = random.int(0, 4) === 0
    const others = Array.from({ length: random.int(0, 8) }, (_, index) =>
      extension(0x1a1a + 0x1010 * index, random.bytes(random.int(0, 60))),
    )
    others.splice(random.int(0, others.length), 0, serverNames(name))
    if (ech) others.splice(random.int(0, others.length), 0, extension(0xfe0d, random.bytes(9)))
    const flight = records(handshake(others), random.int(1, 300))
    const chunks = random.cut(flight, random.int(1, 6))
    const facts = read(chunks)
    if (JSON.stringify(facts) !== JSON.stringify({ kind: 'hello', serverName: name, ech }))
      throw new Error(`round ${round}: ${JSON.stringify(facts)} for ${name}`)
  }
  t.pass()
  t.end()
})

void t.test('a spoilt ClientHello is refused, or read as a simpler reader reads it', async (t) => {
  const random = new Mutator(2)
  const corpus = [
    await realHello(host),
    records(handshake([serverNames(host)])),
    records(handshake([serverNames(host), extension(0xfe0d, Buffer.alloc(8))]), 40),
    records(handshake(null)),
    Buffer.from('SSH-2.0-x\r\n'),
    Buffer.alloc(0),
  ]
  const ends = new Map<string, number>()
  for (let round = 0; round < 30_000; round += 1) {
    const flight = random.spoil(corpus)
    const facts = read([flight])
    const cut = read(random.cut(flight, random.int(2, 5)))
    const where = `round ${round}: ${flight.toString('hex')}`
    if (JSON.stringify(cut) !== JSON.stringify(facts))
      throw new Error(`otherwise when cut, ${where}`)
    ends.set(facts?.kind ?? 'more', (ends.get(facts?.kind ?? 'more') ?? 0) + 1)
    if (facts?.kind !== 'hello') continue
    const simple = simpleHello(flight)
    if (simple.name !== facts.serverName || simple.ech !== facts.ech)
      throw new Error(`${JSON.stringify(simple)} by the simpler reader, ${where}`)
    const { action } = decide(policy, { kind: 'hello', host, hello: facts })
    const right = !simple.ech && simple.name?.toLowerCase().replace(/\.$/, '') === host
    if ((action === 'allow') !== right) throw new Error(`${action} of ${simple.name}, ${where}`)
  }
  for (const kind of ['hello', 'not_tls', 'more'])
    t.ok((ends.get(kind) ?? 0) > 100, `${kind}: ${ends.get(kind)}`)
})

const dnsQuery = (labels: readonly Buffer[], type: number, edns: boolean): Buffer =>
  Buffer.concat([
    Buffer.from([0xab, 0xcd, 1, 0, 0, 1, 0, 0, 0, 0, 0, edns ? 1 : 0]),
    ...labels.flatMap((label) => [Buffer.from([label.length]), label]),
    Buffer.from([0, type >> 8, type & 255, 0, 1]),
    edns ? Buffer.from([0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 0]) : Buffer.alloc(0),
  ])

/** The bytes of a name as it was told: `\DDD` back to its byte. */
function encodeName(text: string): Buffer {
  if (text === '.') return Buffer.from([0])
  const labels = text.split('.').map((label) => {
    const plain = label.replace(/\\(\d{3})/g, (_, code: string) =>
      String.fromCharCode(Number(code)),
    )
    return Buffer.from(plain, 'latin1')
  })
  return Buffer.concat([
    ...labels.flatMap((label) => [Buffer.from([label.length]), label]),
    Buffer.from([0]),
  ])
}

void t.test(
  'a DNS query made at random is told by its name, and answered with its question',
  (t) => {
    const random = new Mutator(3)
    for (let round = 0; round < 3_000; round += 1) {
      const labels = Array.from({ length: random.int(1, 4) }, () => random.bytes(random.int(1, 60)))
      const type = random.pick([1, 28, 15, 255, 65535])
      const edns = random.int(0, 1) === 1
      const message = dnsQuery(labels, type, edns)
      const query = parseDnsQuery(message)
      if (query === null) throw new Error(`refused: ${message.toString('hex')}`)
      const name = message.subarray(12, message.length - 4 - (edns ? 11 : 0))
      if (!encodeName(query.name).equals(name))
        throw new Error(`${query.name} for ${name.toString('hex')}`)
      if (query.type !== type || query.edns !== edns) throw new Error(`type ${query.type}`)
      const answer = encodeDnsAnswer(query, { code: dnsCode.ok, address: '198.18.0.1' })
      const echoed = answer.subarray(12, 12 + query.question.length)
      if (answer.readUInt16BE(0) !== 0xabcd || !echoed.equals(query.question))
        throw new Error('another question in the answer')
    }
    t.pass()
    t.end()
  },
)

void t.test(
  'a spoilt DNS message is refused, or means what its bytes say; none is amplified',
  (t) => {
    const random = new Mutator(4)
    const label = (text: string): Buffer => Buffer.from(text)
    const corpus = [
      dnsQuery([label('origin'), label('example')], 1, false),
      dnsQuery([label('a'.repeat(63)), label('b'), label('test')], 28, true),
      dnsQuery([Buffer.from([0, 46, 92, 255]), label('x')], 16, true),
      Buffer.concat([dnsQuery([], 1, false), Buffer.from([0xc0, 0x0c])]),
    ]
    const ends = { query: 0, fault: 0, nothing: 0 }
    for (let round = 0; round < 40_000; round += 1) {
      const message = random.spoil(corpus)
      const query = parseDnsQuery(message)
      const where = `round ${round}: ${message.toString('hex')}`
      if (query === null) {
        const fault = encodeDnsFault(message)
        ends[fault === null ? 'nothing' : 'fault'] += 1
        if (fault === null) continue
        if (fault.length !== 12 || !fault.subarray(0, 2).equals(message.subarray(0, 2)))
          throw new Error(`a fault of its own, ${where}`)
        if (message.length < 12 || ((message[2] ?? 0) & 0x80) !== 0)
          throw new Error(`an answer is answered, ${where}`)
        continue
      }
      ends.query += 1
      const name = encodeName(query.name)
      if (!message.subarray(12, 12 + name.length).equals(name))
        throw new Error(`another name, ${where}`)
      const words = 'closedbook: not_allowed_host'
      const denied = encodeDnsAnswer(query, { code: dnsCode.nameError, prohibited: words })
      const found = encodeDnsAnswer(query, { code: dnsCode.ok, address: '198.19.255.254' })
      for (const answer of [denied, found])
        if (answer.length > message.length + 64) throw new Error(`amplified, ${where}`)
    }
    for (const [end, times] of Object.entries(ends)) t.ok(times > 100, `${end}: ${times}`)
    t.end()
  },
)
