/**
 * What must be refused at the daemon's door, tried as an attacker would: pages of other origins in a browser that is
 * signed in, tickets that were stolen or used, viewers that type, frames that are too large, floods. Each refusal is in
 * the log, and the daemon serves on as before. And commands on another host, which have a token and nothing else.
 */
import { once } from 'node:events'
import http from 'node:http'
import net, { type AddressInfo } from 'node:net'
import path from 'node:path'
import t, { type Test } from 'tap'
import WebSocket from 'ws'
import { z } from 'zod'
import { createTicket, createToken } from '../../daemon/protocol/auth-client.ts'
import { ticketProtocolPrefix, type Role } from '../../daemon/protocol/auth.ts'
import { encodeControl, encodeInput, ptyProtocol } from '../../daemon/protocol/pty-frames.ts'
import { imageTags } from '../../images/build.ts'
import { makeCertificate } from '../support/certificate.ts'
import { TestDaemon } from '../support/daemon.ts'
import { testEngine } from '../support/engine.ts'
import { openBrowser, signIn, urlOf } from './browser.ts'

const { socketPath, dispose } = await testEngine()
t.teardown(dispose)
const daemon = await TestDaemon.open(socketPath, {
  server: { listen: '127.0.0.1:0', maxConnectionsPerAddress: 60 },
})
t.teardown(() => daemon[Symbol.asyncDispose]())
const { client } = daemon
const image = (await client.inspectImage(imageTags.base)).id
const { lease } = await client.openLease({ image, trial: 'tdoordoordoor' })
const { pty } = await client.openPty(lease, {
  argv: ['sh', '-c', 'while read -r line; do echo "got $line"; done'],
  role: 'agent',
})
const attach = `/v1/leases/${lease}/ptys/${pty}/attach`
const url = await urlOf(daemon)

interface Attached {
  readonly socket: WebSocket
  /** Of the answer that refused it, or of the close. */
  readonly end: Promise<number>
  readonly frames: Buffer[]
}

function attached(
  protocols: readonly string[],
  headers: Record<string, string> = { Origin: url },
): Attached {
  const socket = new WebSocket(`${url.replace('http', 'ws')}${attach}`, [...protocols], { headers })
  const frames: Buffer[] = []
  socket.on('message', (data: Buffer) => frames.push(data))
  const end = new Promise<number>((resolve) => {
    socket.on('unexpected-response', (_request, response) => {
      resolve(response.statusCode ?? 0)
      response.destroy()
    })
    socket.on('close', (code) => resolve(code))
    socket.on('error', () => {})
  })
  return { socket, end, frames }
}

const ticketFor = async (role: Role, at = attach): Promise<string> =>
  (await createTicket(client, { path: at, role })).ticket
const withTicket = (ticket: string): string[] => [ptyProtocol, `${ticketProtocolPrefix}${ticket}`]
const refusals = (): string[] =>
  daemon.log.split('\n').filter((line) => line.includes('auth.refused'))

async function stillServes(t: Test): Promise<void> {
  const good = attached(withTicket(await ticketFor('view')))
  await once(good.socket, 'open')
  good.socket.send(encodeControl({ type: 'hello', mode: 'view' }))
  await once(good.socket, 'message')
  t.equal(good.socket.protocol, ptyProtocol, 'the ticket is not echoed')
  good.socket.close()
  await good.end
  t.equal((await client.health()).status, 'ok')
  t.equal((await client.ptys(lease))[0]?.state, 'running')
}

