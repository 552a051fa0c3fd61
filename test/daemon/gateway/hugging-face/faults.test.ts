/** What goes wrong behind the gateway or before it: the Hub's faults, limits, and clients that speak something else. */
import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { rm } from 'node:fs/promises'
import { connect } from 'node:net'
import { join } from 'node:path'
import t from 'tap'
import { judgeRedirect } from '../../../../daemon/gateway/hugging-face/redirect.ts'
import { large } from '../../../support/hub.ts'
import { HubWorld, until } from './world.ts'

const files = {
  'config.json': '{"model_type":"tiny"}',
  'README.md': '# tiny',
  'modeling_tiny.py': 'print("upstream code")',
  'model.safetensors': large(3_000_000),
}
const sha256 = (bytes: Buffer): string => createHash('sha256').update(bytes).digest('hex')

t.test('faults of the Hub keep the words that clients read', async (t) => {
  await using world = await HubWorld.open({ hub: { timeoutMs: 500 } })
  const { standIn } = world
  const gated = standIn.add('acme/gated', files, { gated: true })
  const gone = 'f'.repeat(40)
  standIn.add('acme/tiny', { ...files, 'other.safetensors': large(200_000) })
  await using lease = await world.lease([
    { repo: 'acme/gated', revision: gated },
    { repo: 'acme/missing', revision: gone },
    { repo: 'acme/tiny', revision: gone, files: ['*.json'] },
    { repo: 'acme/tiny', revision: 'main' },
  ])
  for (const method of ['HEAD', 'GET']) {
    const { status, headers } = await lease.send('/acme/gated/resolve/main/config.json', { method })
    t.equal(status, 403)
    t.equal(headers['x-error-code'], 'GatedRepo', `${method} of a gated repository`)
    t.match(headers['x-error-message'], /authorized list/)
  }
  const missing = await lease.send('/acme/missing/resolve/main/config.json')
  t.match([missing.status, missing.headers['x-error-code']], [401, 'RepoNotFound'])
  const revision = await lease.send(`/acme/tiny/resolve/${gone}/config.json`)
  t.match([revision.status, revision.headers['x-error-code']], [404, 'RevisionNotFound'])
  const { commit } = lease.gateway.pins[3] ?? { commit: '' }

  // The file host says no, again and again.
  const file = `/acme/tiny/resolve/${commit}/model.safetensors`
  standIn.troubles.push({ kind: 'status', status: 403 })
  const refused = await lease.send(file)
  t.equal(refused.status, 403)
  t.equal(refused.headers['x-error-code'], undefined, 'no code of the Hub where it gave none')
  standIn.troubles.push({ kind: 'status', status: 429, headers: { 'retry-after': '600' } })
  const busy = await lease.send(file)
  t.match(
    [busy.status, busy.headers['retry-after']],
    [429, '30'],
    'no client is sent to sleep for ten minutes',
  )
  standIn.troubles.push({ kind: 'redirect', location: 'http://127.0.0.3:9/elsewhere' })
  const elsewhere = await lease.send(file)
  t.match([elsewhere.status, elsewhere.headers['x-closedbook-reason']], [403, 'redirect_denied'])
  t.equal(elsewhere.headers.location, undefined)
  standIn.troubles.push({
    kind: 'redirect',
    location: `${standIn.endpoint}/acme/tiny/resolve/main/config.json`,
  })
  t.equal(
    (await lease.send(file)).headers['x-closedbook-reason'],
    'redirect_denied',
    'not back to the Hub either',
  )
  standIn.troubles.push({ kind: 'status', status: 503 }, { kind: 'status', status: 500 })
  t.equal((await lease.send(file)).status, 200, 'a passing fault is not passed on')

  standIn.troubles.push({ kind: 'corrupt' })
  const corrupt = await lease.begin(`/acme/tiny/resolve/${commit}/other.safetensors`)
  const received: Buffer[] = []
  await t.rejects(async () => {
    for await (const chunk of corrupt as AsyncIterable<Buffer>) received.push(chunk)
  }, 'bytes that are not what the tree names never become a whole file')
  t.ok(Buffer.concat(received).length < 200_000)
  const again = await lease.send(`/acme/tiny/resolve/${commit}/other.safetensors`)
  t.equal(
    sha256(again.body),
    standIn.file('acme/tiny', 'other.safetensors').sha256,
    'and nothing of it is kept',
  )

  await standIn[Symbol.asyncDispose]()
  const down = await lease.send('/acme/missing/resolve/main/config.json')
  t.match([down.status, down.headers['x-closedbook-reason']], [502, 'upstream_bad'])
  t.equal((await lease.send(file)).status, 200, 'what is cached needs no Hub')
  const reasons = lease.closes().flatMap(({ reason }) => (reason === null ? [] : [reason]))
  t.same(
    [...new Set(reasons)].toSorted(),
    ['redirect_denied', 'upstream_bad'],
    'each fault is in the close of its request',
  )
})

