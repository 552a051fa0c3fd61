import { once } from 'node:events'
import { Agent, request as httpRequest, type IncomingMessage } from 'node:http'
import { connect } from 'node:net'
import t from 'tap'
import { connectLine, nextChunk, proxied, received } from './clients.ts'
import { allowedHost, publicAddress, World } from './world.ts'

const refusals: readonly (readonly [head: string, status: number, reason: string, why: string])[] =
  [
    [connectLine('evil.example:443'), 403, 'not_allowed_host', 'another host'],
    [connectLine('secret.evil.example:443'), 403, 'not_allowed_host', 'data in a name'],
    [connectLine('bad.sub.example:443'), 403, 'denied_host', 'a denied host'],
    [connectLine(`evil${allowedHost}:443`), 403, 'not_allowed_host', 'a prefix'],
    [connectLine(`${allowedHost}.evil.example:443`), 403, 'not_allowed_host', 'a suffix'],
    [connectLine(`${allowedHost}..:443`), 400, 'bad_authority', 'two dots'],
    [connectLine(`${allowedHost}:22`), 403, 'port_not_allowed', 'SSH'],
    [connectLine(`${allowedHost}:0`), 403, 'port_not_allowed', 'port 0'],
    [connectLine(`${allowedHost}:65536`), 403, 'port_not_allowed', 'no port'],
    [connectLine(`${allowedHost}:`), 403, 'port_not_allowed', 'an empty port'],
    [`CONNECT ${allowedHost} HTTP/1.1\r\nHost: x.example\r\n\r\n`, 400, 'bad_authority', 'no port'],
    [
      `CONNECT u@${allowedHost}:443 HTTP/1.1\r\nHost: x.example\r\n\r\n`,
      400,
      'bad_authority',
      'userinfo',
    ],
    [
      `CONNECT ${allowedHost}:443@evil.example HTTP/1.1\r\nHost: x.example\r\n\r\n`,
      400,
      'bad_authority',
      'userinfo behind',
    ],
    [connectLine('[::ffff:127.0.0.1]:443'), 403, 'ip_literal', 'IPv4-mapped'],
    [connectLine('169.254.169.254:80'), 403, 'ip_literal', 'metadata'],
    [connectLine('0x7f.1:443'), 403, 'ip_literal', 'an address in disguise'],
    [
      `CONNECT ${allowedHost}:443 HTTP/1.1\r\nHost: evil.example:443\r\n\r\n`,
      421,
      'host_mismatch',
      'another Host',
    ],
    [
      `CONNECT ${allowedHost}:443 HTTP/1.1\r\nHost: a.example\r\nHost: b.example\r\n\r\n`,
      400,
      'bad_request',
      'two Hosts',
    ],
    [
      'GET http://evil.example/x HTTP/1.1\r\nHost: evil.example\r\n\r\n',
      403,
      'not_allowed_host',
      'plain HTTP',
    ],
    [
      `GET http://${allowedHost}:8080/ HTTP/1.1\r\nHost: ${allowedHost}:8080\r\n\r\n`,
      403,
      'port_not_allowed',
      'another port',
    ],
    [
      `GET http://${allowedHost}/ HTTP/1.1\r\nHost: evil.example\r\n\r\n`,
      421,
      'host_mismatch',
      'two hosts',
    ],
    [`GET http://${allowedHost}/ HTTP/1.1\r\n\r\n`, 400, 'bad_request', 'no Host'],
    [
      `GET http://${allowedHost}/ HTTP/1.1\r\nHost: ${allowedHost}\r\nHost: ${allowedHost}\r\n\r\n`,
      400,
      'bad_request',
      'Host twice',
    ],
    [
      `GET https://${allowedHost}/ HTTP/1.1\r\nHost: ${allowedHost}\r\n\r\n`,
      400,
      'bad_request',
      'https in the clear',
    ],
    [
      `GET ftp://${allowedHost}/ HTTP/1.1\r\nHost: ${allowedHost}\r\n\r\n`,
      400,
      'bad_request',
      'another scheme',
    ],
    [`GET / HTTP/1.1\r\nHost: ${allowedHost}\r\n\r\n`, 400, 'bad_request', 'the origin form'],
    [
      `GET http://u@${allowedHost}/ HTTP/1.1\r\nHost: ${allowedHost}\r\n\r\n`,
      400,
      'bad_authority',
      'userinfo in a URL',
    ],
    [
      `GET http://${allowedHost}\\@evil.example/ HTTP/1.1\r\nHost: ${allowedHost}\r\n\r\n`,
      400,
      'bad_request',
      'a backslash',
    ],
    [
      `GET http://2130706433/ HTTP/1.1\r\nHost: 2130706433\r\n\r\n`,
      403,
      'ip_literal',
      'an address as a number',
    ],
    [
      `TRACE http://${allowedHost}/ HTTP/1.1\r\nHost: ${allowedHost}\r\n\r\n`,
      403,
      'method_denied',
      'TRACE',
    ],
    ['OPTIONS * HTTP/1.1\r\nHost: x.example\r\n\r\n', 400, 'bad_request', 'the proxy itself'],
    [
      `GET http://${allowedHost}/ HTTP/1.1\r\nHost: ${allowedHost}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n`,
      403,
      'upgrade_denied',
      'a WebSocket',
    ],
    [
      `GET http://${allowedHost}/ HTTP/1.1\r\nHost: ${allowedHost}\r\nExpect: x\r\n\r\n`,
      400,
      'bad_request',
      'an odd expectation',
    ],
    [
      `POST http://${allowedHost}/ HTTP/1.1\r\nHost: ${allowedHost}\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n`,
      400,
      'bad_request',
      'two framings',
    ],
    [
      `POST http://${allowedHost}/ HTTP/1.1\r\nHost: ${allowedHost}\r\nTransfer-Encoding: chunked, identity\r\n\r\n`,
      400,
      'bad_request',
      'another coding',
    ],
    [
      `POST http://${allowedHost}/ HTTP/1.1\r\nHost: ${allowedHost}\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n`,
      400,
      'bad_request',
      'two lengths',
    ],
    [
      `GET http://${allowedHost}/ HTTP/1.1\r\nHost: ${allowedHost}\r\nA: b\r\n c\r\n\r\n`,
      400,
      'bad_request',
      'a folded header',
    ],
    [
      `GET http://${allowedHost}/ HTTP/1.1\nHost: ${allowedHost}\n\n`,
      400,
      'bad_request',
      'bare line feeds',
    ],
    ['\x05\x01\x00', 400, 'bad_protocol', 'SOCKS 5'],
    ['\x04\x01\x01\xbb\xc6\x33\x64\x07\x00', 400, 'bad_protocol', 'SOCKS 4'],
    [
      `GET http://${allowedHost}/ HTTP/1.1\r\nHost: ${allowedHost}\r\nUpgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABk\r\n\r\n`,
      403,
      'upgrade_denied',
      'HTTP/2 by an upgrade',
    ],
    [
      `GET http://${allowedHost}/ HTTP/1.1\r\nHost: ${allowedHost}\r\n${'a:\r\n'.repeat(2100)}Host: evil.example\r\n\r\n`,
      400,
      'bad_request',
      'a second Host behind 2,100 headers',
    ],
    [
      `POST http://${allowedHost}/ HTTP/1.1\r\nHost: ${allowedHost}\r\n${'a:\r\n'.repeat(2100)}Expect: x\r\n\r\n`,
      400,
      'bad_request',
      'an odd expectation behind 2,100 headers',
    ],
    [
      `POST http://${allowedHost}/ HTTP/1.1\r\nHost: ${allowedHost}\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n`,
      400,
      'bad_request',
      'a coding twice',
    ],
    [
      `POST http://${allowedHost}/ HTTP/1.1\r\nHost: ${allowedHost}\r\nTransfer-Encoding : chunked\r\n\r\n`,
      400,
      'bad_request',
      'a blank before the colon',
    ],
    [
      `POST http://${allowedHost}/ HTTP/1.1\r\nHost: ${allowedHost}\r\nContent-Length: +1\r\n\r\nx`,
      400,
      'bad_request',
      'a length with a sign',
    ],
    [
      `CONNECT ${allowedHost}:443 HTTP/1.1\r\nHost: ${allowedHost}:443\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n`,
      400,
      'bad_request',
      'a CONNECT with two framings',
    ],
    [
      `GET http://${allowedHost}/ HTTP/2.0\r\nHost: ${allowedHost}\r\n\r\n`,
      400,
      'bad_protocol',
      'another version',
    ],
    ['\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03', 400, 'bad_protocol', 'TLS'],
    ['PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n', 400, 'bad_protocol', 'HTTP/2'],
    ['SSH-2.0-x\r\n\r\n', 400, 'bad_protocol', 'SSH'],
    [
      `GET http://${allowedHost}/ HTTP/1.1\r\nX: ${'x'.repeat(20_000)}\r\n\r\n`,
      431,
      'bad_request',
      'a head that is too long',
    ],
  ]

