import { once } from 'node:events'
import { connect } from 'node:net'
import t from 'tap'
import { connectLine, nextChunk, received, tlsOver, tunnelTo } from './clients.ts'
import { extension, handshake, realHello, records, serverNames } from './hellos.ts'
import { allowedHost, closed, publicAddress, World } from './world.ts'

void t.test(
  'a tunnel to an allowed host carries TLS end to end, recorded before and after',
  async (t) => {
    await using world = await World.open()
    const socket = await tunnelTo(world)
    const secure = await tlsOver(world, socket)
    t.equal(secure.getPeerCertificate().subject.CN, allowedHost, 'the origin itself answers')
    secure.write('hello')
    t.equal(String(await nextChunk(secure)), 'hello')
    t.match(await world.events(), [
      { kind: 'decision', action: 'allow', detail: /198\.51\.100\.7/ },
    ])
    secure.end()
    await closed(socket)
    const events = await world.until((seen) => (seen.length === 2 ? seen : undefined))
    t.match(events, [
      {
        kind: 'decision',
        protocol: 'connect',
        host: allowedHost,
        port: 443,
        action: 'allow',
        reason: 'allowed_host',
        connection: 1,
      },
      { kind: 'close', protocol: 'connect', host: allowedHost, action: 'none', connection: 1 },
    ])
    const [, end] = events
    t.equal(end?.bytesDown, socket.bytesRead - 'HTTP/1.1 200 Connection Established\r\n\r\n'.length)
    t.equal(end?.bytesUp, socket.bytesWritten - connectLine(`${allowedHost}:443`).length)
    t.strictSame(world.resolved, [allowedHost], 'looked up once')
    t.strictSame(world.dialed, [`${publicAddress}:443`], 'the vetted address was dialed')
  },
)

void t.test('a large body arrives whole through a client that reads slowly', async (t) => {
  await using world = await World.open()
  const secure = await tlsOver(world, await tunnelTo(world))
  const size = 24 * 1024 * 1024
  let got = 0
  secure.on('data', (chunk: Buffer) => {
    got += chunk.length
    // Let the tunnel's buffers fill: the reader goes on a turn later.
    secure.pause()
    setImmediate(() => secure.resume())
  })
  secure.write(`flood ${size}`)
  await once(secure, 'end')
  t.equal(got, size)
  const upload = await tlsOver(world, await tunnelTo(world))
  const sent = Buffer.alloc(4 * 1024 * 1024, 'x')
  const echo = received(upload)
  upload.end(sent)
  t.ok((await echo).equals(sent), 'and one that is sent up comes back')
})

void t.test('what comes first in a tunnel must be a ClientHello for its host', async (t) => {
  const rows: readonly (readonly [bytes: Buffer, reason: string, detail: RegExp])[] = [
    [await realHello('evil.example'), 'sni_mismatch', /server name evil\.example/],
    [await realHello('x.sub.example'), 'sni_mismatch', /server name x\.sub\.example/],
    [await realHello(''), 'sni_missing', /no server name/],
    [
      records(handshake([serverNames(allowedHost), extension(0xfe0d, Buffer.alloc(8))])),
      'ech_present',
      /server name origin\.example/,
    ],
    [Buffer.from('SSH-2.0-x\r\n'), 'not_tls', /5353482d322e302d780d0a/],
    [Buffer.from(`GET / HTTP/1.1\r\nHost: ${allowedHost}\r\n\r\n`), 'not_tls', /not_tls/],
    [Buffer.from([22, 3, 1]), 'hello_timeout', /160301/],
    [Buffer.alloc(0), 'hello_timeout', /no bytes/],
  ]
  await using world = await World.open({ limits: { helloTimeoutMs: 100 } })
  for (const [bytes, reason, detail] of rows) {
    const socket = await tunnelTo(world)
    const answer = received(socket)
    socket.write(bytes)
    t.equal(
      (await answer).toString('hex'),
      '15030300020231',
      `${reason}: a TLS alert, access denied`,
    )
    socket.end()
    const last = (await world.events()).at(-1)
    t.match(last, { kind: 'decision', action: 'deny', reason, detail, host: allowedHost })
  }
  const gone = await tunnelTo(world)
  gone.destroy()
  const decisions = await world.decisions(rows.length + 1)
  t.equal(decisions.at(-1), `deny not_tls ${allowedHost}`, 'one that goes away is recorded too')
  const { denied, allowed } = world.audit.summary()
  t.strictSame([denied, allowed], [rows.length + 1, 0], 'one decision an attempt')
  t.ok(
    (await world.events()).every(({ kind }) => kind !== 'close'),
    'no tunnel was ever open',
  )
})

