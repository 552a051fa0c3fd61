import { createSocket } from 'node:dgram'
import { once } from 'node:events'
import { connect } from 'node:net'
import t from 'tap'
import { Gate, limitsOf } from '../../../daemon/egress/limits.ts'
import { Pace } from '../../../daemon/egress/pace.ts'
import { policySchema } from '../../../policy/policy.ts'
import { connectLine, nextChunk, proxied, received, tlsOver, tunnelTo } from './clients.ts'
import { realHello } from './hellos.ts'
import { allowedHost, closed, eventually, tripwireAddress, World } from './world.ts'

void t.test('one tunnel too many is refused with 429, until another has ended', async (t) => {
  await using world = await World.open({ limits: { concurrent: 2 } })
  const open = [
    await tlsOver(world, await tunnelTo(world)),
    await tlsOver(world, await tunnelTo(world)),
  ]
  const line = connectLine(`${allowedHost}:443`)
  t.match(await world.raw(world.ports.proxy, line), /^HTTP\/1\.1 429 [^]*limit_conns/)
  t.match((await world.events()).at(-1), {
    action: 'deny',
    reason: 'limit_conns',
    host: allowedHost,
  })
  open[0]?.destroy()
  await world.until((seen) => seen.find(({ kind }) => kind === 'close'))
  const again = await tlsOver(world, await tunnelTo(world))
  t.ok(again.authorized)
  for (const socket of [...open, again]) socket.destroy()
})

void t.test(
  'a limit shared by leases counts all of them, and a pass can be given back twice',
  (t) => {
    const shared = new Gate(2)
    const [one, two] = [new Gate(2, shared), new Gate(2, shared)]
    const pass = one.enter()
    t.ok(pass)
    t.ok(two.enter())
    t.equal(two.enter(), null, 'the shared one is full')
    t.equal(two.inside, 1, 'and nothing was taken')
    pass?.[Symbol.dispose]()
    pass?.[Symbol.dispose]()
    t.strictSame([one.inside, shared.inside], [0, 1])
    t.ok(two.enter())
    t.equal(two.enter(), null, 'its own one is full')
    t.equal(shared.inside, 2)
    t.end()
  },
)

void t.test('one socket too many is closed and recorded', async (t) => {
  await using world = await World.open({ limits: { sockets: 3 } })
  const idle = [1, 2, 3].map(() =>
    connect({ port: world.ports.proxy, host: '127.0.0.1' }).on('error', () => undefined),
  )
  await eventually(() => world.egress.openSockets === 3)
  t.equal(await world.raw(world.ports.tls), '')
  t.match((await world.events()).at(-1), { protocol: 'tls', reason: 'limit_conns', action: 'deny' })
  t.equal(world.egress.openSockets, 3)
  for (const socket of idle) socket.destroy()
})

void t.test('a tunnel ends when it is idle, too old, or has carried too much', async (t) => {
  const rows = [
    [{ idleTimeoutMs: 100 }, 'idle'],
    [{ lifetimeMs: 200 }, 'lifetime reached'],
    [{ connectionBytes: 10_000 }, 'byte limit reached'],
    [{ totalBytes: 10_000 }, 'byte limit of the lease reached'],
  ] as const
  for (const [limits, detail] of rows) {
    await using world = await World.open({ limits })
    const secure = await tlsOver(world, await tunnelTo(world))
    secure.resume()
    // Echoed over and over, so that only idleness is without traffic.
    if (detail !== 'idle') secure.on('data', (chunk: Buffer) => secure.write(chunk))
    if (detail !== 'idle') secure.write('x'.repeat(6_000))
    await closed(secure)
    const end = await world.until((seen) => seen.find(({ kind }) => kind === 'close'))
    t.match(end, { detail, host: allowedHost })
    t.ok(end.bytesUp > 0 && end.bytesDown > 0)
  }
})

