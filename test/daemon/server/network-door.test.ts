/** The listener for other hosts and browsers, with real sockets: roles, sessions, tickets, revocation, floods, TLS. */
import { once } from 'node:events'
import http from 'node:http'
import net from 'node:net'
import t from 'tap'
import { roleHolds, roles, ticketProtocolPrefix, type Role } from '../../../daemon/protocol/auth.ts'
import { ask, bearer, listener, scratch, until, upgrade } from './listener.ts'

const { directory, remove } = await scratch()
t.teardown(remove)

void t.test('each route asks for its role, before it reads a byte', async (t) => {
  await using server = await listener(directory)
  const { url } = server
  const tokens = {
    view: await server.make('view'),
    run: await server.make('run'),
    admin: await server.make('admin'),
  }
  for (const role of roles)
    for (const need of roles) {
      const { status, text } = await ask(url, `/v1/${need}`, bearer(tokens[role].token))
      t.equal(status, roleHolds(role, need) ? 200 : 403, `${role} asks for ${need}`)
      if (status === 200) t.same(JSON.parse(text), { role })
    }
  t.equal((await ask(url, '/v1/anyone')).status, 200)
  const none = await ask(url, '/v1/view')
  t.match([none.status, none.headers['www-authenticate']], [401, /Bearer/])
  t.match(none.text, /closedbook token create/, 'it says what to do')
  t.equal((await ask(url, '/v1/nothing-here')).status, 401, 'what there is, is told to nobody')
  t.equal((await ask(url, '/v1/nothing-here', bearer(tokens.view.token))).status, 404)
  const rows: readonly (readonly [why: string, headers: Record<string, string>, status: number])[] =
    [
      ['another scheme', { authorization: `Basic ${tokens.run.token}` }, 401],
      ['a wrong token', bearer(tokens.run.token.replace(/.$/, '!')), 401],
      ['a rebound name', { ...bearer(tokens.run.token), host: 'rebound.example' }, 403],
      [
        'a page of elsewhere, though it has the token',
        { ...bearer(tokens.run.token), origin: 'https://evil.example' },
        403,
      ],
      ['a token as a cookie', { cookie: `closedbook-${url.port}=${tokens.run.token}` }, 401],
    ]
  for (const [why, headers, status] of rows)
    t.equal((await ask(url, '/v1/view', headers)).status, status, why)
  const refusedBody = await ask(
    url,
    '/v1/run',
    {},
    { method: 'POST', body: 'x'.repeat(500_000) },
  ).catch((error: NodeJS.ErrnoException) => error.code)
  if (typeof refusedBody === 'object')
    t.match(refusedBody, { status: 401, headers: { connection: 'close' } })
  else t.match(refusedBody, /ECONNRESET|EPIPE/, 'a stranger’s body is cut')
  t.equal(
    (
      await ask(url, '/v1/run', bearer(tokens.run.token), {
        method: 'POST',
        body: 'x'.repeat(5_000),
      })
    ).status,
    413,
  )
})

void t.test('a browser gets a session by a ticket, and with it what the ticket had', async (t) => {
  await using server = await listener(directory)
  const { url } = server
  const own = { origin: url.origin }
  const token = await server.make('run')
  const post = (at: string, body: object, headers: Record<string, string>) =>
    ask(url, at, headers, { method: 'POST', body: JSON.stringify(body) })
  const made = await post('/v1/tickets', { path: '/', role: 'view' }, bearer(token.token))
  const { ticket } = JSON.parse(made.text) as { ticket: string }
  t.equal(
    (await post('/v1/tickets', { path: '/', role: 'admin' }, bearer(token.token))).status,
    403,
    'nobody gives more than they have',
  )
  t.equal((await post('/v1/session', { ticket }, { origin: 'http://evil.example' })).status, 403)
  const opened = await post('/v1/session', { ticket }, own)
  t.equal(opened.status, 200)
  const [cookie = ''] = opened.headers['set-cookie'] ?? []
  t.match(cookie, /^closedbook-\d+=cbs_.*; Path=\/; HttpOnly; SameSite=Strict; Max-Age=\d+$/)
  const session = { cookie: cookie.split(';')[0] ?? '' }
  t.same(
    JSON.parse((await ask(url, '/v1/view', session)).text),
    { role: 'view' },
    'the role of the ticket, not of the token',
  )
  t.equal((await ask(url, '/v1/run', session)).status, 403)
  t.match(
    (await post('/v1/session', { ticket }, own)).text,
    /used already/,
    'a reused ticket opens nothing',
  )
  t.equal((await post('/v1/session', { token: 'cbt_x' }, own)).status, 401)
  const pasted = await post('/v1/session', { token: token.token }, own)
  const withRun = { cookie: pasted.headers['set-cookie']?.[0]?.split(';')[0] ?? '' }
  t.equal(
    (await ask(url, '/v1/run', withRun, { method: 'POST' })).status,
    403,
    'a session changes nothing without an Origin',
  )
  t.equal((await ask(url, '/v1/run', { ...withRun, ...own }, { method: 'POST' })).status, 200)
  t.equal(
    (await ask(url, '/v1/run', { ...withRun, origin: 'null' }, { method: 'POST' })).status,
    403,
  )
  t.equal((await ask(url, '/v1/session', { ...session, ...own }, { method: 'DELETE' })).status, 200)
  t.equal((await ask(url, '/v1/view', session)).status, 401, 'signed out')
  await server.tokens.revoke(token.id)
  t.equal(
    (await ask(url, '/v1/view', withRun)).status,
    401,
    'the token is gone, and its session with it',
  )
})

