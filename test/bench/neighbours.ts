/**
 * One sandbox does what it can to be a burden; what does another one on the same daemon feel of it? The neighbour asks by
 * the proxy and by its model gateway at a steady rate, quiet and disturbed in turns, and the daemon's memory and the
 * audit of the burden are looked at afterwards.
 */
import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFile } from 'node:fs/promises'
import http from 'node:http'
import type { AddressInfo } from 'node:net'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { handshake, records, serverNames } from '../daemon/egress/hellos.ts'
import { TestDaemon } from '../support/daemon.ts'
import type { LeaseRequestInput } from '../../daemon/protocol/lease.ts'
import type { LoadSpec } from './requests.ts'
import { bench, benchEngine, load, median, option, quantile, short } from './support.ts'

type PolicyInput = NonNullable<LeaseRequestInput['policy']>

const run = promisify(execFile)
const generator = fileURLToPath(new URL('requests.ts', import.meta.url))
const ends = fileURLToPath(new URL('tunnel.py', import.meta.url))
const burden = await readFile(new URL('burden.py', import.meta.url), 'utf8')
const host = 'files.example'
const stream = 'stream.example'
const barRatio = 3
const perSecond = 100
const seconds = option('seconds', 6)
const denials = 100_000
const tunnels = 2000
const streamBytes = option('gigabytes', 10) * 1e9
const hello = records(handshake([serverNames(stream)])).toString('hex')

const completion = {
  id: 'chatcmpl-1',
  object: 'chat.completion',
  model: 'bench',
  choices: [{ index: 0, finish_reason: 'stop', message: { role: 'assistant', content: 'yes' } }],
  usage: { prompt_tokens: 900, completion_tokens: 40, total_tokens: 940 },
}

interface Burden {
  readonly what: string
  readonly args: readonly string[]
}

const burdens: readonly Burden[] = [
  {
    what: `${tunnels} tunnels`,
    args: ['tunnels', String(tunnels), `${stream}:443`, hello],
  },
  { what: '500 slow requests', args: ['loris', '500'] },
  { what: `${denials} denials`, args: ['denials', String(denials)] },
  {
    what: `${streamBytes / 1e9} GB in one stream`,
    args: ['stream', `${stream}:443`, hello, String(streamBytes)],
  },
]