void t.test(
  'the proxy refuses with status, reason and a line for people, and asks nobody',
  async (t) => {
    await using world = await World.open()
    for (const [head, status, reason, why] of refusals) {
      const before = (await world.events()).length
      const socket = connect({ port: world.ports.proxy, host: '127.0.0.1' })
      socket.write(head, 'latin1')
      const chunk = await nextChunk(socket)
      socket.destroy()
      const answer = chunk.toString('latin1')
      t.match(answer, `HTTP/1.1 ${status} `, `${why}: status`)
      t.match(answer, `X-Closedbook-Reason: ${reason}\r\n`, `${why}: reason`)
      t.match(answer, new RegExp(`closedbook: ${reason}: .+\n$`), `${why}: words`)
      const events = (await world.events()).slice(before)
      t.match(events, [{ kind: 'decision', action: 'deny', reason }], `${why}: recorded`)
      t.equal(events.length, 1, `${why}: once`)
    }
    t.strictSame(world.resolved, [], 'no name was looked up')
    t.strictSame(world.dialed, [], 'nothing was dialed')
    t.equal(world.accepted, 0)
    t.strictSame(world.faults, [])
    t.equal(world.audit.summary().denied, refusals.length)
  },
)

void t.test('plain HTTP is weighed request by request on one connection', async (t) => {
  await using world = await World.open()
  const agent = new Agent({ keepAlive: true, maxSockets: 1 })
  t.teardown(() => agent.destroy())
  const ask = async (host: string, options: { method?: string; body?: string } = {}) => {
    const request = httpRequest({
      host: '127.0.0.1',
      port: world.ports.proxy,
      agent,
      path: `http://${host}/a//b/../c?key=secret&x`,
      method: options.method ?? 'GET',
      headers: {
        Host: host,
        'X-Mine': '1',
        Connection: 'keep-alive, X-Mine',
        'Proxy-Authorization': 'x',
      },
    })
    request.end(options.body)
    const [response] = (await once(request, 'response')) as [IncomingMessage]
    let body = ''
    for await (const chunk of response) body += String(chunk)
    return {
      status: response.statusCode,
      body,
      rawHeaders: response.rawHeaders,
      reused: request.reusedSocket,
    }
  }
  const first = await ask(allowedHost)
  t.match(
    first,
    { status: 200, body: 'GET /a//b/../c?key=secret&x 0' },
    'the path is not rewritten',
  )
  t.equal(first.rawHeaders.filter((name) => name === 'X-Twice').length, 2, 'headers are not joined')
  t.notMatch(first.rawHeaders, ['Connection', 'close'], 'the hop is our own')
  t.match(await ask('evil.example'), { status: 403, reused: true })
  t.match(await ask(allowedHost, { method: 'POST', body: 'abc' }), {
    status: 200,
    body: 'POST /a//b/../c?key=secret&x 3',
    reused: true,
  })
  t.match(await ask(allowedHost, { method: 'DELETE' }), { status: 200 })
  for (const { rawHeaders } of world.requests) {
    const names = rawHeaders.filter((_, index) => index % 2 === 0).map((name) => name.toLowerCase())
    t.equal(names.filter((name) => name === 'host').length, 1)
    for (const hop of ['x-mine', 'proxy-authorization', 'keep-alive', 'proxy-connection']) {
      t.notOk(names.includes(hop), hop)
    }
  }
  t.strictSame(await world.decisions(4), [
    `allow allowed_host ${allowedHost}`,
    'deny not_allowed_host evil.example',
    `allow allowed_host ${allowedHost}`,
    `allow allowed_host ${allowedHost}`,
  ])
  const events = await world.events()
  t.equal(events[0]?.detail, 'GET /a//b/../c?key&x', 'without the values of the query')
  t.equal(events.filter(({ kind }) => kind === 'close').length, 3)
  t.ok(
    events.every(
      ({ kind, bytesUp, bytesDown }) => kind !== 'close' || (bytesUp > 50 && bytesDown > 50),
    ),
  )
  t.strictSame(world.dialed, Array(3).fill(`${publicAddress}:80`))
})

