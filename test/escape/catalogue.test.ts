/**
 * Every row of the catalogue of ways out, tried from inside real sandboxes by real clients, as root and as a user, with a
 * recording world around the daemon. A row passes if the client saw what it must, the audit has exactly the events that
 * are listed and not one more, and of everything only what is listed as allowed reached the outside.
 */
import { execFile } from 'node:child_process'
import { readFile } from 'node:fs/promises'
import net from 'node:net'
import os from 'node:os'
import { promisify } from 'node:util'
import { pack } from 'tar-stream'
import t, { type Test } from 'tap'
import type { LeaseRequestInput } from '../../daemon/protocol/lease.ts'
import { imageTags } from '../../images/build.ts'
import { isAttempt, type AuditEvent } from '../../policy/audit-event.ts'
import { SandboxWorld, until } from '../e2e/sandbox/setup.ts'
import { attempts, otherRows, techniques, type Attempt, type Sandbox } from './catalogue.ts'
import { pageIsCurrent } from './table.ts'
import { World } from './world.ts'

const run = promisify(execFile)
const nonce = `n${crypto.randomUUID().slice(0, 8)}`
const key = 'sk-escape-suite-0123456789abcdef'
const program = await readFile(new URL('clients.py', import.meta.url), 'utf8')
const world = await World.open()
t.teardown(() => world[Symbol.asyncDispose]())
const { hub, commits } = world.facts
const huggingface = { endpoint: hub.endpoint, fileHosts: [hub.fileHost] }
const options = { within: world.onHost }
const [wide, strict] = await Promise.all([
  SandboxWorld.open({ egress: { allowPrivateAddresses: true }, huggingface }, options),
  SandboxWorld.open({ huggingface, audit: { maxBytesPerLease: 400_000 } }, options),
])
t.teardown(() => Promise.all([wide, strict].map((each) => each[Symbol.asyncDispose]())))

/** What the engine's host serves on all its addresses; nothing may come. */
const served: net.Socket[] = []
const service = net.createServer((socket) => void served.push(socket.on('error', () => {})))
await new Promise<void>((resolve) => service.listen(0, '0.0.0.0', resolve))
t.teardown(() => service.close())

const names = ['web', '*.wild', 'flip', 'hole', 'hang', 'meta', 'loop', 'bridge', 'lan', 'shared']
const more = ['mixed', 'mapped', 'nat64', 'six', 'unique']
const env = {
  ...{ http_proxy: 'http://127.0.0.1:3128', https_proxy: 'http://127.0.0.1:3128' },
  ...{ no_proxy: '127.0.0.1,localhost', HF_ENDPOINT: 'http://127.0.0.1:8401', HOME: '/tmp' },
}
const request = (repo: string): Partial<LeaseRequestInput> => ({
  env,
  policy: {
    version: 1,
    connect: { allow: [...names, ...more].map((name) => `${name}.example`), ports: [80, 443] },
    huggingface: { repos: [{ repo, revision: commits[repo] ?? '' }] },
  },
})
const price = {
  inputPerMillionUsd: 1,
  cachedInputPerMillionUsd: 1,
  cacheWriteInputPerMillionUsd: 1,
  outputPerMillionUsd: 1,
}

async function recording(): Promise<string> {
  const body = {
    id: 'chatcmpl-1',
    object: 'chat.completion',
    model: 'm-1',
    choices: [{ index: 0, finish_reason: 'stop', message: { role: 'assistant', content: 'yes' } }],
    usage: { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 },
  }
  const line = (n: number): string =>
    JSON.stringify({ v: 1, n, api: 'openai.chat', response: { status: 200, body } })
  const tar = pack()
  tar.entry({ name: 'calls.jsonl' }, `${line(0)}\n${line(1)}\n`)
  tar.finalize()
  return wide.daemon.client.putBundle(
    Buffer.concat(await Array.fromAsync(tar as AsyncIterable<Buffer>)),
  )
}

const bundle = await recording()
const harness = (await wide.engine.inspectImage(imageTags.harness)).id
const model = { model: 'm-1', price }
const leases: Readonly<Record<Sandbox, string>> = {
  open: await wide.lease({
    ...request('acme/tiny'),
    model: { ...model, upstream: { kind: 'replay', bundle, path: 'calls.jsonl' } },
  }),
  other: await wide.lease({
    ...request('acme/other'),
    image: harness,
    model: {
      ...model,
      upstream: { kind: 'openai', baseUrl: 'http://198.51.100.70/v1', apiKey: key },
    },
  }),
  strict: await strict.lease(request('acme/tiny')),
}
const sandboxOf = (sandbox: Sandbox): SandboxWorld => (sandbox === 'strict' ? strict : wide)

