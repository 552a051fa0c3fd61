/** The listener beyond loopback: what it is opened with, and commands of other hosts that reach it over TLS. */
import { once } from 'node:events'
import { mkdtemp, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import tls from 'node:tls'
import t from 'tap'
import { DaemonClient } from '../../../daemon/protocol/client.ts'
import {
  createTicket,
  createToken,
  listTokens,
  revokeToken,
} from '../../../daemon/protocol/auth-client.ts'
import { checkTarget, type DaemonTarget } from '../../../daemon/protocol/target.ts'
import { Refusals } from '../../../daemon/server/auth/refusals.ts'
import { openNetworkDoor } from '../../../daemon/server/network-door.ts'
import { Router } from '../../../daemon/server/router.ts'
import { makeCertificate } from '../../support/certificate.ts'
import { listener, scratch, serverConfig, silent } from './listener.ts'

const { directory, remove } = await scratch()
t.teardown(remove)

void t.test('beyond loopback nothing listens without TLS and a token', async (t) => {
  const certificate = await makeCertificate(directory)
  const { cert, key } = certificate
  const other = await makeCertificate(directory, 'other')
  const files = { cert, key }
  const torn = path.join(directory, 'torn.pem')
  await writeFile(torn, 'no certificate')
  const rows: readonly (readonly [
    why: string,
    server: object,
    tokens: number,
    refusal: RegExp | null,
  ])[] = [
    ['no TLS', { listen: '0.0.0.0:0' }, 1, /there is no TLS; set server\.tls\.cert/],
    ['another address, no TLS', { listen: '198.51.100.7:0' }, 1, /there is no TLS/],
    ['a name, no TLS', { listen: 'bench.example.com:0' }, 1, /there is no TLS/],
    [
      'no token',
      { listen: '0.0.0.0:0', tls: files },
      0,
      /there is no token; start the daemon once without it/,
    ],
    ['both', { listen: '0.0.0.0:0', tls: files }, 1, null],
    ['loopback needs neither', { listen: '[::1]:0' }, 0, null],
    [
      'the key of another certificate',
      { listen: '127.0.0.1:0', tls: { cert, key: other.key } },
      0,
      /is not that of the certificate/,
    ],
    [
      'no certificate',
      { listen: '127.0.0.1:0', tls: { cert: torn, key } },
      0,
      /not a certificate and a key/,
    ],
    [
      'no file',
      { listen: '127.0.0.1:0', tls: { cert: '/nowhere', key } },
      0,
      /cannot read \/nowhere/,
    ],
    ['a port that is none', { listen: '127.0.0.1:70000' }, 0, /no port/],
  ]
  for (const [why, server, size, refusal] of rows) {
    using refusals = new Refusals(silent)
    const opening = openNetworkDoor(new Router(silent), serverConfig(server), {
      tokens: { size },
      refusals,
      log: silent,
    })
    if (refusal !== null) {
      await t.rejects(opening, { code: 'config_invalid', message: refusal }, why)
      continue
    }
    const door = await opening
    t.match(door?.url, /^https?:\/\/.+:\d+$/, why)
    await door?.[Symbol.asyncDispose]()
  }
  t.equal(
    await openNetworkDoor(new Router(silent), serverConfig({ listen: 'none' }), {
      tokens: { size: 0 },
      refusals: new Refusals(silent),
      log: silent,
    }),
    null,
  )
})

void t.test(
  'over TLS a command has its token and its CA, and renewed files are taken up',
  async (t) => {
    const place = await mkdtemp(path.join(directory, 'tls-'))
    const first = await makeCertificate(place)
    await using server = await listener(directory, { tls: { cert: first.cert, key: first.key } })
    const token = await server.make('admin')
    const target: DaemonTarget = {
      url: server.door.url.replace('127.0.0.1', 'localhost'),
      token: token.token,
      ca: first.ca,
    }
    await using client = new DaemonClient(target)
    const made = await createToken(client, {
      role: 'run',
      name: 'by a command',
      expiresInSeconds: 60,
    })
    t.match(made, { kind: 'token', role: 'run', name: 'by a command' })
    t.equal((await listTokens(client)).length, 2)
    t.match(await createTicket(client, { path: '/', role: 'run' }), { role: 'run', path: '/' })
    t.match(await revokeToken(client, made.token), { id: made.id })
    await using stranger = new DaemonClient({ ...target, token: made.token })
    await t.rejects(listTokens(stranger), { code: 'unauthenticated' })
    await using unsure = new DaemonClient({ url: target.url, token: token.token })
    await t.rejects(
      listTokens(unsure),
      { code: 'daemon_unreachable', message: /--ca/ },
      'a certificate of its own is not trusted unseen',
    )
    const cookie = (await signInOverTls(target, first.ca, server.url)).toLowerCase()
    t.match(cookie, /set-cookie: __host-closedbook-\d+=.*; secure/)
    t.match(cookie, /httponly; samesite=strict/)
    const before = await fingerprint(server.url)
    await makeCertificate(place)
    const deadline = Date.now() + 15_000
    while ((await fingerprint(server.url)) === before && Date.now() < deadline) await delay(100)
    t.not(await fingerprint(server.url), before, 'a renewed certificate is shown without a restart')
    await writeFile(first.key, 'torn')
    const rows: readonly (readonly [why: string, url: string, refusal: RegExp])[] = [
      ['in clear to another host', 'http://bench.example.com:8480', /everybody can read it/],
      ['with a path', 'https://bench.example.com/x', /no address of a daemon/],
      ['with a password', 'https://a:b@bench.example.com', /no user or password/],
      ['no address', 'bench', /no address/],
    ]
    for (const [why, url, message] of rows)
      t.throws(() => checkTarget({ url, token: 'x' }), { code: 'bad_request', message }, why)
    t.ok(checkTarget({ url: 'http://127.0.0.1:1', token: 'x' }), 'a tunnel ends on loopback')
  },
)

/** The whole answer to signing in, as it came. */
async function signInOverTls(target: DaemonTarget, ca: string, url: URL): Promise<string> {
  if (!('token' in target)) return ''
  const body = JSON.stringify({ token: target.token })
  const socket = tls.connect({
    host: '127.0.0.1',
    port: Number(url.port),
    ca,
    servername: 'localhost',
  })
  await once(socket, 'secureConnect')
  const origin = `https://localhost:${url.port}`
  socket.write(
    `POST /v1/session HTTP/1.1\r\nHost: localhost:${url.port}\r\nOrigin: ${origin}\r\nConnection: close\r\nContent-Length: ${body.length}\r\n\r\n${body}`,
  )
  let text = ''
  for await (const chunk of socket as AsyncIterable<Buffer>) text += chunk.toString()
  return text
}

function fingerprint(url: URL): Promise<string> {
  return new Promise((resolve, reject) => {
    const given = { host: '127.0.0.1', port: Number(url.port), rejectUnauthorized: false }
    const socket = tls.connect(given, () => {
      resolve(socket.getPeerCertificate().fingerprint256)
      socket.destroy()
    })
    socket.once('error', reject)
  })
}