t.test(
  'a repository that was renamed, or that leads elsewhere, is refused at opening with the new name',
  async (t) => {
    await using world = await HubWorld.open()
    const commit = world.standIn.add('acme/tiny', files)
    world.standIn.renamed.set('acme/old', 'acme/tiny')
    const opening = async (repo: object): Promise<unknown> => {
      await using lease = await world.lease(
        [{ repo: 'acme/tiny', revision: commit, ...repo }],
        'opened',
      )
      return await lease.gateway.check(AbortSignal.timeout(5_000))
    }
    t.equal(
      await opening({}),
      `/acme/tiny/resolve/${commit}/config.json`,
      'an artifact for the proof',
    )
    await t.rejects(opening({ repo: 'acme/old', revision: 'main' }), {
      code: 'lease_refused',
      blame: 'operator',
      message: /is now acme\/tiny/,
    })
    await t.rejects(opening({ repo: 'acme/old' }), {
      code: 'lease_refused',
      message: /is now acme\/tiny/,
    })
    await t.rejects(opening({ repo: 'acme/none' }), {
      code: 'lease_refused',
      message: /RepoNotFound/,
    })
    await t.rejects(opening({ revision: 'v9' }), {
      code: 'lease_refused',
      message: /RevisionNotFound/,
    })
    await t.rejects(opening({ files: ['*.gguf'] }), {
      code: 'lease_refused',
      message: /no file that the policy names/,
    })
    world.standIn.add('acme/gated', files, { gated: true })
    await t.rejects(opening({ repo: 'acme/gated', revision: 'main' }), {
      code: 'lease_refused',
      message: /GatedRepo/,
    })
    world.standIn.faults.push(...Array.from({ length: 4 }, () => ({ status: 503 })))
    await t.rejects(opening({ revision: 'main' }), { code: 'seal_failed', blame: 'infra' })
  },
)

t.test('a lease is sent no more of a repository than its policy says, hits included', async (t) => {
  await using world = await HubWorld.open()
  const commit = world.standIn.add('acme/tiny', files)
  await using lease = await world.lease([
    { repo: 'acme/tiny', revision: commit, maxBytes: 6_500_000 },
  ])
  const path = '/acme/tiny/resolve/main/model.safetensors'
  t.equal((await lease.send(path)).status, 200)
  t.equal((await lease.send(path)).status, 200)
  const third = await lease.send(path)
  t.match([third.status, third.headers['x-closedbook-reason']], [403, 'limit_bytes'])
  t.equal(
    (await lease.send(path, { headers: { range: 'bytes=2999900-' } })).status,
    206,
    'a part still fits',
  )
  await until(() => lease.closes().length === 4)
  t.equal(lease.closes()[2]?.reason, 'limit_bytes')
})

t.test('after it is shut the gateway serves nothing, and what was under way ends', async (t) => {
  await using world = await HubWorld.open()
  const commit = world.standIn.add('acme/tiny', files)
  await using lease = await world.lease([{ repo: 'acme/tiny', revision: commit }])
  const release = Promise.withResolvers<void>()
  world.standIn.troubles.push({ kind: 'hold', after: 1_000_000, release: release.promise })
  const download = await lease.begin('/acme/tiny/resolve/main/model.safetensors')
  const ended = t.rejects(async () => {
    for await (const _ of download as AsyncIterable<Buffer>);
  })
  await lease.gateway.shut()
  await ended
  release.resolve()
  const after = await lease.send('/api/models/acme/tiny')
  t.match([after.status, after.headers['x-closedbook-reason']], [403, 'gateway_shut'])
})

t.test('bytes that are no HTTP, upgrades and CONNECT are refused and recorded', async (t) => {
  await using world = await HubWorld.open()
  const commit = world.standIn.add('acme/tiny', files)
  await using lease = await world.lease([{ repo: 'acme/tiny', revision: commit }])
  for (const bytes of [
    '\u0016\u0003\u0001\u0002\u0000',
    'CONNECT huggingface.co:443 HTTP/1.1\r\nHost: huggingface.co:443\r\n\r\n',
    'GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n',
    'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n',
  ]) {
    const socket = connect(lease.port, '127.0.0.1')
    socket.write(bytes)
    let answer = ''
    socket.on('data', (chunk: Buffer) => (answer += chunk.toString('latin1')))
    await once(socket, 'close')
    t.match(answer, /^HTTP\/1\.1 400 /, JSON.stringify(bytes.slice(0, 20)))
  }
  t.same(new Set(lease.decisions()), new Set(['deny bad_request']))
  t.equal((await lease.send('/api/models/acme/tiny')).status, 200, 'and the gateway goes on')
})