await bench('neighbours', async (report) => {
  await using undo = new AsyncDisposableStack()
  const engine = undo.use(await benchEngine(['sglang-cpu']))
  const web = http.createServer((request, response) => {
    request.resume()
    response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(completion))
  })
  web.listen(0, '127.0.0.1')
  await once(web, 'listening')
  undo.defer(() => {
    web.closeAllConnections()
    web.close()
  })
  const { port } = web.address() as AddressInfo
  const source = spawn('python3', [ends, 'serve', String(hello.length / 2)], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  undo.defer(() => void source.kill('SIGKILL'))
  const [line] = (await once(source.stdout, 'data')) as [Buffer]
  const daemon = undo.use(
    await TestDaemon.open(engine.socketPath, {
      egress: {
        allowPrivateAddresses: true,
        hosts: { [host]: `127.0.0.1:${port}`, [stream]: `127.0.0.1:${line.toString().trim()}` },
      },
    }),
  )
  const policy: PolicyInput = { version: 1, connect: { allow: [host, stream], ports: [80, 443] } }
  const neighbour = await daemon.client.openLease({
    image: engine.images.base,
    policy,
    model: {
      upstream: { kind: 'openai', baseUrl: `http://127.0.0.1:${port}/v1`, apiKey: 'none' },
      model: 'bench',
      price: { inputPerMillionUsd: 1, cachedInputPerMillionUsd: 1, outputPerMillionUsd: 1 },
    },
  })
  const noisy = await daemon.client.openLease({ image: engine.images['sglang-cpu'], policy })
  const namespaceOf = async (lease: string): Promise<string> =>
    `--net=/proc/${await engine.docker('inspect', '--format', '{{.State.Pid}}', `cb-${lease}`)}/ns/net`
  const inside = ['nsenter', await namespaceOf(neighbour.lease), '--']

  const base = {
    perSecond: perSecond / 2,
    seconds,
    warm: 20,
    target: '',
    hello: '',
    kind: 'http',
  } as const
  const loads: LoadSpec[] = [
    { ...base, method: 'GET', port: 3128, path: `http://${host}/`, headers: { host }, body: '' },
    {
      ...base,
      method: 'POST',
      port: 8400,
      path: '/v1/chat/completions',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({
        model: 'bench',
        messages: [{ role: 'user', content: 'x'.repeat(4000) }],
      }),
    },
  ]
  const feel = async (): Promise<number[]> =>
    (await Promise.all(loads.map((spec) => ask(spec, inside)))).flat()

  const before = await memory(daemon.pid)
  let most = before
  let peak = before
  const watch = setInterval(() => {
    memory(daemon.pid).then(
      (bytes) => {
        most = Math.max(most, bytes)
        peak = Math.max(peak, bytes)
      },
      () => {},
    )
  }, 200)
  undo.defer(() => clearInterval(watch))
  await feel()
  for (const { what, args } of burdens) {
    most = 0
    const turns: { quiet: number[]; disturbed: number[] }[] = []
    let said = ''
    for (let turn = 0; turn < option('n', 3); turn++) {
      const quiet = await feel()
      const child = start(daemon, noisy.lease, args)
      const disturbed = await feel()
      said = await child.end()
      turns.push({ quiet, disturbed })
    }
    const at = (side: 'quiet' | 'disturbed', part: number): number =>
      median(turns.map((turn) => quantile(turn[side], part)))
    report.bar({
      what: `a neighbour's p99 beside ${what}`,
      value: median(
        turns.map(({ quiet, disturbed }) => quantile(disturbed, 0.99) / quantile(quiet, 0.99)),
      ),
      unit: 'x',
      atMost: barRatio,
      from: `${short(at('disturbed', 0.99))} ms against ${short(at('quiet', 0.99))} ms; medians ${short(at('disturbed', 0.5))} and ${short(at('quiet', 0.5))}; ${said}; the daemon had ${short(most / 2 ** 20)} MB; load ${load()}`,
    })
  }
  report.bar({
    what: "the daemon's memory",
    value: peak / 2 ** 20,
    unit: 'MB',
    atMost: 400,
    from: `${short(before / 2 ** 20)} MB before`,
  })
  const counts = await daemon.client.egress(noisy.lease)
  const asked = denials * option('n', 3)
  const events = await Array.fromAsync(daemon.client.audit(noisy.lease))
  const denied = events
    .filter(({ host: name, kind }) => name === 'denied.example' && kind !== 'close')
    .reduce((total, { count }) => total + count, 0)
  const [verdict] = await daemon.client.auditVerify(noisy.lease)
  report.bar({
    what: 'denials in the audit, of those made',
    value: denied / asked,
    unit: 'x',
    atLeast: 1,
    from: `${denied} of ${asked} in ${events.length} lines; ${counts.attempts} attempts in all; ${verdict?.problems.length ?? '?'} problems`,
  })
  if (denied !== asked || verdict?.problems.length !== 0) throw new Error('the audit is not exact')
})

interface Started {
  end(): Promise<string>
}

/** Runs until it is told to end, or has done what it was to do. */
function start(daemon: TestDaemon, lease: string, args: readonly string[]): Started {
  const output: Buffer[] = []
  const ended = daemon.client.exec(
    lease,
    { argv: ['python3', '-c', burden, ...args, String(seconds + 2)] },
    {
      onStdout: (_, bytes) => void output.push(bytes),
      onStderr: (_, bytes) => void output.push(bytes),
    },
  )
  return {
    end: async () => {
      await ended
      return Buffer.concat(output).toString().trim().split('\n').at(-1) ?? ''
    },
  }
}

async function memory(pid: number): Promise<number> {
  const status = await readFile(`/proc/${pid}/status`, 'utf8')
  return Number(/VmRSS:\s+(\d+)/.exec(status)?.[1] ?? 0) * 1024
}

async function ask(spec: LoadSpec, prefix: readonly string[]): Promise<number[]> {
  const [program, ...rest] = [...prefix, process.execPath, '--no-warnings', generator]
  const { stdout } = await run(program, [...rest, JSON.stringify(spec)], { maxBuffer: 2 ** 26 })
  return JSON.parse(stdout) as number[]
}
