/**
 * The artifact cache: a hit through the gateway against nginx serving the same file (curl for both, in turns), and eight
 * leases that want one large artifact which nobody has: one fetch from the stand-in Hub, then killed half-way and taken
 * up again. Options: --mib (1024), --rounds (7). The Hub is a process of its own, so that its work isn't counted as ours.
 */
import { fork, spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { chmod, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import net from 'node:net'
import os from 'node:os'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { findProgram } from '../../runner/host/private-engine.ts'
import { large, StandInHub } from '../support/hub.ts'
import { startGateways } from '../support/hub-gateway.ts'
import { bench, median, option, short, spread, timed, type Report } from './support.ts'

const self = fileURLToPath(import.meta.url)
const repo = 'acme/large'
const file = 'model.safetensors'
const leases = 8

interface HubFacts {
  readonly endpoint: string
  readonly fileHost: string
  readonly commit: string
  readonly sha256: string
}

const size = (bytes: number): string => `${short(bytes / 1024 ** 2)} MiB`
const rate = (bytes: number, ms: number): string => `${short(bytes / ms / 1000)} MB/s`

if (process.argv[2] === 'hub') await serveHub(Number(process.argv[3]))
else await bench('artifacts', measure)

async function serveHub(bytes: number): Promise<void> {
  const hub = await StandInHub.open()
  const commit = hub.add(repo, { [file]: large(bytes) })
  const { sha256 } = hub.file(repo, file)
  process.on('message', () =>
    process.send?.({ fetches: hub.fileRequests.length, bytes: hub.bytesSent }),
  )
  process.once('disconnect', () => process.exit())
  process.send?.({ endpoint: hub.endpoint, fileHost: hub.fileHost, commit, sha256 })
}

async function measure(report: Report): Promise<void> {
  const bytes = option('mib', 1024) * 1024 ** 2
  await using undo = new AsyncDisposableStack()
  const child = fork(self, ['hub', String(bytes)], { execArgv: ['--no-warnings'] })
  undo.defer(() => end(child))
  const [hub] = (await once(child, 'message')) as [HubFacts]
  const sent = async (): Promise<{ fetches: number; bytes: number }> => {
    const answered = once(child, 'message')
    child.send('sent')
    return ((await answered) as [{ fetches: number; bytes: number }])[0]
  }
  const directory = await mkdtemp(path.join(os.tmpdir(), 'cbb-artifacts-'))
  undo.defer(() => rm(directory, { recursive: true, force: true }))
  const spec = {
    endpoint: hub.endpoint,
    fileHosts: [hub.fileHost],
    directory: path.join(directory, 'cache'),
    maxBytes: 4 * bytes,
    repo,
    revision: hub.commit,
    leases,
  }
  const urlOf = (port: number): string => `http://127.0.0.1:${port}/${repo}/resolve/main/${file}`

  const straight = await timed(() => curl(`http://${hub.fileHost}/${hub.sha256}`, bytes))
  const before = await sent()
  await using gateways = await startGateways(spec)
  const cold = await timed(() =>
    Promise.all(gateways.ports.map((port) => curl(urlOf(port), bytes))),
  )
  const after = await sent()
  report.bar({
    what: `fetches from the Hub for ${leases} leases that want the same ${size(bytes)}`,
    value: after.fetches - before.fetches,
    unit: 'fetches',
    atMost: 1,
  })
  report.figure(
    `${leases} leases, cold, all whole`,
    `${short(cold.ms / 1000)} s, ${rate(bytes, cold.ms)} from the Hub (straight and alone: ${rate(bytes, straight.ms)})`,
  )

  await gateways.kill()
  await rm(path.join(spec.directory, 'blobs'), { recursive: true })
  const killed = await startGateways(spec)
  const start = await sent()
  const broken = killed.ports.map((port) => curl(urlOf(port), bytes).catch(() => 'broken'))
  while ((await sent()).bytes - start.bytes < bytes / 2)
    await new Promise((resolve) => setTimeout(resolve, 10))
  await killed.kill()
  const ends = await Promise.all(broken)
  if (ends.some((one) => one !== 'broken')) throw new Error('a download survived its gateway')
  await using resumed = await startGateways(spec)
  await Promise.all(resumed.ports.map((port) => curl(urlOf(port), bytes)))
  report.bar({
    what: 'killed half-way and resumed: bytes from the Hub for each byte of the artifact',
    value: ((await sent()).bytes - start.bytes) / bytes,
    unit: 'x',
    atMost: 1.2,
  })

  const [port = 0] = resumed.ports
  await hits(report, { url: urlOf(port), bytes, directory, rounds: option('rounds', 7) }, undo)
  const { hits: served } = await resumed.stats()
  const memory = await readFile(`/proc/${resumed.child.pid}/status`, 'utf8')
  const peak = /VmHWM:\s*(\d+) kB/.exec(memory)?.[1] ?? '?'
  report.figure(
    'memory of the gateways, at most',
    `${short(Number(peak) / 1024)} MB after ${served} hits`,
  )
}

async function hits(
  report: Report,
  spec: { url: string; bytes: number; directory: string; rounds: number },
  undo: AsyncDisposableStack,
): Promise<void> {
  const { url, bytes, directory, rounds } = spec
  const blobs = path.join(directory, 'cache', 'blobs')
  const [blob = ''] = await readdir(blobs)
  const nginx = await startNginx(directory, blobs, undo)
  const ways: Record<string, string> = {
    ours: url,
    ...(nginx === null ? {} : { nginx: `http://127.0.0.1:${nginx}/${blob}` }),
  }
  const rates = new Map<string, number[]>(Object.keys(ways).map((name) => [name, []]))
  for (let round = 0; round < rounds; round++)
    for (const [name, where] of Object.entries(ways)) {
      const { ms } = await timed(() => curl(where, bytes))
      rates.get(name)?.push(bytes / ms / 1000)
    }
  const ours = rates.get('ours') ?? []
  if (nginx === null) {
    report.figure('a hit', `${spread(ours, 'MB/s')}; nginx is not installed: apt-get install nginx`)
    return
  }
  const theirs = rates.get('nginx') ?? []
  report.bar({
    what: 'artifact cache hit against nginx serving the same file',
    value: median(ours) / median(theirs),
    unit: 'x',
    atLeast: 0.5,
    from: `${short(median(ours))} MB/s against ${short(median(theirs))} MB/s`,
  })
}

/** Rejects unless the whole came. */
async function curl(url: string, bytes: number): Promise<void> {
  const format = '%{http_code} %{size_download}'
  const child = spawn('curl', ['-sS', '-o', '/dev/null', '-w', format, url], {
    stdio: ['ignore', 'pipe', 'ignore'],
  })
  let said = ''
  child.stdout.on('data', (chunk: Buffer) => (said += chunk.toString()))
  const [code] = (await once(child, 'close')) as [number | null]
  if (code !== 0 || said !== `200 ${bytes}`) throw new Error(`curl ended with ${code}: ${said}`)
}

/** Its port; null where it isn't installed. As it comes, but for the log. */
async function startNginx(
  directory: string,
  root: string,
  undo: AsyncDisposableStack,
): Promise<number | null> {
  const nginx = findProgram('nginx')
  if (nginx === null) return null
  const home = await mkdtemp(path.join(os.tmpdir(), 'cbb-nginx-'))
  undo.defer(() => rm(home, { recursive: true, force: true }))
  for (const folder of [directory, home]) await chmod(folder, 0o755)
  const probe = net.createServer().listen(0, '127.0.0.1')
  await once(probe, 'listening')
  const { port } = probe.address() as net.AddressInfo
  probe.close()
  const temporary = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi']
    .map((name) => `${name}_temp_path ${home}/${name};`)
    .join(' ')
  const conf = path.join(home, 'nginx.conf')
  await writeFile(
    conf,
    `daemon off; user root; worker_processes 1; pid ${home}/pid; error_log ${home}/error.log;
events { worker_connections 512; }
http { access_log off; sendfile on; tcp_nopush on; ${temporary}
  server { listen 127.0.0.1:${port}; root ${root}; } }
`,
  )
  const child = spawn(nginx, ['-p', home, '-c', conf], { stdio: 'ignore' })
  undo.defer(async () => {
    // SIGTERM: its worker goes with it.
    if (child.exitCode !== null) return
    const gone = once(child, 'exit')
    child.kill('SIGTERM')
    await gone
  })
  const deadline = performance.now() + 20_000
  while (!(await answers(port))) {
    if (child.exitCode !== null || performance.now() > deadline)
      throw new Error(`nginx did not start: ${await readFile(`${home}/error.log`, 'utf8')}`)
    await new Promise((resolve) => setTimeout(resolve, 50))
  }
  return port
}

function answers(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const probe = net.connect(port, '127.0.0.1')
    probe.once('error', () => resolve(false))
    probe.once('connect', () => {
      probe.destroy()
      resolve(true)
    })
  })
}

async function end(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return
  const gone = once(child, 'exit')
  child.kill('SIGKILL')
  await gone
}