void t.test('a policy sets the limits of its lease', async (t) => {
  const policy = policySchema.parse({
    version: 1,
    connect: { allow: [allowedHost], ports: [80, 443] },
    limits: { connections: 1, maxBytes: 6_000_000 },
  })
  await using world = await World.open({ policy })
  const line = connectLine(`${allowedHost}:443`)
  const first = await tlsOver(world, await tunnelTo(world))
  t.match(await world.raw(world.ports.proxy, line), /^HTTP\/1\.1 429 [^]*limit_conns/)
  first.resume().write('flood 500000000')
  await closed(first)
  const end = await world.until((seen) => seen.find(({ kind }) => kind === 'close'))
  t.equal(end.detail, 'byte limit of the lease reached')
  t.strictSame(limitsOf({ connectionBytes: 5, idleSeconds: 2, lifetimeSeconds: 3, sockets: 9 }), {
    connectionBytes: 5,
    idleTimeoutMs: 2000,
    lifetimeMs: 3000,
    sockets: 9,
  })
  t.match(await world.raw(world.ports.proxy, line), /^HTTP\/1\.1 403 [^]*limit_bytes/)
  const get = `GET http://${allowedHost}/ HTTP/1.1\r\nHost: ${allowedHost}\r\nConnection: close\r\n\r\n`
  t.match(await world.raw(world.ports.proxy, get), /^HTTP\/1\.1 403 [^]*limit_bytes/)
  t.match((await world.events()).at(-1), { action: 'deny', reason: 'limit_bytes' })
})

void t.test(
  'plain HTTP counts for the bytes of a lease, and so does what was before',
  async (t) => {
    const get = `GET http://${allowedHost}/ HTTP/1.1\r\nHost: ${allowedHost}\r\nConnection: close\r\n\r\n`
    await using world = await World.open({ limits: { totalBytes: 500 }, spentBytes: 300 })
    t.match(await world.raw(world.ports.proxy, get), /^HTTP\/1\.1 200 /)
    await world.until((seen) => seen.find(({ kind }) => kind === 'close'))
    t.match(await world.raw(world.ports.proxy, get), /^HTTP\/1\.1 403 [^]*limit_bytes/)
    await using full = await World.open({ limits: { totalBytes: 500 }, spentBytes: 500 })
    t.match(await full.raw(full.ports.proxy, get), /^HTTP\/1\.1 403 [^]*limit_bytes/)
    t.match(await full.raw(full.ports.tls, await realHello(allowedHost)), '\x15\x03\x03')
    t.strictSame(full.resolved, [])
  },
)

void t.test('a connection that stalls amid a refused upload is closed', async (t) => {
  await using world = await World.open({ limits: { idleTimeoutMs: 200 } })
  const head =
    'POST http://evil.example/ HTTP/1.1\r\nHost: evil.example\r\nContent-Length: 50\r\n\r\n'
  t.match(await world.raw(world.ports.proxy, head), /^HTTP\/1\.1 403 /)
  await eventually(() => world.egress.openSockets === 0)
  t.pass('and its place is free')
})

void t.test('a request head that never ends is refused in its time', async (t) => {
  await using world = await World.open({ limits: { headersTimeoutMs: 100 } })
  const answer = await world.raw(world.ports.proxy, `GET http://${allowedHost}/ HTTP/1.1\r\nA: `)
  t.match(answer, /^HTTP\/1\.1 408 [^]*bad_request/)
  t.match((await world.events()).at(-1), {
    reason: 'bad_request',
    detail: /ERR_HTTP_REQUEST_TIMEOUT/,
  })
})

void t.test('shutting ends every tunnel, records it, and lets nothing in any more', async (t) => {
  const controller = new AbortController()
  await using world = await World.open({ signal: controller.signal })
  const secure = await tlsOver(world, await tunnelTo(world))
  const held = await tunnelTo(world)
  const idle = connect({ port: world.ports.proxy, host: '127.0.0.1' })
  await once(idle, 'connect')
  const ended = [secure, held, idle].map((socket) => {
    socket.on('error', () => undefined).on('end', () => socket.destroy())
    return closed(socket.resume())
  })
  controller.abort()
  await Promise.all(ended)
  await world.egress[Symbol.asyncDispose]()
  const events = await world.events()
  t.match(events.at(-1), { kind: 'close', detail: 'egress shut' })
  const { proxy, tls, http, tripwire, dnsTcp } = world.ports
  for (const port of [proxy, tls, http, tripwire, dnsTcp]) {
    t.equal(await world.raw(port, connectLine(`${allowedHost}:443`)), '', 'closed at once')
  }
  t.equal((await world.events()).length, events.length)
})