const addresses = new Set(
  ['172.17.0.1', '192.168.77.5', '203.0.113.1'].concat(
    Object.values(os.networkInterfaces())
      .flatMap((each) => each ?? [])
      .filter(({ family, internal }) => family === 'IPv4' && !internal)
      .map(({ address }) => address),
  ),
)
const list = attempts({
  hostAddresses: [...addresses],
  hostPort: (service.address() as net.AddressInfo).port,
  commit: commits['acme/tiny'] ?? '',
  nonce,
})

/** `protocol reason target`, as the catalogue has it. */
function eventKey(event: AuditEvent): string {
  const { kind, protocol, reason, host, address, port } = event
  const where = host ?? address ?? '-'
  const gateway = protocol === 'hf' ? 'hub' : protocol === 'model' ? 'model' : null
  const target = gateway ?? `${where}${port === null ? '' : `:${port}`}`
  return `${kind === 'close' ? 'close ' : ''}${protocol} ${reason} ${target}`
}

async function recorded(sandbox: Sandbox): Promise<Map<string, number>> {
  const counts = new Map<string, number>()
  for (const event of await sandboxOf(sandbox).audit(leases[sandbox]))
    if (isAttempt(event) || (event.kind === 'close' && event.reason !== null))
      counts.set(eventKey(event), (counts.get(eventKey(event)) ?? 0) + event.count)
  return counts
}

interface Outcome {
  readonly attempt: Attempt
  readonly user: 'root' | 'user'
  readonly seen: string
  readonly seconds: number
}

async function make(sandbox: Sandbox, user: 'root' | 'user'): Promise<Outcome[]> {
  const mine = list.filter(
    (attempt) =>
      (attempt.in ?? 'open') === sandbox && (attempt.as === undefined || attempt.as === user),
  )
  const todo = mine.map(({ run, slow = false }, id) => ({ id, slow, ...run }))
  const results = (await sandboxOf(sandbox).python(
    leases[sandbox],
    program,
    [JSON.stringify(todo)],
    { user: user === 'root' ? 'root' : '1000' },
  )) as Record<string, { seen: string; seconds: number }>
  return mine.map((attempt, id) => {
    const { seen = 'nothing', seconds = 0 } = results[id] ?? {}
    return { attempt, user, seen, seconds }
  })
}

/** How often each event is to be there; -1: at least once. */
function expectedCounts(outcomes: readonly Outcome[]): Map<string, number> {
  const counts = new Map<string, number>()
  for (const { attempt } of outcomes)
    for (const text of attempt.audit) {
      const [, mark = '', event = ''] = /^(\+ |\d+x )?(.*)$/.exec(text) ?? []
      const count = mark === '+ ' ? -1 : mark === '' ? 1 : Number.parseInt(mark)
      counts.set(event, count < 0 ? -1 : (counts.get(event) ?? 0) + count)
    }
  return counts
}

const ran: Outcome[] = []

async function rows(t: Test, sandbox: Sandbox): Promise<void> {
  const outcomes = (await Promise.all([make(sandbox, 'root'), make(sandbox, 'user')])).flat()
  ran.push(...outcomes)
  const expected = expectedCounts(outcomes)
  const found = await recorded(sandbox)
  for (const { attempt, user, seen } of outcomes) {
    const label = `${attempt.row} ${techniques.get(attempt.row)}: ${attempt.what} (${attempt.client}, ${user})`
    t.match(seen, attempt.seen, label)
  }
  const differ: Record<string, string> = {}
  for (const event of new Set([...expected.keys(), ...found.keys()])) {
    const [want = 0, have = 0] = [expected.get(event), found.get(event)]
    if (want < 0 ? have < 1 : want !== have) differ[event] = `${want} expected, ${have} recorded`
  }
  t.strictSame(differ, {}, 'the audit has these attempts, each for its reason, and no other')
}