t.test('a client that closes its side after the request gets the whole answer', async (t) => {
  await using world = await HubWorld.open()
  const commit = world.standIn.add('acme/tiny', files)
  await using lease = await world.lease([{ repo: 'acme/tiny', revision: commit }])
  const release = Promise.withResolvers<void>()
  world.standIn.troubles.push({ kind: 'hold', after: 1_000_000, release: release.promise })
  const socket = connect({ port: lease.port, host: '127.0.0.1', allowHalfOpen: true })
  socket.end('GET /acme/tiny/resolve/main/model.safetensors HTTP/1.1\r\nHost: x\r\n\r\n')
  let received = 0
  socket.on('data', (chunk: Buffer) => (received += chunk.length))
  await until(() => received > 500_000)
  release.resolve()
  await once(socket, 'close')
  t.ok(received > 3_000_000, `${received} bytes`)
})

t.test(
  'redirects are followed to the same repository, and for bytes to known file hosts',
  async (t) => {
    const from = '/acme/tiny/resolve/main/a.bin'
    const rows: [
      location: string | null,
      purpose: 'file' | 'api',
      expected: RegExp | 'own' | 'away',
      why: string,
    ][] = [
      [
        '/api/resolve-cache/models/acme/tiny/abc/a.bin?etag=1',
        'file',
        'own',
        'the small files of the Hub',
      ],
      [
        'https://huggingface.co/acme/tiny/resolve/abc/a.bin',
        'file',
        'own',
        'absolute, and the same',
      ],
      ['/api/models/acme/tiny/tree/abc', 'api', 'own', 'an API route of it'],
      ['https://cas-bridge.xethub.hf.co/xet-bridge-us/x?X-Amz=1', 'file', 'away', 'published'],
      ['https://us.aws.cdn.hf.co/x', 'file', 'away', 'published'],
      ['https://files.mirror.example:8443/x', 'file', 'away', 'configured with its port'],
      ['https://mirror.example/x', 'file', 'away', 'configured by name'],
      [
        'https://us.aws.cdn.hf.co/x',
        'api',
        /redirect to us\.aws\.cdn/,
        'no API answer comes from there',
      ],
      ['https://us.aws.cdn.hf.co:8443/x', 'file', /no known host/, 'another port'],
      [
        'https://files.mirror.example/x',
        'file',
        /no known host/,
        'another port than the configured',
      ],
      ['https://us.aws.cdn.hf.co.evil.example/x', 'file', /no known host/, 'a suffix'],
      ['https://evil.example/x', 'file', /no known host/, 'anybody'],
      ['http://us.aws.cdn.hf.co/x', 'file', /http:/, 'no step down to plain HTTP'],
      ['ftp://us.aws.cdn.hf.co/x', 'file', /ftp:/, 'another protocol'],
      ['https://u:p@us.aws.cdn.hf.co/x', 'file', /credentials/, 'credentials'],
      ['/acme/renamed/resolve/abc/a.bin', 'file', /is now acme\/renamed/, 'a rename'],
      ['/acme/tiny2/resolve/abc/a.bin', 'file', /is now acme\/tiny2/, 'a longer name'],
      ['/acme/tiny/../other/resolve/abc/a.bin', 'file', /is now acme\/other/, 'dots'],
      ['/login', 'file', /away from acme\/tiny/, 'a page'],
      [
        'https://hf.co/acme/tiny/resolve/abc/a.bin',
        'file',
        /no known host/,
        'another name of the Hub',
      ],
      [null, 'file', /not where to/, 'no address'],
      ['https://[', 'file', /no address/, 'a broken one'],
    ]
    for (const [location, purpose, expected, why] of rows) {
      const redirect = judgeRedirect(new URL(from, 'https://huggingface.co'), location, {
        endpoint: new URL('https://huggingface.co'),
        repo: 'acme/tiny',
        purpose,
        fileHosts: ['mirror.example', 'files.mirror.example:8443'],
      })
      const seen = redirect.ok ? (redirect.own ? 'own' : 'away') : redirect.why
      t.match(seen, expected, `${location}: ${why}`)
    }
    const back = judgeRedirect(
      new URL('https://us.aws.cdn.hf.co/x'),
      `https://huggingface.co${from}`,
      {
        endpoint: new URL('https://huggingface.co'),
        repo: 'acme/tiny',
        purpose: 'file',
        fileHosts: [],
      },
    )
    t.notOk(back.ok, 'a file host does not send us back to the Hub, and its token')
  },
)

t.test(
  'a disk that is full is our fault: said in the audit, and of no use to the sandbox',
  async (t) => {
    await using world = await HubWorld.open()
    const commit = world.standIn.add('acme/tiny', files)
    await using lease = await world.lease([{ repo: 'acme/tiny', revision: commit }])
    await rm(join(world.folder, 'cache', 'partial'), { recursive: true })
    const { status, body } = await lease.send('/acme/tiny/resolve/main/model.safetensors')
    t.equal(status, 500)
    t.equal(
      body.toString(),
      'closedbook: internal_error: the gateway failed\n',
      'no path of the host',
    )
    await until(() => lease.closes().length === 1)
    t.equal(lease.closes()[0]?.reason, 'internal_error')
    t.match(lease.faults[0], { code: 'ENOENT' })
  },
)
