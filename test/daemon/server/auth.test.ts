/** Who may do what over a network: the rules, as tables, and what is kept. The listener itself: network-door.test.ts. */
import { mkdir, readFile, stat, writeFile } from 'node:fs/promises'
import type http from 'node:http'
import path from 'node:path'
import t from 'tap'
import { roleHolds, type Role } from '../../../daemon/protocol/auth.ts'
import { socketAccess, type Door } from '../../../daemon/server/auth/access.ts'
import { hostName, judgeOrigin } from '../../../daemon/server/auth/origin.ts'
import { Refusals } from '../../../daemon/server/auth/refusals.ts'
import { matching, newSecret } from '../../../daemon/server/auth/secret.ts'
import { Tickets } from '../../../daemon/server/auth/tickets.ts'
import { Tokens } from '../../../daemon/server/auth/tokens.ts'
import { scratch, until } from './listener.ts'

const { directory, remove } = await scratch()
t.teardown(remove)

void t.test('a role has all that the one before it has', (t) => {
  const rows: readonly (readonly [Role, Role, boolean])[] = [
    ['view', 'view', true],
    ['view', 'run', false],
    ['run', 'view', true],
    ['run', 'admin', false],
    ['admin', 'run', true],
  ]
  for (const [role, needed, holds] of rows)
    t.equal(roleHolds(role, needed), holds, `${role} for ${needed}`)
  t.end()
})

void t.test('Host and Origin say whether a page may ask at all', (t) => {
  const door = {
    kind: 'network',
    secure: false,
    names: new Set(['127.0.0.1', 'localhost', '[::1]', 'bench.example.com']),
    origins: new Set(['https://proxy.example.com']),
  } as const satisfies Door
  const rows: readonly (readonly [
    why: string,
    headers: http.IncomingHttpHeaders,
    code: string | null,
  ])[] = [
    ['a command has no origin', { host: '127.0.0.1:8480' }, null],
    [
      'a tunnel has another port',
      { host: 'localhost:9000', origin: 'http://localhost:9000' },
      null,
    ],
    ['our own page', { host: '[::1]:8480', origin: 'http://[::1]:8480' }, null],
    ['a name with a dot at its end is the same name', { host: 'BENCH.example.com.:8480' }, null],
    [
      'an origin of the configuration',
      { host: 'bench.example.com', origin: 'https://proxy.example.com' },
      null,
    ],
    ['a typed address', { host: 'localhost', 'sec-fetch-site': 'none' }, null],
    [
      'a link elsewhere leads to the page, which holds nothing',
      { host: 'localhost', 'sec-fetch-site': 'cross-site', 'sec-fetch-mode': 'navigate' },
      null,
    ],
    ['a name that was pointed at our address', { host: 'rebound.example:8480' }, 'host_refused'],
    ['no host at all', {}, 'host_refused'],
    ['what is no host', { host: 'localhost:8480/x' }, 'host_refused'],
    ['a user in front', { host: 'localhost@evil.example' }, 'host_refused'],
    ['another site', { host: 'localhost:8480', origin: 'https://evil.example' }, 'origin_refused'],
    [
      'another port of this host is another origin',
      { host: 'localhost:8480', origin: 'http://localhost:3000' },
      'origin_refused',
    ],
    [
      'another name of this host is another origin',
      { host: 'localhost:8480', origin: 'http://127.0.0.1:8480' },
      'origin_refused',
    ],
    [
      'another scheme',
      { host: 'localhost:8480', origin: 'https://localhost:8480' },
      'origin_refused',
    ],
    [
      'a page without an origin of its own',
      { host: 'localhost:8480', origin: 'null' },
      'origin_refused',
    ],
    [
      'an image on another site',
      { host: 'localhost', 'sec-fetch-site': 'cross-site', 'sec-fetch-mode': 'no-cors' },
      'origin_refused',
    ],
    [
      'a sister of this host',
      { host: 'localhost', 'sec-fetch-site': 'same-site' },
      'origin_refused',
    ],
  ]
  for (const [why, headers, code] of rows) {
    const verdict = judgeOrigin(headers, door)
    t.equal(verdict.ok ? null : verdict.code, code, why)
  }
  t.equal(hostName('[::1]'), '[::1]')
  t.equal(hostName('a b'), null)
  t.end()
})

void t.test('a secret is known by its hash alone', (t) => {
  const secret = newSecret('token')
  const find = (id: string) => (id === secret.id ? secret : undefined)
  t.match(secret.text, /^cbt_[a-z0-9]{12}_[\w-]{43}$/)
  t.notMatch(secret.hash, secret.text.slice(17))
  t.equal(matching('token', secret.text, find), secret)
  const other = newSecret('token')
  const rows: readonly (readonly [why: string, text: string])[] = [
    ['another', other.text],
    ['its id with the secret of another', secret.text.slice(0, 17) + other.text.slice(17)],
    ['one letter less', secret.text.slice(0, -1)],
    ['a session of the same letters', secret.text.replace('cbt', 'cbs')],
    ['with something behind it', `${secret.text}\n`],
    ['nothing', ''],
  ]
  for (const [why, text] of rows) t.equal(matching('token', text, find), undefined, why)
  t.equal(matching('ticket', secret.text, find), undefined, 'a token is no ticket')
  t.end()
})