void t.test('pipelined requests are each weighed, and answered in their order', async (t) => {
  await using world = await World.open()
  const get = (host: string, last = ''): string =>
    `GET http://${host}/ HTTP/1.1\r\nHost: ${host}\r\n${last}\r\n`
  const answer = await world.raw(
    world.ports.proxy,
    get(allowedHost) + get('evil.example') + get(allowedHost, 'Connection: close\r\n'),
  )
  t.strictSame(answer.match(/HTTP\/1\.1 \d+/g), ['HTTP/1.1 200', 'HTTP/1.1 403', 'HTTP/1.1 200'])
  t.equal(world.requests.length, 2)
})

void t.test(
  'an upload that waits for 100 Continue gets it when it is allowed, and else a refusal',
  async (t) => {
    await using world = await World.open()
    const post = (host: string): string =>
      `POST http://${host}/ HTTP/1.1\r\nHost: ${host}\r\nContent-Length: 3\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n`
    const socket = await proxied(world, post(allowedHost))
    const chunk = await nextChunk(socket)
    t.match(chunk.toString(), /^HTTP\/1\.1 100 Continue/)
    const rest = received(socket)
    socket.write('abc')
    t.match((await rest).toString(), /200 OK[^]*POST \/ 3/)
    socket.destroy()
    t.match(await world.raw(world.ports.proxy, post('evil.example')), /^HTTP\/1\.1 403 /)
  },
)