void t.test('pages of other origins reach nothing, though the browser is signed in', async (t) => {
  const stolen = [await ticketFor('run'), await ticketFor('run')]
  const evil = http.createServer((_request, response) =>
    response
      .writeHead(200, { 'content-type': 'text/html' })
      .end('<!doctype html><title>evil</title>'),
  )
  evil.listen(0, '127.0.0.1')
  await once(evil, 'listening')
  t.teardown(() => void evil.close())
  const { port } = evil.address() as AddressInfo
  const browser = await openBrowser()
  t.teardown(() => browser.close())
  const { context, url: own } = await signIn(browser, daemon, { role: 'admin' })
  const page = await context.newPage()
  // the same site as the daemon's, so that even a strict cookie is sent along
  await page.goto(`http://127.0.0.1:${port}/`)
  const socket = (protocols: readonly string[]): Promise<unknown> =>
    page.evaluate(
      `new Promise((done) => { const s = new WebSocket('${own.replace('http', 'ws')}${attach}', ${JSON.stringify(protocols)}); s.onopen = () => done('open'); s.onclose = (e) => done('closed ' + e.code) })`,
    )
  t.equal(await socket([ptyProtocol]), 'closed 1006', 'with the cookie alone')
  t.equal(await socket(withTicket(stolen[0] ?? '')), 'closed 1006', 'with a ticket that it stole')
  const fetched = (at: string, init: string): Promise<unknown> =>
    page.evaluate(
      `fetch('${own}${at}', ${init}).then((r) => r.status + ' ' + r.type, (e) => 'refused')`,
    )
  t.equal(
    await fetched('/v1/leases', "{ credentials: 'include' }"),
    'refused',
    'an answer can’t be read',
  )
  t.match(
    await fetched(
      `/v1/leases/${lease}`,
      "{ method: 'POST', mode: 'no-cors', credentials: 'include' }",
    ),
    /^(0 opaque|refused)$/,
  )
  await fetched(
    '/v1/tokens',
    `{ method: 'POST', mode: 'no-cors', credentials: 'include', body: '{"role":"admin"}' }`,
  )
  t.same(
    (await daemon.json(['token', 'list'])) as object,
    { tokens: await sessionsOnly() },
    'nothing was made',
  )
  await page.evaluate(
    `new Promise((done) => { const f = document.createElement('iframe'); f.onload = done; f.src = '${own}/'; document.body.append(f) })`,
  )
  t.match(page.frames().at(-1)?.url(), /^(chrome-error|about)/, 'nor is it framed')
  t.ok(
    refusals().filter((line) => line.includes('origin_refused')).length >= 4,
    'each is in the log',
  )
  // it was never shown to us, so it is still good where it belongs
  const good = attached(withTicket(stolen[1] ?? ''))
  await once(good.socket, 'open')
  good.socket.close()
  await stillServes(t)
})

async function sessionsOnly(): Promise<unknown[]> {
  const { tokens } = z
    .object({ tokens: z.array(z.looseObject({ kind: z.string() })) })
    .parse(await client.call('GET', '/v1/tokens'))
  return tokens.filter(({ kind }) => kind === 'session')
}

void t.test('tickets that are used, old, or for something else open nothing', async (t) => {
  const used = withTicket(await ticketFor('view'))
  const first = attached(used)
  await once(first.socket, 'open')
  first.socket.close()
  const rows: readonly (readonly [
    why: string,
    protocols: readonly string[],
    headers: Record<string, string>,
    status: number,
  ])[] = [
    ['used already', used, { Origin: url }, 401],
    ['for the dashboard', withTicket(await ticketFor('view', '/')), { Origin: url }, 401],
    [
      'for another session',
      withTicket(await ticketFor('view', attach.replace(pty, '0'.repeat(16)))),
      { Origin: url },
      401,
    ],
    ['made up', withTicket('cbk_aaaaaaaaaaaa_' + 'a'.repeat(43)), { Origin: url }, 401],
    ['none', [ptyProtocol], { Origin: url }, 401],
    [
      'another origin',
      withTicket(await ticketFor('view')),
      { Origin: 'https://evil.example' },
      403,
    ],
    ['a rebound name', withTicket(await ticketFor('view')), { Host: 'rebound.example' }, 403],
  ]
  for (const [why, protocols, headers, status] of rows)
    t.equal(await attached(protocols, headers).end, status, why)
  await stillServes(t)
})

void t.test(
  'a viewer that types, asks for control, or sends what is no frame is put out',
  async (t) => {
    const rows: readonly (readonly [why: string, frame: Uint8Array | string, code: RegExp])[] = [
      ['input', encodeInput(1, Buffer.from('rm -rf /\n')), /^(4003|open)$/],
      ['a frame of two mebibytes', new Uint8Array(2 * 1024 * 1024), /^1009$/],
      ['no frame', new Uint8Array([99, 1, 2]), /^4000$/],
      ['text', 'hello', /^4\d\d\d$/],
    ]
    for (const [why, frame, code] of rows) {
      const viewer = attached(withTicket(await ticketFor('view')))
      await once(viewer.socket, 'open')
      viewer.socket.send(encodeControl({ type: 'hello', mode: 'view' }))
      await once(viewer.socket, 'message')
      viewer.socket.send(frame)
      const ended = viewer.end.then(String)
      // one that is ignored instead stays open until we close it
      const quiet = new Promise<string>((resolve) => setTimeout(() => resolve('open'), 1_000))
      t.match(await Promise.race([ended, quiet]), code, why)
      viewer.socket.close()
    }
    const asking = attached(withTicket(await ticketFor('view')))
    await once(asking.socket, 'open')
    asking.socket.send(encodeControl({ type: 'hello', mode: 'control' }))
    const told = await Promise.race([
      asking.end.then(String),
      once(asking.socket, 'message').then(() => Buffer.concat(asking.frames).toString()),
    ])
    t.notMatch(told, '"mode":"control"', 'a ticket to look gives no control')
    asking.socket.close()
    const recording = await client.ptyRecording(lease, pty)
    let text = ''
    for await (const chunk of recording) text += String(chunk)
    // the first line names the command itself
    t.notMatch(text.slice(text.indexOf('\n')), /got|rm -rf/, 'nothing reached the program')
    t.equal((await client.lease(lease)).assisted, false)
    await stillServes(t)
  },
)

