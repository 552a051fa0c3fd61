/** What a policy opens is open, for the programs that ask the proxy and for those that don't; the rest stays shut. */
import { execFile } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import http from 'node:http'
import type net from 'node:net'
import os from 'node:os'
import path from 'node:path'
import tls from 'node:tls'
import { promisify } from 'node:util'
import t from 'tap'
import { pack } from 'tar-stream'
import type { RecordedCall } from '../../../daemon/protocol/recording.ts'
import { eventLine, SandboxWorld } from './setup.ts'

const folder = await mkdtemp(path.join(os.tmpdir(), 'exits-'))
t.teardown(() => rm(folder, { recursive: true, force: true }))
const body = 'a model artifact\n'.repeat(4096)
const asked: string[] = []

async function origins(): Promise<{ tls: number; http: number }> {
  const [key, cert] = [path.join(folder, 'key.pem'), path.join(folder, 'cert.pem')]
  await promisify(execFile)('openssl', [
    ...['req', '-x509', '-days', '2', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1'],
    ...['-nodes', '-keyout', key, '-out', cert, '-subj', '/CN=allowed.example'],
    ...['-addext', 'subjectAltName=DNS:allowed.example'],
  ])
  const answer = (request: http.IncomingMessage, response: http.ServerResponse): void => {
    asked.push(`${request.method} ${request.headers.host}${request.url}`)
    request.resume().once('end', () => response.end(body))
  }
  const secure = http.createServer(answer)
  const terminator = tls.createServer(
    { key: await readFile(key), cert: await readFile(cert) },
    (socket) => secure.emit('connection', socket),
  )
  const plain = http.createServer(answer)
  const listen = async (server: net.Server): Promise<number> => {
    server.listen(0, '127.0.0.1')
    await once(server, 'listening')
    t.teardown(() => server.close())
    return (server.address() as net.AddressInfo).port
  }
  return { tls: await listen(terminator), http: await listen(plain) }
}
const ports = await origins()
const world = await SandboxWorld.open({
  egress: {
    allowPrivateAddresses: true,
    hosts: {
      'allowed.example': `127.0.0.1:${ports.tls}`,
      'plain.example': `127.0.0.1:${ports.http}`,
      'denied.example': `127.0.0.1:${ports.tls}`,
    },
  },
})
t.teardown(() => world[Symbol.asyncDispose]())
const { client } = world.daemon

void t.test(
  'an allowed host is reached by the proxy and without it, another by neither',
  async (t) => {
    const lease = await world.lease({
      policy: {
        version: 1,
        connect: { allow: ['allowed.example', 'plain.example'], ports: [80, 443] },
      },
    })
    const cert = await readFile(path.join(folder, 'cert.pem'), 'utf8')
    await world.run(lease, ['sh', '-c', 'printf %s "$0" > /tmp/ca.pem', cert])
    const curl = async (...args: string[]): Promise<string> => {
      const { output, end } = await world.run(lease, [
        ...['curl', '-sS', '--max-time', '10', '--cacert', '/tmp/ca.pem', ...args],
      ])
      return output === body ? 'the artifact' : `${JSON.stringify(end.exit)} ${output.trim()}`
    }
    const proxy = ['-x', 'http://127.0.0.1:3128']
    const rows: readonly (readonly [
      what: string,
      args: string[],
      result: RegExp,
      audit: string[],
    ])[] = [
      [
        'CONNECT',
        [...proxy, 'https://allowed.example/one'],
        /^the artifact$/,
        [
          'decision connect allowed.example - 443 allow allowed_host x1',
          'close connect allowed.example - 443 none none x1',
        ],
      ],
      [
        'absolute form',
        [...proxy, 'http://plain.example/two'],
        /^the artifact$/,
        [
          'decision http plain.example - 80 allow allowed_host x1',
          'close http plain.example - 80 none none x1',
        ],
      ],
      [
        'TLS by itself',
        ['--noproxy', '*', 'https://allowed.example/three'],
        /^the artifact$/,
        [
          'decision dns allowed.example - 53 allow allowed_host x1',
          'decision dns allowed.example - 53 allow allowed_host x1',
          'decision tls allowed.example 198.1 443 allow allowed_host x1',
          'close tls allowed.example 198.1 443 none none x1',
        ],
      ],
      [
        'HTTP by itself',
        ['--noproxy', '*', 'http://plain.example/four'],
        /^the artifact$/,
        [
          'decision dns plain.example - 53 allow allowed_host x1',
          'decision dns plain.example - 53 allow allowed_host x1',
          'decision http plain.example 198.1 80 allow allowed_host x1',
          'close http plain.example 198.1 80 none none x1',
        ],
      ],
      [
        'an allowed name at a port that is not',
        ['--noproxy', '*', 'https://allowed.example:8443/'],
        /Could not connect|reset/,
        [
          'decision dns allowed.example - 53 allow allowed_host x1',
          'decision dns allowed.example - 53 allow allowed_host x1',
          'census tcp allowed.example 198.1 8443 deny direct_tcp x1',
        ],
      ],
      [
        'another host by CONNECT',
        [...proxy, 'https://denied.example/'],
        /403/,
        ['decision connect denied.example - 443 deny not_allowed_host x1'],
      ],
      [
        'another host by absolute form',
        [...proxy, 'http://denied.example/'],
        /not_allowed_host/,
        ['decision http denied.example - 80 deny not_allowed_host x1'],
      ],
      [
        'another host by itself',
        ['--noproxy', '*', 'https://denied.example/'],
        /not resolve/,
        [
          'decision dns denied.example - 53 deny dns_query x1',
          'decision dns denied.example - 53 deny dns_query x1',
        ],
      ],
      [
        "another host's name on the allowed one's connection",
        [
          '--noproxy',
          '*',
          '--connect-to',
          'denied.example:443:198.51.100.7:443',
          'https://denied.example/',
        ],
        /access denied/,
        ['decision tls denied.example 198.51 443 deny not_allowed_host x1'],
      ],
    ]
    let seen = 0
    for (const [what, args, result, lines] of rows) {
      t.match(await curl(...args), result, what)
      const events = await world.audit(lease)
      const told = events.slice(seen).map((event) =>
        eventLine({ ...event, detail: undefined } as typeof event)
          .replace(/ 198\.1[89]\.\d+\.\d+ /, ' 198.1 ')
          .replace(/ 198\.51\.\d+\.\d+ /, ' 198.51 '),
      )
      seen = events.length
      t.strictSame(told, lines, what)
    }
    t.strictSame(asked, [
      'GET allowed.example/one',
      'GET plain.example/two',
      'GET allowed.example/three',
      'GET plain.example/four',
    ])
    for (const { kind, bytesUp, bytesDown, connection } of await world.audit(lease)) {
      if (kind !== 'close') continue
      t.ok(bytesUp > 0 && bytesDown >= body.length, `${bytesUp} up, ${bytesDown} down`)
      t.type(connection, 'number')
    }
    await client.closeLease(lease, 'done')
  },
)

const key = `sk-${crypto.randomUUID()}`
const usage = { prompt_tokens: 100, completion_tokens: 10, total_tokens: 110 }
const recorded = (n: number): RecordedCall => ({
  v: 1,
  n,
  api: 'openai.chat',
  request: { model: 'm-1', assistantTurns: 0 },
  response: {
    status: 200,
    headers: {},
    body: {
      id: `c-${n}`,
      object: 'chat.completion',
      created: 1,
      model: 'm-1',
      choices: [
        { index: 0, message: { role: 'assistant', content: `answer ${n}` }, finish_reason: 'stop' },
      ],
      usage: {
        ...usage,
        prompt_tokens_details: { cached_tokens: 0 },
        completion_tokens_details: { reasoning_tokens: 0 },
      },
    },
  },
  latencyMs: 0,
})
const price = { inputPerMillionUsd: 10, cachedInputPerMillionUsd: 1, outputPerMillionUsd: 100 }

/** Asks the model and prints status and text; then whatever of the environment and the files looks like a key. */
const ask = `
import json, sys, urllib.request, urllib.error
def call(model='m-1', **more):
    body = json.dumps({'model': model, 'messages': [{'role': 'user', 'content': 'hi'}], **more}).encode()
    request = urllib.request.Request('http://127.0.0.1:8400/v1/chat/completions', body,
      {'content-type': 'application/json', 'authorization': 'Bearer placeholder'})
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return [answer.status, json.load(answer)['choices'][0]['message']['content']]
    except urllib.error.HTTPError as error:
        return [error.code, json.load(error)['error']['code']]
    except OSError as error:
        return [0, type(error).__name__]
print(json.dumps(eval(sys.argv[1])))
`

void t.test(
  'the model gateway is the only way to a model, within its budget, until the freeze',
  async (t) => {
    const tar = pack()
    tar.entry({ name: 'r.jsonl' }, [0, 1, 2, 3].map((n) => JSON.stringify(recorded(n))).join('\n'))
    tar.finalize()
    const bundle = await client.putBundle(
      Buffer.concat(await Array.fromAsync(tar as AsyncIterable<Buffer>)),
    )
    const lease = await world.lease({
      model: {
        upstream: { kind: 'replay', bundle, path: 'r.jsonl' },
        model: 'm-1',
        price,
        budget: { calls: 2 },
      },
    })
    const asked = (calls: string): Promise<unknown> => world.python(lease, ask, [calls])
    t.strictSame(await asked("call(model='other')"), [404, 'model_denied'])
    t.strictSame(await asked('[call(), call(), call()]'), [
      [200, 'answer 0'],
      [200, 'answer 1'],
      [401, 'budget_spent'],
    ])
    const spent = await client.usage(lease)
    t.match(spent, { calls: 2, inputTokens: 200, outputTokens: 20, budgetSpent: true })
    t.equal(spent.costUsd, (200 * 10 + 20 * 100) / 1e6)
    await client.freeze(lease)
    t.strictSame(
      (await world.audit(lease))
        .map((event) => `${event.protocol} ${event.action} ${event.reason}`)
        .filter((line) => !line.includes('none')),
      [
        'model deny model_denied',
        'model allow allowed_gateway',
        'model allow allowed_gateway',
        'model deny budget_spent',
      ],
    )
    t.equal((await client.exchanges(lease)).trim().split('\n').length, 2)
    await client.closeLease(lease, 'done')
  },
)

void t.test("the provider's key is nowhere in the sandbox, and no answer tells it", async (t) => {
  const provider = http.createServer((request, response) => {
    response.writeHead(200, {
      'content-type': 'application/json',
      'x-echo': request.headers.authorization,
    })
    request.resume().once('end', () => response.end(JSON.stringify(recorded(0).response.body)))
  })
  const seen: (string | undefined)[] = []
  provider.on('request', (request) => seen.push(request.headers.authorization))
  provider.listen(0, '127.0.0.1')
  await once(provider, 'listening')
  t.teardown(() => provider.close())
  const { port } = provider.address() as net.AddressInfo
  const lease = await world.lease({
    model: {
      upstream: { kind: 'openai', baseUrl: `http://127.0.0.1:${port}/v1`, apiKey: key },
      model: 'm-1',
      price,
    },
  })
  t.strictSame(await world.python(lease, ask, ['call()']), [200, 'answer 0'])
  t.strictSame(seen, [`Bearer ${key}`])
  const search = `
import os, sys
found, key = [], ''.join(reversed(sys.argv[1])).encode()
def look(path):
    try:
        with open(path, 'rb') as f:
            if key in f.read(1 << 20): found.append(path)
    except OSError: pass
for pid in filter(str.isdigit, os.listdir('/proc')):
    for name in ('environ', 'cmdline', 'mountinfo'): look(f'/proc/{pid}/{name}')
for top in ('/.closedbook', '/etc', '/run', '/tmp', '/root', '/home', '/var', '/dev/shm', '/workspace'):
    for folder, _, names in os.walk(top):
        for name in names: look(os.path.join(folder, name))
print(repr(found))
`
  const reversed = key.split('').toReversed().join('')
  t.match((await world.run(lease, ['python3', '-c', search, reversed])).output, /^\[\]$/m)
  const headers = await world.run(lease, [
    ...[
      'curl',
      '-si',
      'http://127.0.0.1:8400/v1/chat/completions',
      '-H',
      'content-type: application/json',
    ],
    ...['-d', '{"model":"m-1","messages":[{"role":"user","content":"hi"}]}'],
  ])
  t.match(headers.output, /^HTTP\/1\.1 200/)
  t.notMatch(headers.output, key)
  for (const told of [
    JSON.stringify(await client.lease(lease)),
    await client.exchanges(lease),
    JSON.stringify(await world.audit(lease)),
    await readFile(path.join(world.daemon.stateDir, 'leases', 'open', `${lease}.json`), 'utf8'),
  ])
    t.notMatch(told, key)
  await client.closeLease(lease, 'done')
})