void t.test('what the world records would be there if anything got out', async (t) => {
  const said = await world.hostShell(
    `exec 3<>/dev/tcp/198.51.100.201/22; head -n 1 <&3; curl -sk https://198.51.100.202/control; ` +
      'curl -s -m 5 http://[2001:db8::7]/control; echo x > /dev/udp/198.51.100.203/4433; ' +
      'getent hosts control.evil.test; echo x > /dev/tcp/172.17.0.1/2375 || true',
  )
  t.equal(said.match(/this is the outside/g)?.length, 3)
  const { outside, host } = await world.seen()
  for (const target of ['tcp 198.51.100.201:22', 'tcp 2001:db8::7:80', 'udp 198.51.100.203:4433'])
    t.ok(outside.packets[target], target)
  t.ok(outside.names.includes('control.evil.test'))
  t.ok(host.packets['tcp 172.17.0.1:2375'])
  const arrived = served.length
  for (const address of addresses)
    if (!/^(172\.17\.0\.1|192\.168\.77\.5|203\.0\.113\.1)$/.test(address))
      await new Promise((resolve) =>
        net
          .connect((service.address() as net.AddressInfo).port, address)
          .once('close', resolve)
          .resume()
          .end(),
      )
  await until(
    'the service was reached from its own host',
    () => served.length > arrived || addresses.size === 3,
  )
})

void t.test(
  'as root and as a user nothing gets out of a sandbox, and each attempt is told',
  async (t) => {
    const before = await world.seen()
    const reached = served.length
    const inOther = (command: string): Promise<unknown> =>
      wide.run(leases.other, ['sh', '-c', command], { user: 'root' })
    await inOther(
      'touch /tmp/from-another /dev/shm/from-another; setsid python3 -m http.server 5555 >/dev/null 2>&1 &',
    )
    await world.trouble({ kind: 'redirect', location: 'http://198.51.100.66/elsewhere' })
    await t.test('where hosts are allowed', (t) => rows(t, 'open'))
    await t.test('where addresses are vetted', (t) => rows(t, 'strict'))
    await t.test('in another sandbox of the same daemon', (t) => rows(t, 'other'))

    const { outside, host } = await world.seen()
    const reaches = ran.flatMap(({ attempt }) => attempt.reaches ?? [])
    t.strictSame(
      outside.requests.slice(before.outside.requests.length).toSorted(),
      reaches.toSorted(),
      'no request reached the web but those that are allowed',
    )
    t.equal(
      outside.spoken - before.outside.spoken,
      new Set(reaches).size === 0 ? 0 : outside.spoken - before.outside.spoken,
    )
    const came = (now: typeof outside, then: typeof outside): string[] =>
      Object.keys(now.packets).filter((key) => now.packets[key] !== then.packets[key])
    t.strictSame(
      came(outside, before.outside).toSorted(),
      [
        'tcp 198.51.100.70:80',
        'tcp 198.51.100.80:443',
        'tcp 198.51.100.80:80',
        'tcp 198.51.100.9:80',
        'udp 198.51.100.53:53',
      ],
      'no packet but to the allowed hosts, the model and the resolver',
    )
    t.strictSame(came(host, before.host), [], 'none to a service of the host')
    t.equal(served.length, reached, 'nor to one of the host of the engine')
    const allowed = new RegExp(
      `^(${[...names, ...more].map((name) => name.replace('*.', '(real\\.)?')).join('|')})\\.example$`,
    )
    const asked = outside.names.slice(before.outside.names.length)
    t.strictSame(
      asked.filter((name) => !allowed.test(name)),
      [],
      'no name was looked up that is not allowed',
    )
    t.ok(asked.includes('web.example'))
    t.notMatch(outside.text.slice(before.outside.text.length) + host.text, `exfil-${nonce}`)
    t.notMatch(
      host.requests.slice(before.host.requests.length).join('\n'),
      /acme\/other/,
      'an unpinned artifact is not asked for',
    )
  },
)

void t.test('other bytes than the pinned ones are passed to nobody', async (t) => {
  const download = (): Promise<{ output: string }> =>
    wide.run(leases.other, [
      ...['curl', '-sS', '-o', '/dev/null', '-w', '%{http_code} %{size_download}'],
      'http://127.0.0.1:8401/acme/other/resolve/main/model.safetensors',
    ])
  const before = (await recorded('other')).get('close hf upstream_bad hub') ?? 0
  await world.trouble({ kind: 'corrupt' })
  t.notMatch((await download()).output, /^200 5000$/)
  t.equal((await recorded('other')).get('close hf upstream_bad hub'), before + 1)
  t.match((await download()).output, /^200 5000$/, 'and the next one gets the right ones')
})

