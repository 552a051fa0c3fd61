import { once } from 'node:events'
import net, { type AddressInfo } from 'node:net'
import t from 'tap'
import { z } from 'zod'
import { HostError, LeaseError, RequestError } from '../../../daemon/errors.ts'
import { safe } from '../../../daemon/server/lease-routes.ts'
import { readJson, Router, sendJson } from '../../../daemon/server/router.ts'
import { createLogger } from '../../../daemon/logger.ts'
import { wireErrorSchema } from '../../../daemon/protocol/lease.ts'

const router = new Router(createLogger({ level: 'silent' }))
const open = { role: 'view', summary: 'a route of this test' } as const
const arrived = Promise.withResolvers<void>()
const left = Promise.withResolvers<string>()
router.on('GET', '/v1/things/:id', open, ({ params, response, url }) =>
  sendJson(response, 200, { id: params['id'], from: url.searchParams.get('from') }),
)
router.on('POST', '/v1/things', open, async (call) => {
  const { name } = await readJson(call, z.strictObject({ name: z.string() }))
  sendJson(call.response, 201, { name })
})
router.on('GET', '/v1/refused', open, () => {
  throw new LeaseError('lease_no_capacity', 'operator', 'try again later')
})
router.on('GET', '/v1/unlisted', open, () => {
  throw new HostError('tool_missing', 'operator', 'install it')
})
router.on('GET', '/v1/broken', open, () => {
  throw new Error('a secret of ours')
})
router.on('GET', '/v1/late', open, async ({ response }) => {
  response.writeHead(200, { 'content-type': 'text/plain' })
  response.write('part')
  await new Promise((turn) => setImmediate(turn))
  throw new Error('too late to be told by status')
})
router.on('GET', '/v1/waits', open, async ({ signal }) => {
  arrived.resolve()
  signal.addEventListener('abort', () => left.resolve('left'))
  await left.promise
})
router.onUpgrade('/v1/things/:id/exec', open, (_request, socket, _head, params) => {
  if (params['id'] === 'unknown') throw new LeaseError('lease_unknown', 'caller', 'no open lease')
  socket.end('HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n')
})
const server = router.createServer()
server.listen(0, '127.0.0.1')
await once(server, 'listening')
t.teardown(() => {
  server.closeAllConnections()
  server.close()
})
const { port } = server.address() as AddressInfo
const origin = `http://127.0.0.1:${port}`

void t.test('a request is answered by its route, or told what is wrong with it', async (t) => {
  const large = JSON.stringify({ name: 'x'.repeat(5 * 1024 * 1024) })
  const rows: readonly (readonly [
    what: string,
    path: string,
    init: RequestInit,
    status: number,
    body: object,
  ])[] = [
    ['a route with a part', '/v1/things/a%20b?from=3', {}, 200, { id: 'a b', from: '3' }],
    ['a body', '/v1/things', { method: 'POST', body: '{"name": "n"}' }, 201, { name: 'n' }],
    [
      'no such path',
      '/v2/things',
      {},
      404,
      { code: 'not_found', blame: 'caller', message: /no such path: \/v2\/things/ },
    ],
    [
      'another method',
      '/v1/things/a',
      { method: 'DELETE' },
      404,
      { code: 'not_found', message: /DELETE is not possible/ },
    ],
    [
      'no JSON',
      '/v1/things',
      { method: 'POST', body: '{' },
      400,
      { code: 'bad_request', message: /not JSON/ },
    ],
    ['no body', '/v1/things', { method: 'POST' }, 400, { code: 'bad_request' }],
    [
      'an unknown key',
      '/v1/things',
      { method: 'POST', body: '{"name": "n", "x": 1}' },
      400,
      { message: /x/ },
    ],
    [
      'a wrong value',
      '/v1/things',
      { method: 'POST', body: '{"name": 1}' },
      400,
      { message: /name/ },
    ],
    ['too much', '/v1/things', { method: 'POST', body: large }, 413, { code: 'too_large' }],
    [
      'an error of ours with its status',
      '/v1/refused',
      {},
      503,
      { code: 'lease_no_capacity', blame: 'operator', message: 'try again later' },
    ],
    ['one without a status of its own', '/v1/unlisted', {}, 500, { code: 'tool_missing' }],
    ['a fault', '/v1/broken', {}, 500, { code: 'internal', blame: 'infra' }],
    ['a part that is no text', '/v1/things/%ff', {}, 400, { code: 'bad_request' }],
  ]
  for (const [what, path, init, status, body] of rows) {
    const response = await fetch(`${origin}${path}`, init)
    const text = await response.text()
    t.equal(response.status, status, what)
    t.match(JSON.parse(text), body, what)
    t.notMatch(text, 'a secret of ours')
    if (status >= 400) t.ok(wireErrorSchema.safeParse(JSON.parse(text)).success, what)
  }
})

void t.test('an answer that breaks is cut, not ended', async (t) => {
  await t.rejects(fetch(`${origin}/v1/late`).then((response) => response.text()))
})

void t.test('a client that goes away is told to the handler', async (t) => {
  const gone = new AbortController()
  const asking = fetch(`${origin}/v1/waits`, { signal: gone.signal })
  await arrived.promise
  gone.abort()
  await t.rejects(asking)
  t.equal(await left.promise, 'left')
})

void t.test('an upgrade that is refused is told as JSON', async (t) => {
  const upgrade = async (path: string): Promise<string> => {
    const socket = net.connect(port, '127.0.0.1')
    socket.write(`POST ${path} HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n`)
    const answer = await Array.fromAsync(socket as AsyncIterable<Buffer>)
    return Buffer.concat(answer).toString()
  }
  t.match(await upgrade('/v1/things/a/exec'), /^HTTP\/1\.1 101 /)
  t.match(await upgrade('/v1/things/unknown/exec'), /^HTTP\/1\.1 404 [^]*"code":"lease_unknown"/)
  t.match(await upgrade('/v1/nothing'), /^HTTP\/1\.1 404 [^]*"code":"not_found"/)
  t.match(await upgrade('/v1/things/%ff/exec'), /^HTTP\/1\.1 400 /)
  t.match(await upgrade('//'), /^HTTP\/1\.1 4\d\d /, 'a target that is no URL ends nothing')
  const garbage = net.connect(port, '127.0.0.1')
  garbage.end('\u0016\u0003\u0001')
  await Array.fromAsync(garbage as AsyncIterable<Buffer>).catch(() => [])
  t.equal((await fetch(`${origin}/v1/things/still`)).status, 200)
})

void t.test('an id that becomes a file name is one of ours', async (t) => {
  t.equal(safe('0123456789abcdef'), '0123456789abcdef')
  for (const id of [
    '../../etc/passwd',
    'short',
    'UPPERCASEID00',
    'a'.repeat(33),
    'lease0000001\n',
    '',
  ])
    t.throws(() => safe(id), RequestError)
})
