/** A large artifact, scaled down, through the gateways of many leases over one cache. */
import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import http from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import t from 'tap'
import { large, StandInHub } from '../../../support/hub.ts'
import { startGateways } from '../../../support/hub-gateway.ts'
import { until } from './world.ts'

const bytes = 40_000_000
const file = 'model-00001-of-00001.safetensors'

interface Download {
  readonly received: number
  /** Of what came; null where the connection broke. */
  readonly sha256: string | null
}

async function download(port: number, path: string, from = 0): Promise<Download> {
  const request = http.request({
    host: '127.0.0.1',
    port,
    path,
    agent: false,
    headers: from > 0 ? { range: `bytes=${from}-` } : {},
  })
  request.end()
  const hash = createHash('sha256')
  let received = 0
  try {
    const [response] = (await once(request, 'response')) as [http.IncomingMessage]
    for await (const chunk of response as AsyncIterable<Buffer>) {
      hash.update(chunk)
      received += chunk.length
    }
    return { received, sha256: hash.digest('hex') }
  } catch {
    return { received, sha256: null }
  }
}

t.test(
  'eight leases, one fetch; killed half-way, the next daemon fetches the rest alone',
  async (t) => {
    await using undo = new AsyncDisposableStack()
    const directory = await mkdtemp(join(tmpdir(), 'shared-'))
    undo.defer(() => rm(directory, { recursive: true, force: true }))
    const standIn = undo.use(await StandInHub.open())
    const commit = standIn.add('acme/large', { [file]: large(bytes) })
    const { sha256 } = standIn.file('acme/large', file)
    const path = `/acme/large/resolve/main/${file}`
    const spec = {
      endpoint: standIn.endpoint,
      fileHosts: [standIn.fileHost],
      directory,
      maxBytes: 1e9,
      repo: 'acme/large',
      revision: commit,
      leases: 8,
    }
    const half = bytes / 2
    standIn.troubles.push({ kind: 'hold', after: half, release: new Promise(() => {}) })
    {
      await using gateways = await startGateways(spec)
      const downloads = gateways.ports.map(async (port) => download(port, path))
      await until(() => standIn.bytesSent === half)
      // What the Hub has sent is on its way to the disk.
      const { fetching, misses, joins } = await gateways.stats()
      t.match({ fetching, misses, joins }, { fetching: 1, misses: 1, joins: 7 })
      await gateways.kill()
      for (const { received, sha256: whole } of await Promise.all(downloads)) {
        t.ok(received < bytes)
        t.equal(whole, null, 'nobody takes the half for the whole')
      }
    }
    t.equal(standIn.fileRequests.length, 1, 'one fetch for eight')
    await using gateways = await startGateways(spec)
    const resumed = await Promise.all(gateways.ports.map(async (port) => download(port, path)))
    for (const one of resumed) t.same(one, { received: bytes, sha256 })
    t.equal(standIn.fileRequests.length, 2)
    const second = standIn.fileRequests[1]
    t.match(second?.headers.range, /^bytes=[1-9]\d+-$/, 'from where the dead one was')
    t.match(second?.headers['if-range'], /^"s3-/, 'if it is still the same')
    t.ok(
      standIn.bytesSent < bytes * 1.2,
      `${standIn.bytesSent} bytes left the Hub for a file of ${bytes}`,
    )
    const [port = 0] = gateways.ports
    t.same(await download(port, path), { received: bytes, sha256 }, 'and from the cache')
    t.equal(standIn.fileRequests.length, 2)
  },
)