void t.test('a ticket opens one path, once, for a while, from where it was asked for', (t) => {
  let now = 1_000_000
  const tickets = new Tickets(() => now)
  const over = new AbortController()
  const access = { ...socketAccess, over: over.signal }
  const make = (path = '/v1/socket', origin: string | null = null) =>
    tickets.create({ path, role: 'view', access, origin }).ticket
  const used = { path: '/v1/socket', origin: 'http://a' }
  const first = make()
  t.match(
    tickets.spend(first, used),
    { role: 'view', name: 'socket' },
    'it has its own role, not its asker’s',
  )
  t.match(tickets.spend(first, used), /used already/)
  const elsewhere = make()
  t.match(tickets.spend(elsewhere, { ...used, path: '/v1/other' }), /another path/)
  t.match(tickets.spend(elsewhere, used), /used already/, 'one that was shown wrongly is gone')
  t.match(tickets.spend(make('/v1/socket', 'http://b'), used), /another origin/)
  t.type(tickets.spend(make('/v1/socket', 'http://a'), used), 'object')
  const late = make()
  now += 30_001
  t.match(tickets.spend(late, used), /expired/)
  const login = make('/')
  now += 100_000
  t.type(tickets.spend(login, { path: '/', origin: null }), 'object', 'a person has longer')
  const revoked = make()
  over.abort()
  t.match(tickets.spend(revoked, used), /revoked/)
  const many = Array.from({ length: 1_100 }, () => make())
  t.match(tickets.spend(many[0] ?? '', used), /unknown/, 'a flood of them makes the oldest go')
  t.end()
})

void t.test('bad tries are slowed down by address, and never fill the log', (t) => {
  let now = 0
  const lines: string[] = []
  const log = { info: (_: object, message: string) => lines.push(message), warn: () => {} }
  using refusals = new Refusals(log as never, () => now)
  const tries = Array.from({ length: 25 }, () => refusals.spend('10.0.0.1'))
  t.equal(tries.filter(Boolean).length, 20)
  t.ok(refusals.spend('10.0.0.2'), 'another address has its own')
  now += 3_000
  t.ok(refusals.spend('10.0.0.1'), 'they come back with time')
  for (let n = 0; n < 1_000; n += 1)
    refusals.note({ code: 'unauthenticated', address: 'a', method: 'GET', path: '/' })
  t.equal(lines.length, 30)
  t.equal(refusals.counts.get('unauthenticated'), 1_000)
  t.end()
})

void t.test('tokens outlive the daemon, hashed, in a file of root alone', async (t) => {
  const place = path.join(directory, 'kept')
  let kept: string
  {
    using tokens = await Tokens.open(place)
    const made = await tokens.create({ kind: 'token', role: 'run', name: 'ci', expiresInMs: null })
    kept = made.token
    const session = await tokens.create({
      kind: 'session',
      role: 'view',
      name: 'ci',
      expiresInMs: 60_000,
      parent: made.id,
    })
    t.match(tokens.access('session', session.token), { role: 'view', credential: session.id })
    t.equal(tokens.access('token', session.token), undefined, 'a session is no token')
  }
  const file = path.join(place, 'tokens.json')
  const text = await readFile(file, 'utf8')
  t.notMatch(text, kept.slice(17))
  t.equal((await stat(file)).mode & 0o777, 0o600)
  using tokens = await Tokens.open(place)
  const access = tokens.access('token', kept)
  t.match(access, { role: 'run', name: 'ci' })
  t.equal(tokens.list().length, 2)
  await tokens.revoke(kept)
  t.ok(access?.over.aborted, 'what stands on it hears of it')
  t.equal(tokens.access('token', kept), undefined)
  t.same(tokens.list(), [], 'the session that it opened ends with it')
  await t.rejects(tokens.revoke(kept), { code: 'not_found' })
  const short = await tokens.create({
    kind: 'token',
    role: 'view',
    name: 'short',
    expiresInMs: 2_000,
  })
  const brief = tokens.access('token', short.token)
  await until(() => brief?.over.aborted === true)
  t.equal(tokens.access('token', short.token), undefined, 'it expires')
  const torn = path.join(directory, 'torn')
  await mkdir(torn)
  await writeFile(path.join(torn, 'tokens.json'), '{"v":1,"tokens":[{}]}')
  await t.rejects(Tokens.open(torn), { code: 'journal_corrupt', message: /move it away/ })
})