void t.test('without a record nothing passes', async (t) => {
  await using world = await World.open()
  const secure = await tlsOver(world, await tunnelTo(world))
  await world.audit.close()
  const held = await tunnelTo(world)
  const accepted = world.accepted
  held.write(await realHello(allowedHost))
  await closed(held.on('end', () => held.destroy()).resume())
  t.equal(held.bytesRead, 'HTTP/1.1 200 Connection Established\r\n\r\n'.length)
  t.equal(world.accepted, accepted, 'no byte was sent that an origin answered')
  const denied = await world.raw(world.ports.proxy, connectLine('evil.example:443'))
  t.equal(denied, '')
  t.match(world.faults, [{ code: 'audit_closed' }, { code: 'audit_closed' }])
  secure.destroy()
})

void t.test('hostile bytes neither stop a listener nor throw', async (t) => {
  await using world = await World.open({ limits: { helloTimeoutMs: 200, headersTimeoutMs: 200 } })
  let seed = 42
  const random = (below: number): number => {
    seed = (seed * 1_103_515_245 + 12_345) % 2_147_483_648
    return Math.floor((seed / 2_147_483_648) * below)
  }
  const bytes = (length: number): Buffer => Buffer.from(Array.from({ length }, () => random(256)))
  const seeds = [
    Buffer.from(connectLine(`${allowedHost}:443`)),
    Buffer.from(
      `POST http://${allowedHost}/ HTTP/1.1\r\nHost: ${allowedHost}\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n`,
    ),
    await realHello(allowedHost),
    Buffer.from(
      `\0\x1d\xab\xcd\x01\0\0\x01\0\0\0\0\0\0\x06origin\x07example\0\0\x01\0\x01`,
      'latin1',
    ),
  ]
  const udp = createSocket('udp4')
  t.teardown(() => udp.close())
  const { dnsUdp, ...tcp } = world.ports
  for (const port of Object.values(tcp)) {
    await Promise.all(
      Array.from({ length: 60 }, async (_, round) => {
        const base = seeds[round % (seeds.length + 1)] ?? bytes(random(400))
        const copy = Buffer.from(base)
        for (let edits = random(6); edits > 0; edits -= 1) copy[random(copy.length)] = random(256)
        const host = port === tcp.tripwire ? tripwireAddress : '127.0.0.1'
        const socket = connect({ port, host })
        socket.on('error', () => undefined).resume()
        socket.write(copy.subarray(0, 1 + random(copy.length)))
        const ending = random(3)
        if (ending === 0) socket.end(bytes(random(50)))
        if (ending === 1) socket.resetAndDestroy()
        socket.setTimeout(1_000, () => socket.destroy())
        await closed(socket)
      }),
    )
  }
  for (let round = 0; round < 200; round += 1) udp.send(bytes(random(80)), dnsUdp, '127.0.0.1')
  t.strictSame(world.faults, [])
  const secure = await tlsOver(world, await tunnelTo(world))
  secure.write('still here')
  t.equal(String(await nextChunk(secure)), 'still here')
  secure.destroy()
  const plain = await proxied(
    world,
    `GET http://${allowedHost}/ HTTP/1.1\r\nHost: ${allowedHost}\r\nConnection: close\r\n\r\n`,
  )
  t.match(String(await received(plain)), /200 OK/)
  plain.destroy()
  t.ok((await world.events()).length > 60, 'and each of them is in the log, in its place')
})

void t.test('denials beyond a burst are answered at a pace, and none beyond a queue', async (t) => {
  const pace = new Pace({ perSecond: 200, burst: 10, waiting: 20 })
  const started = performance.now()
  const answers = Array.from({ length: 40 }, async () => {
    const answered = await pace.turn()
    return { answered, ms: performance.now() - started }
  })
  const all = await Promise.all(answers)
  const given = all.filter(({ answered }) => answered)
  t.equal(given.length, 30, 'the burst and the queue')
  t.strictSame(
    all.slice(30).map(({ answered }) => answered),
    Array(10).fill(false),
  )
  t.ok(Math.max(...all.slice(30).map(({ ms }) => ms)) < 90, 'who is cut off is told at once')
  const last = given.at(-1)?.ms ?? 0
  t.ok(last >= 90, `twenty at 200 a second take 100 ms: ${Math.round(last)}`)
  t.equal(await pace.turn(), true, 'then the next is answered')
})
