/**
 * Gateways of several leases over one cache, in a process of their own that can be killed. Started by `fork` with one
 * argument, a GatewaySpec; says `{ports}` when it serves, and `{stats}` when it is sent anything.
 */
import { fork, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { mkdir } from 'node:fs/promises'
import net, { type AddressInfo } from 'node:net'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import {
  ArtifactCache,
  type CacheStats,
} from '../../daemon/gateway/artifact-cache/artifact-cache.ts'
import { HuggingFaceGateway } from '../../daemon/gateway/hugging-face/gateway.ts'
import { Hub } from '../../daemon/gateway/hugging-face/hub.ts'
import { huggingFaceSchema } from '../../policy/hugging-face.ts'

export interface GatewaySpec {
  readonly endpoint: string
  readonly fileHosts: readonly string[]
  readonly directory: string
  readonly maxBytes: number
  readonly repo: string
  readonly revision: string
  readonly leases: number
}

export interface GatewayProcess extends AsyncDisposable {
  readonly child: ChildProcess
  readonly ports: readonly number[]
  stats(): Promise<CacheStats>
  /** SIGKILL. */
  kill(): Promise<void>
}

const file = fileURLToPath(import.meta.url)

export async function startGateways(spec: GatewaySpec): Promise<GatewayProcess> {
  const child = fork(file, [JSON.stringify(spec)], { execArgv: ['--no-warnings'] })
  const [{ ports }] = (await once(child, 'message')) as [{ ports: number[] }]
  const kill = async (): Promise<void> => {
    if (child.exitCode !== null || child.signalCode !== null) return
    const gone = once(child, 'exit')
    child.kill('SIGKILL')
    await gone
  }
  const stats = async (): Promise<CacheStats> => {
    const answered = once(child, 'message')
    child.send('stats')
    const [message] = (await answered) as [{ stats: CacheStats }]
    return message.stats
  }
  return { child, ports, stats, kill, [Symbol.asyncDispose]: kill }
}

async function serve(spec: GatewaySpec): Promise<void> {
  await mkdir(spec.directory, { recursive: true })
  const cache = await ArtifactCache.open({ directory: spec.directory, maxBytes: spec.maxBytes })
  const { endpoint, fileHosts, repo, revision } = spec
  const hub = await Hub.open({ endpoint, fileHosts, directory: path.join(spec.directory, 'trees') })
  const policy = huggingFaceSchema.parse({ repos: [{ repo, revision }] })
  const ports: number[] = []
  for (let lease = 0; lease < spec.leases; lease++) {
    const server = net.createServer().listen(0, '127.0.0.1')
    await once(server, 'listening')
    let connections = 0
    await HuggingFaceGateway.open(policy, {
      server,
      audit: {
        append: () => undefined,
        nextConnection: () => (connections += 1),
        flush: async () => {},
      },
      hub,
      cache,
      pinsFile: path.join(spec.directory, `${lease}.pins`),
      signal: new AbortController().signal,
    })
    ports.push((server.address() as AddressInfo).port)
  }
  process.on('message', () => process.send?.({ stats: cache.stats() }))
  process.once('disconnect', () => process.exit())
  process.send?.({ ports })
}

if (process.argv[1] === file && process.argv[2] !== undefined)
  await serve(JSON.parse(process.argv[2]) as GatewaySpec)