void t.test(
  'a ClientHello that comes byte by byte, or with the CONNECT, opens the tunnel',
  async (t) => {
    await using world = await World.open()
    const hello = await realHello(allowedHost)
    const slow = await tunnelTo(world)
    slow.setNoDelay(true)
    for (const byte of hello) {
      slow.write(Buffer.from([byte]))
      await new Promise((turn) => setImmediate(turn))
    }
    const answer = await nextChunk(slow)
    t.equal(answer[0], 22, 'the origin has read all of it')
    slow.destroy()

    const early = connect({ port: world.ports.proxy, host: '127.0.0.1' })
    early.write(Buffer.concat([Buffer.from(connectLine(`${allowedHost}:443`)), hello]))
    let bytes = Buffer.alloc(0)
    while (!bytes.includes(Buffer.from([22, 3, 3]))) {
      bytes = Buffer.concat([bytes, await nextChunk(early)])
    }
    t.match(bytes.toString('latin1'), 'HTTP/1.1 200 Connection Established\r\n\r\n')
    early.destroy()
  },
)

void t.test('every address behind a name must be public, or none is dialed', async (t) => {
  await using world = await World.open()
  for (const addresses of [
    ['169.254.169.254'],
    [publicAddress, '10.0.0.1'],
    ['::ffff:127.0.0.1'],
  ]) {
    world.addresses = addresses
    const answer = await world.raw(world.ports.proxy, connectLine(`${allowedHost}:443`))
    t.match(answer, /^HTTP\/1\.1 403 [^]*address_not_public/)
    const last = (await world.events()).at(-1)
    t.match(last, { action: 'deny', reason: 'address_not_public', detail: addresses.join(' ') })
  }
  world.addresses = []
  t.match(
    await world.raw(world.ports.proxy, connectLine(`${allowedHost}:443`)),
    /502 [^]*dns_failed/,
  )
  t.match((await world.events()).at(-1), { action: 'allow', reason: 'dns_failed' })
  t.strictSame(world.dialed, [])
})

void t.test(
  'a resolver or a dial that fails or hangs is told as such, and its place is free again',
  async (t) => {
    const never = (): Promise<never> => new Promise(() => undefined)
    const failing = async (): Promise<never> => {
      throw Object.assign(new Error('refused'), { code: 'ECONNREFUSED' })
    }
    const limits = { resolveTimeoutMs: 50, dialTimeoutMs: 50, concurrent: 1 }
    const rows = [
      [{ resolve: never }, 502, 'dns_failed', /TimeoutError/],
      [{ resolve: failing }, 502, 'dns_failed', /ECONNREFUSED/],
      [{ dial: failing }, 502, 'upstream_bad', /dial 198\.51\.100\.7: ECONNREFUSED/],
      [
        {
          dial: (_: unknown, { signal }: { signal: AbortSignal }) =>
            new Promise<never>((_resolve, reject) =>
              signal.addEventListener('abort', () => reject(signal.reason)),
            ),
        },
        504,
        'upstream_timeout',
        /TimeoutError/,
      ],
    ] as const
    for (const [options, status, reason, detail] of rows) {
      await using world = await World.open({ ...options, limits })
      for (let round = 0; round < 2; round += 1) {
        const answer = await world.raw(world.ports.proxy, connectLine(`${allowedHost}:443`))
        t.match(answer, new RegExp(`^HTTP/1\\.1 ${status} [^]*${reason}`))
        t.match((await world.events()).at(-1), { action: 'allow', reason, detail })
      }
      const plain = `GET http://${allowedHost}/ HTTP/1.1\r\nHost: ${allowedHost}\r\nConnection: close\r\n\r\n`
      t.match(await world.raw(world.ports.proxy, plain), new RegExp(`^HTTP/1\\.1 ${status} `))
    }
  },
)