void t.test('a CONNECT to port 80 carries only requests for its host', async (t) => {
  await using world = await World.open()
  const inside = (host: string): string => `GET /in HTTP/1.1\r\nHost: ${host}\r\n\r\n`
  const socket = await proxied(world, connectLine(`${allowedHost}:80`))
  socket.write(inside(allowedHost))
  t.match(String(await nextChunk(socket)), /^HTTP\/1\.1 200 OK/)
  socket.write(inside('x.sub.example'))
  t.match(String(await nextChunk(socket)), /421 [^]*host_mismatch/)
  socket.destroy()
  const early = await world.raw(
    world.ports.proxy,
    connectLine(`${allowedHost}:80`) + inside(allowedHost),
    inside('evil.example').replace('\r\n\r\n', '\r\nConnection: close\r\n\r\n'),
  )
  t.match(early, /200 Connection[^]*200 OK[^]*421 /)
  t.equal(world.requests.length, 2)
})

void t.test("a redirect is the client's to follow, and decided like any request", async (t) => {
  await using world = await World.open()
  const get = (host: string, path: string): string =>
    `GET http://${host}${path} HTTP/1.1\r\nHost: ${host}\r\nConnection: close\r\n\r\n`
  const answer = await world.raw(world.ports.proxy, get(allowedHost, '/redirect'))
  t.match(answer, /^HTTP\/1\.1 302 [^]*Location: http:\/\/evil\.example\/x\r\n/)
  t.equal(world.requests.length, 1, 'nobody followed it')
  t.strictSame(world.dialed.length, 1)
  t.match(await world.raw(world.ports.proxy, get('evil.example', '/x')), /403 /)
})

void t.test('a CONNECT inside a tunnel to port 80 is refused', async (t) => {
  await using world = await World.open()
  const answer = await world.raw(
    world.ports.proxy,
    connectLine(`${allowedHost}:80`),
    connectLine('evil.example:443'),
  )
  t.match(answer, /200 Connection[^]*403 [^]*method_denied/)
  t.equal((await world.events()).at(-1)?.reason, 'method_denied')
  t.strictSame(world.dialed, [])
})
