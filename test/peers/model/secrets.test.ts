/** A provider that repeats the key wherever it can, and everything that is kept or shown, searched for it. */
import { readdir, readFile } from 'node:fs/promises'
import path from 'node:path'
import t from 'tap'
import { RemoteError } from '../../../daemon/protocol/errors.ts'
import { SandboxWorld } from '../../e2e/sandbox/setup.ts'
import {
  apiKey,
  type Behaviour,
  json,
  namedSse,
  StandInProvider,
} from '../../daemon/gateway/provider.ts'
import { price } from '../../daemon/gateway/setup.ts'
import { blockDelta, message, messageEvents } from '../../daemon/gateway/shapes.ts'

const echo: Behaviour[] = [
  json({ type: 'error', error: { type: 'authentication_error', message: `no: ${apiKey}` } }, 401, {
    'request-id': apiKey,
  }),
  (response) => response.writeHead(500).end(apiKey),
  json(message({ content: [{ type: 'text', text: `your key is ${apiKey}` }] })),
  namedSse([
    ...messageEvents().slice(0, 9),
    blockDelta(1, { type: 'text_delta', text: apiKey }),
    ...messageEvents().slice(9),
  ]),
  (response) => response.socket?.destroy(new Error(apiKey)),
]

/** Every file below, as text. */
async function contents(folder: string): Promise<string[]> {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true })
  return Promise.all(
    entries
      .filter((entry) => entry.isFile())
      .map(async ({ parentPath, name }) => {
        const file = path.join(parentPath, name)
        return `${file}\n${await readFile(file, 'latin1')}`
      }),
  )
}

const ask = `
import json, sys, urllib.request, urllib.error
seen = []
for n in range(5):
    body = {"model": "m-1", "max_tokens": 9, "messages": [{"role": "user", "content": "x"}], "stream": n == 3}
    to = urllib.request.Request("http://127.0.0.1:8400/v1/messages", json.dumps(body).encode(), {"content-type": "application/json"})
    try:
        with urllib.request.urlopen(to) as answer: seen.append([answer.status, str(answer.headers), answer.read().decode()])
    except urllib.error.HTTPError as error:
        seen.append([error.code, str(error.headers), error.read().decode()])
print(json.dumps(seen))
`

void t.test('the key of the provider is nowhere but in the daemon’s memory', async (t) => {
  await using provider = await StandInProvider.open(echo)
  await using world = await SandboxWorld.open()
  const { daemon } = world
  const { client } = daemon
  const upstream = { kind: 'anthropic', baseUrl: provider.baseUrl, apiKey } as const
  const model = { upstream, model: 'm-1', price: { ...price, cacheWriteInputPerMillionUsd: 2 } }
  const shown: unknown[] = []

  const refusals = [
    { ...model, upstream: { ...upstream, url: 'x' } },
    { ...model, upstream: { ...upstream, baseUrl: `http://${apiKey}@127.0.0.1/v1` } },
    { ...model, upstream: { ...upstream, apiKey: `${apiKey}\n` } },
    { ...model, model: 'sonar-pro' },
  ]
  for (const refused of refusals) {
    const error = await world
      .lease({ model: refused as typeof model })
      .catch((cause: unknown) => cause)
    t.ok(error instanceof RemoteError)
    shown.push(String(error), error)
  }

  const lease = await world.lease({ model })
  const answers = (await world.python(lease, ask)) as [number, string, string][]
  t.strictSame(
    answers.map(([status]) => status),
    [401, 500, 200, 200, 502],
  )
  t.match(answers[2]?.[2], 'your key is [removed]')
  shown.push(answers)
  const inside = 'env; cat /proc/1/environ /proc/1/cmdline /proc/net/tcp; ls -la /proc/1/fd'
  shown.push(await world.run(lease, ['sh', '-c', inside]))
  shown.push(await client.lease(lease), await client.usage(lease), await client.leases())
  shown.push(await Array.fromAsync(client.audit(lease)))
  shown.push(await client.exchanges(lease))
  shown.push(await daemon.cli(['audit', lease, '--json']), await daemon.cli(['lease', 'list']))
  for (const file of ['cmdline', 'environ'])
    shown.push(await readFile(`/proc/${daemon.pid}/${file}`, 'latin1'))

  shown.push(await contents(daemon.stateDir))
  await daemon.kill()
  await daemon.start()
  shown.push(await contents(daemon.stateDir), daemon.log)
  const found = JSON.stringify(shown)
  t.match(found, 'exchanges')
  t.ok(found.length > 20_000)
  t.notMatch(found, apiKey)
  t.notMatch(found, apiKey.slice(0, 20))
  t.equal(provider.seen.length, 5)
  t.equal(provider.seen[0]?.headers['x-api-key'], apiKey, 'though it was used')
})
