import { createSocket } from 'node:dgram'
import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import t from 'tap'
import { nextChunk, tlsOver } from './clients.ts'
import { realHello } from './hellos.ts'
import { allowedHost, closed, tripwireAddress, World } from './world.ts'

void t.test('TLS that did not ask the proxy is let through by the name in it', async (t) => {
  await using world = await World.open()
  const secure = await tlsOver(world, connect({ port: world.ports.tls, host: '127.0.0.1' }))
  secure.write('hello')
  t.equal(String(await nextChunk(secure)), 'hello')
  secure.end()
  await world.until((seen) => seen.find(({ kind }) => kind === 'close'))
  t.match(await world.events(), [
    { protocol: 'tls', host: allowedHost, address: '127.0.0.1', port: 443, action: 'allow' },
    { kind: 'close', protocol: 'tls', host: allowedHost, connection: 1 },
  ])
  await world.raw(world.ports.tls, await realHello('evil.example'))
  await world.raw(world.ports.tls, await realHello(''))
  await world.raw(world.ports.tls, 'SSH-2.0-x\r\n')
  connect({ port: world.ports.tls, host: '127.0.0.1' }).on('connect', function (this: Socket) {
    this.destroy()
  })
  t.strictSame((await world.decisions(5)).slice(1), [
    'deny not_allowed_host evil.example',
    'deny direct_tcp null',
    'deny direct_tcp null',
    'deny direct_tcp null',
  ])
  t.strictSame(world.resolved, [allowedHost])
})

void t.test('plain HTTP that did not ask the proxy is let through by its Host', async (t) => {
  await using world = await World.open()
  const get = (host: string): string =>
    `GET /d HTTP/1.1\r\nHost: ${host}\r\nConnection: close\r\n\r\n`
  t.match(await world.raw(world.ports.http, get(allowedHost)), /^HTTP\/1\.1 200 OK[^]*GET \/d 0/)
  const rows = [
    [get('evil.example'), 403, 'not_allowed_host', 'evil.example'],
    [get('169.254.169.254'), 403, 'direct_tcp', '169.254.169.254'],
    ['GET / HTTP/1.0\r\n\r\n', 403, 'direct_tcp', null],
    [
      `CONNECT ${allowedHost}:443 HTTP/1.1\r\nHost: ${allowedHost}\r\n\r\n`,
      403,
      'direct_tcp',
      null,
    ],
    ['SSH-2.0-x\r\n\r\n', 400, 'direct_tcp', null],
  ] as const
  for (const [head, status, reason, host] of rows) {
    const answer = await world.raw(world.ports.http, head)
    t.match(answer, new RegExp(`^HTTP/1\\.1 ${status} [^]*X-Closedbook-Reason: ${reason}`))
    const events = (await world.events()).filter(({ kind }) => kind === 'decision')
    t.match(events.at(-1), { protocol: 'http', reason, host, port: 80, address: '127.0.0.1' })
  }
  const silent = connect({ port: world.ports.http, host: '127.0.0.1' })
  await once(silent, 'connect')
  silent.end()
  const decisions = await world.decisions(rows.length + 2)
  t.equal(decisions.at(-1), 'deny direct_tcp null', 'one that asks for nothing is recorded')
  t.equal(world.requests.length, 1)
})

void t.test('the tripwire records the address and resets the connection', async (t) => {
  await using world = await World.open()
  const socket = connect({ port: world.ports.tripwire, host: tripwireAddress })
  const [error] = await Promise.all([once(socket, 'error'), closed(socket)])
  t.match(error, [{ code: 'ECONNRESET' }])
  t.match((await world.events()).at(-1), {
    kind: 'decision',
    protocol: 'tcp',
    address: tripwireAddress,
    port: null,
    action: 'deny',
    reason: 'direct_tcp',
  })
})

const query = (name: string, type = 1, edns = false): Buffer => {
  const labels = name.split('.').map((label) => Buffer.from(`\0${label}`, 'latin1'))
  for (const label of labels) label[0] = label.length - 1
  const question = Buffer.concat([...labels, Buffer.from([0, type >> 8, type & 255, 0, 1])])
  const header = Buffer.from([0xab, 0xcd, 1, 0, 0, 1, 0, 0, 0, 0, 0, edns ? 1 : 0])
  const opt = edns ? Buffer.from([0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 0]) : Buffer.alloc(0)
  return Buffer.concat([header, question, opt])
}

