import { execFile } from 'node:child_process'
import { createHash } from 'node:crypto'
import { readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import t from 'tap'
import { objectOf } from '../../../../daemon/gateway/hugging-face/serve-file.ts'
import { large } from '../../../support/hub.ts'
import { HubWorld, until, upstreamToken, type LeaseGateway } from './world.ts'

const run = promisify(execFile)
const files = {
  'config.json': '{"model_type":"tiny"}',
  'README.md': '# tiny',
  'modeling_tiny.py': 'print("upstream code")',
  'model.safetensors': large(3_000_000),
  'sub/folder/extra.json': '[]',
  'secret/keys.bin': large(10),
}
const sha256 = (bytes: Buffer): string => createHash('sha256').update(bytes).digest('hex')

/** Headers of which none may ever reach a client. */
const leads = [
  'location',
  'link',
  'x-xet-hash',
  'x-xet-refresh-route',
  'set-cookie',
  'authorization',
]

t.test(
  'a repository is served at its pin: info, tree, files, with nothing that leads elsewhere',
  async (t) => {
    await using world = await HubWorld.open()
    world.standIn.pageSize = 2
    const commit = world.standIn.add('acme/tiny', files)
    await using lease = await world.lease([{ repo: 'acme/tiny', revision: commit }])
    const seen: Awaited<ReturnType<LeaseGateway['send']>>[] = []
    const ask = async (path: string, asked = {}) => {
      const received = await lease.send(path, asked)
      seen.push(received)
      return received
    }
    const { body: info } = await ask('/api/models/acme/tiny')
    t.match(JSON.parse(info.toString()), { id: 'acme/tiny', sha: commit })
    t.same(
      JSON.parse(info.toString())
        .siblings.map((one: { rfilename: string }) => one.rfilename)
        .toSorted(),
      ['README.md', 'config.json', 'model.safetensors', 'sub/folder/extra.json'],
      'siblings are those that may be read',
    )
    const tree = await ask(`/api/models/acme/tiny/tree/main?recursive=true&expand=false`)
    const entries = JSON.parse(tree.body.toString()) as { path: string }[]
    t.same(
      entries.map(({ path }) => path).toSorted(),
      [
        'README.md',
        'config.json',
        'model.safetensors',
        'sub',
        'sub/folder',
        'sub/folder/extra.json',
      ],
      'the whole filtered tree on one page, without folders that have nothing for us',
    )
    t.notMatch(tree.body.toString(), /xet/i)
    const paths = async (path: string): Promise<string[]> =>
      ((await lease.json(path)) as { path: string }[]).map((one) => one.path).toSorted()
    t.same(await paths('/api/models/acme/tiny/tree/main'), [
      'README.md',
      'config.json',
      'model.safetensors',
      'sub',
    ])
    t.same(await paths('/api/models/acme/tiny/tree/main/sub%2Ffolder'), ['sub/folder/extra.json'])
    t.equal(
      (await ask('/api/models/acme/tiny/tree/main/secret')).status,
      404,
      'an unseen folder is no folder',
    )
    const form = {
      method: 'POST',
      headers: { 'content-type': 'application/x-www-form-urlencoded' },
    }
    const info2 = await ask('/api/models/acme/tiny/paths-info/main', {
      ...form,
      body: 'paths=model.safetensors&paths=sub&paths=modeling_tiny.py&expand=false',
    })
    t.same(
      JSON.parse(info2.body.toString())
        .map((one: { path: string }) => one.path)
        .toSorted(),
      ['model.safetensors', 'sub'],
    )
    t.match(await lease.json('/api/models/acme/tiny/refs'), {
      branches: [{ name: 'main', targetCommit: commit }],
    })

    for (const path of ['config.json', 'model.safetensors', 'sub/folder/extra.json']) {
      const file = world.standIn.file('acme/tiny', path)
      const digest = file.lfs ? file.sha256 : file.oid
      const head = await ask(`/acme/tiny/resolve/main/${path}`, {
        method: 'HEAD',
        headers: { 'accept-encoding': 'identity' },
      })
      t.equal(head.status, 200, `${path}: HEAD`)
      t.match(head.headers, {
        'x-repo-commit': commit,
        etag: `"${digest}"`,
        'content-length': String(file.content.size),
        'x-linked-size': String(file.content.size),
      })
      const get = await ask(`/acme/tiny/resolve/${commit}/${path}`, {
        headers: { 'accept-encoding': 'gzip' },
      })
      t.equal(get.status, 200)
      t.equal(sha256(get.body), file.sha256, `${path}: GET`)
      t.equal(get.headers['content-encoding'], undefined)
    }
    const absent = await ask('/acme/tiny/resolve/main/tokenizer.json', { method: 'HEAD' })
    t.equal(absent.status, 404)
    t.match(
      absent.headers,
      { 'x-error-code': 'EntryNotFound', 'x-repo-commit': commit },
      'optional files are remembered as absent',
    )
    for (const { headers } of seen)
      for (const name of leads) t.equal(headers[name], undefined, `no ${name}`)

    const upstream = world.standIn.requests
    t.ok(
      upstream.length > 0 &&
        upstream.every(({ headers }) => headers.authorization === `Bearer ${upstreamToken}`),
    )
    t.ok(world.standIn.fileRequests.length > 0)
    t.ok(
      world.standIn.fileRequests.every(({ headers }) => headers.authorization === undefined),
      'the token goes to the endpoint alone',
    )
    t.ok(upstream.every(({ headers }) => headers['accept-encoding'] === 'identity'))
    const text = JSON.stringify([lease.audit, seen.map(({ headers }) => headers)])
    t.notMatch(text, upstreamToken)
  },
)

t.test(
  'what is not pinned is refused in words, before the cache or the Hub is asked',
  async (t) => {
    await using world = await HubWorld.open()
    const commit = world.standIn.add('acme/tiny', files)
    world.standIn.add('acme/other', files)
    await using rich = await world.lease([{ repo: 'acme/other', revision: 'main' }], 'rich')
    await rich.send('/acme/other/resolve/main/model.safetensors')
    await using lease = await world.lease([{ repo: 'acme/tiny', revision: commit }])
    const before = world.standIn.requests.length + world.standIn.fileRequests.length
    const table: [method: string, path: string, reason: string][] = [
      ['GET', '/acme/other/resolve/main/model.safetensors', 'repo_not_allowed'],
      ['HEAD', '/acme/nowhere/resolve/main/model.safetensors', 'repo_not_allowed'],
      ['GET', '/acme/tiny/resolve/main/modeling_tiny.py', 'file_not_allowed'],
      ['GET', '/acme/tiny/resolve/v2/config.json', 'revision_not_allowed'],
      ['POST', '/api/repos/create', 'write_denied'],
      ['GET', '/api/models?search=tiny', 'path_denied'],
      ['GET', '/datasets/acme/data/resolve/main/a.json', 'path_denied'],
    ]
    for (const [method, path, reason] of table) {
      const { status, headers, body } = await lease.send(path, {
        method,
        ...(method === 'POST' ? { body: '{"name":"x"}' } : {}),
      })
      t.equal(status, 403, `${method} ${path}`)
      t.match(headers['x-error-message'], new RegExp(`^closedbook: ${reason}: `))
      t.equal(headers['x-closedbook-reason'], reason)
      t.equal(
        headers['x-hf-warning'],
        `closedbook-${reason}; ${String(headers['x-error-message'])}`,
      )
      t.equal(headers['x-error-code'], undefined)
      t.equal(body.toString(), method === 'HEAD' ? '' : `${String(headers['x-error-message'])}\n`)
    }
    t.equal(world.standIn.requests.length + world.standIn.fileRequests.length, before)
    t.equal((await lease.send('/acme/tiny/resolve/main/%0Aevil')).status, 400)
    t.same(lease.decisions(), [
      ...table.map(([, , reason]) => `deny ${reason}`),
      'deny bad_request',
    ])
    t.same(lease.closes(), [], 'a denial has nothing to close')
  },
)

t.test('noise is answered here and goes nowhere', async (t) => {
  await using world = await HubWorld.open()
  const commit = world.standIn.add('acme/tiny', files)
  await using lease = await world.lease([{ repo: 'acme/tiny', revision: commit }])
  t.same(await lease.json('/api/agent-harnesses'), { standardEnvVars: [], harnesses: {} })
  t.equal((await lease.send('/api/telemetry/gradio', { method: 'HEAD' })).status, 200)
  const who = await lease.send('/api/whoami-v2', {
    headers: { authorization: 'Bearer hf_of_the_agent' },
  })
  t.equal(who.status, 401)
  t.match(who.headers['x-error-message'], /no token in this sandbox/)
  t.same(lease.decisions(), ['allow noise', 'allow noise', 'allow noise'])
  t.equal(world.standIn.requests.length, 0)
})

t.test(
  'each request is one decision before a byte flows, and one close with its bytes',
  async (t) => {
    await using world = await HubWorld.open()
    const commit = world.standIn.add('acme/tiny', files)
    await using lease = await world.lease([{ repo: 'acme/tiny', revision: commit }])
    const path = '/acme/tiny/resolve/main/model.safetensors'
    await lease.send(path)
    await lease.send(path, { headers: { range: 'bytes=1000-' } })
    await lease.send(path, { method: 'HEAD' })
    await until(() => lease.closes().length === 3)
    t.match(lease.audit[0], {
      kind: 'decision',
      protocol: 'hf',
      action: 'allow',
      reason: 'allowed_artifact',
      host: '127.0.0.1',
      detail: `GET ${path}`,
    })
    t.same(
      lease.closes().map(({ bytesDown, detail, reason }) => [bytesDown, detail, reason]),
      [
        [3_000_000, '200 miss', null],
        [2_999_000, '206 hit', null],
        [0, '200', null],
      ],
    )
    t.same(
      lease.closes().map(({ connection }) => connection),
      lease.audit.filter(({ kind }) => kind === 'decision').map(({ connection }) => connection),
    )
  },
)

t.test('a branch is frozen when the lease opens, also for a daemon that comes after', async (t) => {
  await using world = await HubWorld.open()
  const first = world.standIn.add('acme/tiny', { 'config.json': '{"v":1}' })
  const policy = [{ repo: 'acme/tiny', revision: 'main' }]
  {
    await using lease = await world.lease(policy)
    const moved = world.standIn.add('acme/tiny', { 'config.json': '{"v":2}' })
    const repo = world.standIn.repos.get('acme/tiny')
    t.not(moved, first)
    repo?.refs.set('main', moved)
    const head = await lease.send('/api/models/acme/tiny')
    t.equal(head.headers['x-repo-commit'], first)
  }
  await world.restart()
  const asked = world.standIn.requests.length
  await using adopted = await world.lease(policy)
  t.equal(world.standIn.requests.length, asked, 'nothing is asked again')
  t.equal(adopted.gateway.pins[0]?.commit, first)
  await using fresh = await world.lease(policy, 'another')
  t.not(fresh.gateway.pins[0]?.commit, first, 'another lease gets what is there now')
})

t.test('ranges are answered as clients resume: 206, 416, and whole where it is none', async (t) => {
  await using world = await HubWorld.open()
  const commit = world.standIn.add('acme/tiny', files)
  await using lease = await world.lease([{ repo: 'acme/tiny', revision: commit }])
  const path = '/acme/tiny/resolve/main/model.safetensors'
  const { content, sha256: digest } = world.standIn.file('acme/tiny', 'model.safetensors')
  const rows: [range: string, status: number, from: number, to: number, more?: object][] = [
    ['bytes=0-99', 206, 0, 100],
    ['bytes=1048576-', 206, 1_048_576, 3_000_000],
    ['bytes=-10', 206, 2_999_990, 3_000_000],
    ['bytes=2999999-9999999', 206, 2_999_999, 3_000_000],
    ['bytes=0-', 206, 0, 3_000_000],
    ['bytes=3000000-', 416, 0, 0],
    ['bytes=5-1', 200, 0, 3_000_000],
    ['bytes=0-1,5-6', 200, 0, 3_000_000],
    ['lines=1-', 200, 0, 3_000_000],
    ['bytes=100-', 200, 0, 3_000_000, { 'if-range': '"another"' }],
    ['bytes=100-', 206, 100, 3_000_000, { 'if-range': `"${digest}"` }],
  ]
  for (const [range, status, from, to, more] of rows) {
    const received = await lease.send(path, { headers: { range, ...more } })
    t.equal(received.status, status, range)
    t.ok(received.body.equals(content.read(from, to)), `${range}: ${to - from} bytes from ${from}`)
    if (status === 206)
      t.equal(received.headers['content-range'], `bytes ${from}-${to - 1}/3000000`)
    if (status === 416) t.equal(received.headers['content-range'], 'bytes */3000000')
  }
})

t.test('git sees the refusal, and no secret is left on the disk of the cache', async (t) => {
  await using world = await HubWorld.open()
  const commit = world.standIn.add('acme/tiny', files)
  await using lease = await world.lease([{ repo: 'acme/tiny', revision: commit }])
  const clone = await run(
    'git',
    ['clone', `${lease.endpoint}/acme/tiny`, join(world.folder, 'clone')],
    {
      env: { ...process.env, GIT_TERMINAL_PROMPT: '0' },
    },
  ).catch((error: { stderr: string }) => error)
  t.match(clone.stderr, /remote: closedbook: path_denied: not served here: git/)
  await lease.send('/acme/tiny/resolve/main/model.safetensors')
  await until(() => world.cache.stats().fetching === 0)
  for (const entry of await readdir(world.folder, { recursive: true, withFileTypes: true }))
    if (entry.isFile())
      t.notOk(
        (await readFile(join(entry.parentPath, entry.name))).includes(upstreamToken),
        entry.name,
      )
})

t.test('the digest of an object is the one that git and git-lfs give it', async (t) => {
  const oid = 'e69de29bb2d1d6434b8b29ae775ad8c2e48c5391'
  t.same(objectOf({ type: 'file', path: 'empty', oid, size: 0 }), {
    algorithm: 'git-sha1',
    hex: oid,
    size: 0,
  })
  const hex = sha256(Buffer.from(''))
  t.same(
    objectOf({
      type: 'file',
      path: 'a.bin',
      oid,
      size: 5,
      lfs: { oid: hex, size: 5, pointerSize: 134 },
    }),
    { algorithm: 'sha256', hex, size: 5 },
  )
})
