/**
 * What the listeners add to a request at 200 requests a second: the same load generator in the sandbox's network
 * namespace through a listener of the daemon, and straight to the stand-in behind it. In turns, and the median of the
 * turns, for a percentile is what a busy machine spoils first.
 */
import { execFile } from 'node:child_process'
import { once } from 'node:events'
import http from 'node:http'
import net from 'node:net'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { realHello } from '../daemon/egress/hellos.ts'
import { TestDaemon } from '../support/daemon.ts'
import type { LoadSpec } from './requests.ts'
import { bench, benchEngine, cpuMs, median, option, quantile, short } from './support.ts'

const run = promisify(execFile)
const generator = fileURLToPath(new URL('requests.ts', import.meta.url))
const barMs = 3
const perSecond = 200
const warmRequests = 100
const host = 'files.example'
const completion = {
  id: 'chatcmpl-1',
  object: 'chat.completion',
  model: 'bench',
  choices: [{ index: 0, finish_reason: 'stop', message: { role: 'assistant', content: 'yes' } }],
  usage: { prompt_tokens: 900, completion_tokens: 40, total_tokens: 940 },
}
const question = {
  model: 'bench',
  messages: [{ role: 'user', content: 'x'.repeat(4000) }],
}

await bench('latency', async (report) => {
  await using undo = new AsyncDisposableStack()
  const engine = undo.use(await benchEngine())
  const web = await listen(
    undo,
    http.createServer((request, response) => {
      request.resume()
      const body = JSON.stringify(completion)
      response.writeHead(200, { 'content-type': 'application/json' })
      response.end(body)
    }),
  )
  const echo = await listen(
    undo,
    net.createServer((socket) => {
      socket.on('error', () => {})
      socket.once('data', () => socket.write('.'))
    }),
  )
  const daemon = undo.use(
    await TestDaemon.open(engine.socketPath, {
      egress: {
        allowPrivateAddresses: true,
        hosts: { [host]: `127.0.0.1:${web}`, [`tls.${host}`]: `127.0.0.1:${echo}` },
      },
    }),
  )
  const { lease } = await daemon.client.openLease({
    image: engine.images.base,
    policy: { version: 1, connect: { allow: [host, `tls.${host}`], ports: [80, 443] } },
    model: {
      upstream: { kind: 'openai', baseUrl: `http://127.0.0.1:${web}/v1`, apiKey: 'none' },
      model: 'bench',
      price: { inputPerMillionUsd: 1, cachedInputPerMillionUsd: 1, outputPerMillionUsd: 1 },
    },
  })
  const pid = await engine.docker('inspect', '--format', '{{.State.Pid}}', `cb-${lease}`)

  const base = {
    perSecond,
    warm: warmRequests,
    seconds: option('seconds', 5),
    target: '',
    hello: '',
  }
  const get = { ...base, kind: 'http', method: 'GET', headers: {}, body: '' } as const
  const post = {
    ...base,
    kind: 'http',
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(question),
    path: '/v1/chat/completions',
  } as const
  const hello = (await realHello(`tls.${host}`)).toString('hex')
  const plain = { ...get, kind: 'tunnel', path: '', hello } as const
  const cases: { what: string; through: LoadSpec; direct: LoadSpec }[] = [
    {
      what: 'model gateway, chat completion',
      through: { ...post, port: 8400 },
      direct: { ...post, port: web },
    },
    {
      what: 'proxy, plain request',
      through: { ...get, port: 3128, path: `http://${host}/`, headers: { host } },
      direct: { ...get, port: web, path: '/' },
    },
    {
      what: 'proxy, a new tunnel to its first byte',
      through: { ...plain, port: 3128, target: `tls.${host}:443` },
      direct: { ...plain, port: echo },
    },
  ]
  for (const { what, through, direct } of cases) {
    const turns: { through: number[]; direct: number[] }[] = []
    let cpu = 0
    let served = 0
    for (let turn = 0; turn < option('n', 5); turn++) {
      const before = await cpuMs(daemon.pid)
      const taken = await load(through, ['nsenter', `--net=/proc/${pid}/ns/net`, '--'])
      cpu += (await cpuMs(daemon.pid)) - before
      served += taken.length + warmRequests
      turns.push({ through: taken, direct: await load(direct, []) })
    }
    const at = (part: number): string =>
      (['through', 'direct'] as const)
        .map((side) => short(median(turns.map((turn) => quantile(turn[side], part)))))
        .join(' ms against ')
    report.figure(`${what}, median`, `${at(0.5)} ms; CPU of the daemon ${short(cpu / served)} ms`)
    report.bar({
      what: `${what}, added at p99`,
      value: median(
        turns.map((turn) => quantile(turn.through, 0.99) - quantile(turn.direct, 0.99)),
      ),
      unit: 'ms',
      atMost: barMs,
      from: `${at(0.99)} ms, ${turns.length} turns of ${perSecond * base.seconds}`,
    })
  }
})

async function load(spec: LoadSpec, prefix: readonly string[]): Promise<number[]> {
  const argv = [...prefix, process.execPath, '--no-warnings', generator, JSON.stringify(spec)]
  try {
    const { stdout } = await run('env', argv, { maxBuffer: 2 ** 26 })
    return JSON.parse(stdout) as number[]
  } catch (error) {
    const said = (error as { stderr?: string }).stderr ?? String(error)
    throw new Error(`the requests did not all succeed: ${said.trim()}`, { cause: said })
  }
}

async function listen(undo: AsyncDisposableStack, server: net.Server): Promise<number> {
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  undo.defer(() => {
    if (server instanceof http.Server) server.closeAllConnections()
    server.close()
  })
  return (server.address() as net.AddressInfo).port
}