void t.test('no field of a lease opens it', async (t) => {
  const containers = await wide.containers()
  const specifications: object[] = [
    { privileged: true },
    { network: 'host' },
    { hostNetwork: true },
    { pid: 'host' },
    { devices: ['/dev/kmsg'] },
    { mounts: [{ source: '/var/run/docker.sock', target: '/var/run/docker.sock' }] },
    { mounts: [{ bundle, target: '/proc/sys' }] },
    { capabilities: ['NET_ADMIN'] },
    { capabilities: ['SYS_ADMIN'] },
    { policy: { version: 1, mode: 'open' } },
    { policy: { version: 1, connect: { allow: ['*'] } } },
  ]
  for (const specification of specifications) {
    const refusal = await wide.lease(specification).catch((error: unknown) => error)
    t.match(refusal, { blame: /caller|operator/ }, JSON.stringify(specification))
  }
  t.equal(await wide.containers(), containers)
})

void t.test('a sandbox whose log is full is closed', async (t) => {
  await strict
    .python(
      leases.strict,
      `
import http.client, json
for n in range(3000):
    try:
        c = http.client.HTTPConnection('127.0.0.1', 3128, timeout=5)
        c.request('GET', f'http://full-{n}.example/', headers={'Host': f'full-{n}.example'})
        c.getresponse().read(); c.close()
    except OSError: break
print(json.dumps(n))
`,
    )
    .catch(() => null)
  const view = await until('the lease is closed', async () => {
    const { leases: all } = { leases: await strict.daemon.client.leases() }
    return all.every(({ lease, state }) => lease !== leases.strict || state === 'closed')
  })
  t.ok(view)
  t.equal(await strict.containers(), 0)
  const events = await strict.audit(leases.strict)
  t.strictSame(
    events.filter(({ action }) => action === 'allow'),
    [],
  )
  t.ok(events.length > 100)
})

void t.test('a killed daemon leaves nothing open, and its log goes on', async (t) => {
  const lease = await wide.lease(request('acme/tiny'))
  const pid = await wide.pidOf(lease)
  const last = (await wide.audit(lease)).at(-1)?.seq ?? 0
  const before = await world.seen()
  await wide.daemon.kill()
  const tries = await Promise.all(
    [
      '-x http://127.0.0.1:3128 https://web.example',
      '--noproxy * https://198.51.100.80',
      '--noproxy * http://198.51.100.80:81',
      '--noproxy * http://127.0.0.1:8401/acme/tiny/resolve/main/config.json',
    ].map(async (args) =>
      run('nsenter', [
        `--net=/proc/${pid}/ns/net`,
        'curl',
        '-sSk',
        '-m',
        '5',
        ...args.split(' '),
      ]).then(
        ({ stdout }) => stdout,
        (error: { stderr: string }) => error.stderr,
      ),
    ),
  )
  for (const words of tries) t.match(words, /refused|reset|connect to/i)
  const { outside, host } = await world.seen()
  t.strictSame([outside.packets, host.packets], [before.outside.packets, before.host.packets])
  await wide.daemon.start()
  const { output } = await wide.run(lease, ['curl', '-sSk', 'https://web.example/again'])
  t.match(output, 'this is the outside')
  const events = await Array.fromAsync(wide.daemon.client.audit(lease))
  t.ok((events.at(-1)?.seq ?? 0) > last)
  t.strictSame(
    events.map(({ seq }) => seq),
    events.map((_, n) => n + 1),
  )
  for (const verdict of await wide.daemon.client.auditVerify(lease))
    t.ok(verdict.ok, JSON.stringify(verdict).slice(0, 300))
})

void t.test(
  'the table in the threat model is this catalogue, and every row has its attempt',
  async (t) => {
    t.ok(await pageIsCurrent(), 'node --no-warnings test/escape/table.ts writes it')
    for (const [row, technique] of techniques)
      t.ok(
        [...list, ...otherRows].some((one) => one.row === row),
        `${row} ${technique}`,
      )
    for (const { row } of [...list, ...otherRows]) t.ok(techniques.has(row), String(row))
  },
)