void t.test(
  'floods of connections, of bad tokens and of slow requests leave the daemon as it was',
  async (t) => {
    const { port } = new URL(url)
    const { token } = await createToken(client, { role: 'view' })
    const sockets = Array.from({ length: 300 }, () =>
      net.connect(Number(port), '127.0.0.1').on('error', () => {}),
    )
    for (const socket of sockets)
      socket.resume().write('GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: ')
    await Promise.all(
      sockets
        .slice(60)
        .map(async (socket) => void (socket.closed || (await once(socket, 'close')))),
    )
    t.equal((await client.health()).status, 'ok', 'the unix socket never waits for them')
    for (const socket of sockets) socket.destroy()
    const statuses = new Set<number>()
    for (let n = 0; n < 60; n += 1)
      statuses.add(
        (await fetch(`${url}/v1/leases`, { headers: { authorization: 'Bearer no' } })).status,
      )
    t.ok(statuses.has(429))
    t.equal(
      (await fetch(`${url}/v1/leases`, { headers: { authorization: `Bearer ${token}` } })).status,
      200,
    )
    t.ok(refusals().length < 400, 'the log is not flooded')
    t.match(
      await (
        await fetch(`${url}/metrics`, { headers: { authorization: `Bearer ${token}` } })
      ).text(),
      /closedbook_auth_refused_total\{code="too_many_connections"\} \d+/,
    )
    await stillServes(t)
  },
)

void t.test('a token that is revoked takes its sockets along', async (t) => {
  const made = await createToken(client, { role: 'run', name: 'leaver' })
  const viewer = attached([ptyProtocol], { Authorization: `Bearer ${made.token}` })
  await once(viewer.socket, 'open')
  viewer.socket.send(encodeControl({ type: 'hello', mode: 'view' }))
  await once(viewer.socket, 'message')
  const revoked = await daemon.cli(['token', 'revoke', made.token])
  t.equal(revoked.code, 0, revoked.stderr)
  t.equal(await viewer.end, 4001)
})

void t.test('commands of another host work by address, token and CA', async (t) => {
  const place = daemon.stateDir
  const certificate = await makeCertificate(place)
  await using far = await TestDaemon.open(socketPath, {
    server: { listen: '127.0.0.1:0', tls: { cert: certificate.cert, key: certificate.key } },
  })
  const made = z
    .object({ token: z.string() })
    .parse(await far.json(['token', 'create', '--role', 'run', '--name', 'far', '--expires', '1h']))
  const env = {
    CLOSEDBOOK_URL: (await urlOf(far)).replace('127.0.0.1', 'localhost'),
    CLOSEDBOOK_TOKEN: made.token,
    CLOSEDBOOK_CA: certificate.cert,
    CLOSEDBOOK_STATE_DIR: path.join(place, 'nowhere'),
  }
  const open = await far.cli(['lease', 'open', '--image', imageTags.base], { env })
  t.equal(open.code, 0, open.stderr)
  const id = open.stdout.trim()
  const ran = await far.cli(
    ['exec', id, '--', 'sh', '-c', 'cat; curl -sS https://198.51.100.7/; exit 3'],
    { env, input: 'over TLS\n' },
  )
  t.match(ran, { code: 3, stdout: 'over TLS\n' })
  t.match((await far.cli(['audit', id], { env })).stdout, /198\.51\.100\.7/)
  const refused = await far.cli(['token', 'list'], { env })
  t.match([refused.code, refused.stderr], [77, /needs the role admin/])
  const printed = await far.cli(['dashboard'], { env })
  t.match(printed.stdout, /^https:\/\/localhost:\d+\/#ticket=cbk_\S+\n$/)
  t.match(printed.stderr, /good once/)
  await client.closeLease(lease, 'over')
})
