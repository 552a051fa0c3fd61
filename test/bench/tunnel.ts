/**
 * Bytes through a CONNECT tunnel: a sealed sandbox through the daemon's listener, against squid. Each way has the same
 * two programs at its ends and two TCP connections over loopback; squid's client is in a container of the same image
 * that shares the host's network, since squid can't listen in a sandbox. Nothing leaves the machine.
 */
import { spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { chmod, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import net from 'node:net'
import os from 'node:os'
import path from 'node:path'
import { realHello } from '../daemon/egress/hellos.ts'
import { findProgram } from '../../runner/host/private-engine.ts'
import { TestDaemon } from '../support/daemon.ts'
import { bench, benchEngine, median, option, short } from './support.ts'

const bar = 1
const host = 'files.example'
const mebi = 1024 ** 2
const loads = [
  { what: 'one stream', streams: 1, bytes: 1536 * mebi },
  { what: 'eight streams', streams: 8, bytes: 192 * mebi },
]

await bench('tunnel', async (report) => {
  await using undo = new AsyncDisposableStack()
  const engine = undo.use(await benchEngine())
  const image = engine.images.base
  const program = await readFile(new URL('tunnel.py', import.meta.url), 'utf8')
  const hello = (await realHello(host)).toString('hex')
  const served = await server(undo, program, hello.length / 2)
  const daemon = undo.use(
    await TestDaemon.open(engine.socketPath, {
      egress: { allowPrivateAddresses: true, hosts: { [host]: `127.0.0.1:${served}` } },
    }),
  )
  const { lease } = await daemon.client.openLease({
    image,
    resources: { cpus: os.availableParallelism() },
    policy: { version: 1, connect: { allow: [host] } },
  })
  const squid = await startSquid(undo)
  const plain = await engine.docker(
    ...['run', '-d', '--rm', '--network', 'host', image, 'sleep', 'infinity'],
  )
  undo.defer(async () => void (await engine.docker('rm', '-f', plain)))

  type Way = (streams: number, bytes: number) => Promise<number>
  const ours: Way = async (streams, bytes) => {
    const output: Buffer[] = []
    const args = ['3128', `${host}:443`, hello, String(streams), String(bytes)]
    const end = await daemon.client.exec(
      lease,
      { argv: ['python3', '-c', program, 'fetch', ...args], merged: true },
      { onStdout: (_offset, taken) => void output.push(taken) },
    )
    const text = Buffer.concat(output).toString()
    if (JSON.stringify(end.exit) !== '{"code":0}') throw new Error(`no transfer: ${text}`)
    return rate(text)
  }
  const through = (proxy: number): Way => {
    return async (streams, bytes) => {
      const args = [String(proxy), `127.0.0.1:${served}`, hello, String(streams), String(bytes)]
      return rate(await engine.docker('exec', plain, 'python3', '-c', program, 'fetch', ...args))
    }
  }
  const ways: Record<string, Way> = { ours, direct: through(0) }
  if (squid !== null) ways['squid'] = through(squid)
  else report.figure('squid', 'not installed: apt-get install squid')

  for (const { what, streams, bytes } of loads) {
    const rates: Record<string, number[]> = {}
    for (let turn = 0; turn < option('n', 5) + 1; turn++)
      for (const [name, way] of Object.entries(ways)) {
        // The first turn warms up.
        const got = await way(streams, turn === 0 ? 16 * mebi : bytes)
        if (turn > 0) (rates[name] ??= []).push(got)
      }
    const of = (name: string): number => median(rates[name] ?? [])
    report.figure(`${what}, no proxy`, `${short(of('direct'))} MB/s`)
    if (squid === null) report.figure(what, `${short(of('ours'))} MB/s`)
    else
      report.bar({
        what: `CONNECT tunnel against squid, ${what}`,
        value: of('ours') / of('squid'),
        unit: 'x',
        atLeast: bar,
        from: `${short(of('ours'))} MB/s against ${short(of('squid'))} MB/s`,
      })
  }
})

/** MB/s from `BYTES SECONDS`. */
function rate(text: string): number {
  const [bytes = Number.NaN, seconds = Number.NaN] = text.trim().split(' ').map(Number)
  if (Number.isNaN(bytes / seconds)) throw new Error(`no transfer: ${text}`)
  return bytes / seconds / 1e6
}

async function server(
  undo: AsyncDisposableStack,
  program: string,
  helloBytes: number,
): Promise<number> {
  const child = spawn('python3', ['-c', program, 'serve', String(helloBytes)], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  undo.defer(() => end(child))
  const [line] = (await once(child.stdout, 'data')) as [Buffer]
  return Number(line.toString())
}

/** Its port; null where it isn't installed. No cache, no log: only its tunnel. */
async function startSquid(undo: AsyncDisposableStack): Promise<number | null> {
  const squid = findProgram('squid')
  if (squid === null) return null
  const directory = await mkdtemp(path.join(os.tmpdir(), 'cbb-squid-'))
  undo.defer(() => rm(directory, { recursive: true, force: true }))
  // It works as a user of its own.
  await chmod(directory, 0o777)
  const port = await freePort()
  const file = path.join(directory, 'squid.conf')
  await writeFile(
    file,
    `http_port 127.0.0.1:${port}
http_access allow all
cache deny all
access_log none
cache_log ${directory}/log
pid_filename none
coredump_dir ${directory}
shutdown_lifetime 0 seconds
`,
  )
  const child = spawn(squid, ['-N', '-f', file], { stdio: 'ignore' })
  undo.defer(() => end(child))
  const deadline = performance.now() + 20_000
  while (!(await answers(port))) {
    if (child.exitCode !== null || performance.now() > deadline)
      throw new Error(`squid did not start: ${await readFile(`${directory}/log`, 'utf8')}`)
    await new Promise((resolve) => setTimeout(resolve, 100))
  }
  return port
}

async function end(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return
  const gone = once(child, 'exit')
  child.kill('SIGKILL')
  await gone
}

async function freePort(): Promise<number> {
  const server = net.createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as net.AddressInfo
  server.close()
  await once(server, 'close')
  return port
}

function answers(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const probe = net.connect(port, '127.0.0.1')
    probe.once('connect', () => resolve(true))
    probe.once('error', () => resolve(false))
    probe.once('close', () => probe.destroy())
    probe.once('connect', () => probe.destroy())
  })
}