void t.test(
  'DNS: denied names do not exist, allowed names lead back to us, and all is recorded',
  async (t) => {
    await using world = await World.open()
    const client = createSocket('udp4')
    t.teardown(() => client.close())
    const ask = async (message: Buffer): Promise<Buffer> => {
      client.send(message, world.ports.dnsUdp, '127.0.0.1')
      return ((await once(client, 'message')) as [Buffer])[0]
    }
    const denied = await ask(query('s3cr3t.evil.example', 1, true))
    t.equal(denied.readUInt16BE(0), 0xabcd)
    t.equal(denied[3], 0x83, 'no such name')
    t.match(
      denied.toString('latin1'),
      /closedbook: dns_query$/,
      'and why, for those who understand',
    )
    const found = await ask(query('ORIGIN.example'))
    t.equal(found[3], 0x80)
    t.equal(found.readUInt16BE(6), 1, 'one answer')
    const address = [...found.subarray(-4)].join('.')
    t.match(address, /^198\.1[89]\.\d+\.\d+$/)
    t.strictSame(
      (await ask(query(allowedHost))).subarray(-4),
      found.subarray(-4),
      'the same each time',
    )
    t.equal((await ask(query('a.sub.example'))).length, found.length - 1)
    const six = await ask(query(allowedHost, 28))
    t.strictSame([six[3], six.readUInt16BE(6)], [0x80, 0], 'no IPv6 address, but the name exists')
    t.equal((await ask(query('bad.sub.example')))[3], 0x83)
    t.equal((await ask(query('localhost')))[3], 0x83)
    t.equal((await ask(query('x y.example')))[3], 0x83)
    t.strictSame(await world.decisions(8), [
      'deny dns_query s3cr3t.evil.example',
      `allow allowed_host ${allowedHost}`,
      `allow allowed_host ${allowedHost}`,
      'allow allowed_host a.sub.example',
      `allow allowed_host ${allowedHost}`,
      'deny denied_host bad.sub.example',
      'deny dns_query localhost',
      'deny dns_query x\\\\032y.example',
    ])
    t.strictSame(world.resolved, [], 'nobody was asked')
  },
)

void t.test(
  'DNS: what is no query is recorded, and over TCP messages may come in any pieces',
  async (t) => {
    await using world = await World.open()
    const client = createSocket('udp4')
    t.teardown(() => client.close())
    const plain = query(allowedHost)
    const broken = [
      Buffer.alloc(0),
      Buffer.from('x'),
      Buffer.alloc(12),
      plain.subarray(0, -1),
      Buffer.concat([plain.subarray(0, 12), Buffer.from([0xc0, 0x0c, 0, 1, 0, 1])]),
      Buffer.concat([plain.subarray(0, 12), Buffer.alloc(300, 1)]),
      Buffer.concat([Buffer.from([0xab, 0xcd, 0x28, 0]), plain.subarray(4)]),
      Buffer.concat([Buffer.from([0xab, 0xcd, 1, 0, 0, 2]), plain.subarray(6)]),
      Buffer.concat([Buffer.from([0xab, 0xcd, 0x81, 0]), plain.subarray(4)]),
    ]
    for (const message of broken) client.send(message, world.ports.dnsUdp, '127.0.0.1')
    const seen = await world.decisions(broken.length)
    t.ok(seen.every((decision) => decision === 'deny dns_query null'))

    const framed = (message: Buffer): Buffer =>
      Buffer.concat([Buffer.from([message.length >> 8, message.length & 255]), message])
    const socket = connect({ port: world.ports.dnsTcp, host: '127.0.0.1', noDelay: true })
    const three = Buffer.concat(
      ['evil.example', allowedHost, 'x.evil.example'].map((n) => framed(query(n))),
    )
    let answers = Buffer.alloc(0)
    socket.on('data', (chunk: Buffer) => (answers = Buffer.concat([answers, chunk])))
    for (const byte of three) {
      socket.write(Buffer.from([byte]))
      await new Promise((turn) => setImmediate(turn))
    }
    socket.end()
    await closed(socket)
    const codes: number[] = []
    for (let at = 0; at < answers.length; at += 2 + answers.readUInt16BE(at)) {
      codes.push((answers[at + 5] ?? 0) & 15)
    }
    t.strictSame(codes, [3, 0, 3])
    t.equal(await world.raw(world.ports.dnsTcp, framed(Buffer.from('x'))), '', 'rubbish ends it')
    t.match((await world.events()).at(-2), { protocol: 'dns', address: '127.0.0.1', port: 53 })
    t.strictSame(world.faults, [])
  },
)