void t.test('a socket of a browser is opened by a ticket that is for it, once', async (t) => {
  await using server = await listener(directory)
  const { url } = server
  const origin = { Origin: url.origin }
  const token = await server.make('run')
  const make = async (
    at: string,
    role: Role = 'view',
    from: Record<string, string> = {},
  ): Promise<Record<string, string>> => {
    const { text } = await ask(
      url,
      '/v1/tickets',
      { ...bearer(token.token), ...from },
      { method: 'POST', body: JSON.stringify({ path: at, role }) },
    )
    const { ticket } = JSON.parse(text) as { ticket: string }
    return { 'Sec-WebSocket-Protocol': `closedbook.pty.v1, ${ticketProtocolPrefix}${ticket}` }
  }
  const good = await make('/v1/socket')
  t.match(await upgrade(url, '/v1/socket', { ...good, ...origin }), /^HTTP\/1\.1 101 [^]*view$/)
  t.match(
    await upgrade(url, '/v1/socket', { ...good, ...origin }),
    /^HTTP\/1\.1 401 [^]*used already/,
  )
  const session = { cookie: '' }
  const opened = await ask(
    url,
    '/v1/session',
    { origin: url.origin },
    { method: 'POST', body: JSON.stringify({ token: token.token }) },
  )
  session.cookie = opened.headers['set-cookie']?.[0]?.split(';')[0] ?? ''
  const rows: readonly (readonly [why: string, headers: Record<string, string>, answer: RegExp])[] =
    [
      ['nothing', origin, /^HTTP\/1\.1 401 [^]*needs a bearer token, or a ticket/],
      [
        'a cookie alone: a page of elsewhere would have it sent',
        { ...origin, Cookie: session.cookie },
        /^HTTP\/1\.1 401 /,
      ],
      [
        'a ticket for another path',
        { ...origin, ...(await make('/v1/other')) },
        /^HTTP\/1\.1 401 [^]*another path/,
      ],
      [
        'a ticket that was stolen by another page',
        { Origin: 'https://evil.example', ...(await make('/v1/socket')) },
        /^HTTP\/1\.1 403 [^]*origin_refused/,
      ],
      [
        'a ticket that a page asked for, shown without an origin',
        await make('/v1/socket', 'view', { origin: url.origin }),
        /^HTTP\/1\.1 401 [^]*another origin/,
      ],
      [
        'a rebound name',
        { Host: 'rebound.example', ...(await make('/v1/socket')) },
        /^HTTP\/1\.1 403 [^]*host_refused/,
      ],
      [
        'a ticket in the address',
        { ...origin, 'Sec-WebSocket-Protocol': 'closedbook.pty.v1' },
        /^HTTP\/1\.1 401 /,
      ],
      ['a token, as a command has it', bearer(token.token), /^HTTP\/1\.1 101 [^]*run$/],
      [
        'a page of elsewhere with the token',
        { ...bearer(token.token), Origin: 'https://evil.example' },
        /^HTTP\/1\.1 403 /,
      ],
    ]
  for (const [why, headers, answer] of rows)
    t.match(await upgrade(url, '/v1/socket', headers), answer, why)
  t.match(await upgrade(url, '/v1/nothing', {}), /^HTTP\/1\.1 401 /)
})

void t.test('what stands on a token ends when it is revoked', async (t) => {
  await using server = await listener(directory)
  const { url } = server
  const token = await server.make('run')
  const socket = net.connect(Number(url.port), url.hostname)
  socket.write(
    `GET /v1/socket HTTP/1.1\r\nHost: ${url.host}\r\nConnection: Upgrade\r\nUpgrade: x\r\nAuthorization: Bearer ${token.token}\r\n\r\n`,
  )
  let told = ''
  socket.on('data', (chunk: Buffer) => (told += chunk.toString()))
  await until(() => told.endsWith('run'))
  const stream = http.get({
    host: url.hostname,
    port: url.port,
    path: '/v1/stream',
    headers: bearer(token.token),
  })
  const [response] = (await once(stream, 'response')) as [http.IncomingMessage]
  response.resume()
  const cut = once(response, 'error')
  const closed = once(socket, 'close')
  await server.tokens.revoke(token.token)
  await closed
  t.match(told, /over$/, 'a socket is told by its own protocol')
  t.match(await cut, [{ code: 'ECONNRESET' }], 'a stream is cut')
  t.same(server.ended, ['/v1/socket'])
})

void t.test(
  'a flood of bad tries and of connections is refused, and locks nobody out',
  async (t) => {
    await using server = await listener(directory, {
      maxConnections: 40,
      maxConnectionsPerAddress: 20,
    })
    const { url } = server
    const token = await server.make('view')
    const statuses: number[] = []
    for (let n = 0; n < 40; n += 1)
      statuses.push((await ask(url, '/v1/view', bearer('wrong'))).status)
    t.ok(statuses.includes(401))
    t.equal(statuses.at(-1), 429)
    t.equal(
      (await ask(url, '/v1/view', bearer(token.token))).status,
      200,
      'a good token from the same address is served',
    )
    const sockets = Array.from({ length: 60 }, () =>
      net.connect(Number(url.port), url.hostname).on('error', () => {}),
    )
    const closed = (): number =>
      sockets.filter(({ destroyed, closed: gone }) => destroyed || gone).length
    for (const socket of sockets) socket.resume()
    await until(() => closed() >= 40)
    t.equal(closed(), 40, 'what is beyond the cap is closed')
    for (const socket of sockets) socket.destroy()
    await until(() => (server.gate.refusals.counts.get('too_many_connections') ?? 0) >= 40)
    let served = 0
    for (const deadline = Date.now() + 10_000; served !== 200 && Date.now() < deadline;)
      served = (await ask(url, '/v1/view', bearer(token.token)).catch(() => ({ status: 0 }))).status
    t.equal(served, 200, 'and it serves on')
  },
)
