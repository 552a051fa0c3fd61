/** Routes of the host: health, facts, images, bundles, audit, shutdown. See protocol/api.ts. */
import path from 'node:path'
import { readAudit } from '../egress/read-audit.ts'
import type { Engine } from '../engine/engine.ts'
import { RequestError } from '../errors.ts'
import type { GpuPool } from '../gpu/pool.ts'
import type { Bundles } from '../lease/bundles.ts'
import type { Leases } from '../lease/leases.ts'
import type { HostFacts } from '../protocol/lease.ts'
import { sendJson, type Call, type Router } from './router.ts'

export interface HostRouteDeps {
  readonly leases: Leases
  readonly engine: Engine
  readonly bundles: Bundles
  /** Ids of the leases that a lease or trial id means; throws not_found. */
  readonly leasesOf: (id: string) => Promise<string[]>
  readonly auditDirectory: string
  readonly gpus: GpuPool
  readonly facts: () => HostFacts
  readonly health: () => object
  readonly shutdown: () => void
}

const bundleOf = ({ params }: Call): string => {
  const name = params['sha256'] ?? ''
  if (!/^[0-9a-f]{64}$/.test(name))
    throw new RequestError('bad_request', 'caller', 'a bundle is named by 64 hex digits')
  return name
}

export function addHostRoutes(router: Router, deps: HostRouteDeps): void {
  const { leases, engine, bundles, gpus, facts } = deps

  router.on('GET', '/v1/health', (call) => sendJson(call.response, 200, deps.health()))
  router.on('GET', '/v1/host', (call) => sendJson(call.response, 200, facts()))
  router.on('GET', '/v1/gpus', (call) => sendJson(call.response, 200, gpus.report()))
  router.on('POST', '/v1/gpus/probe', async (call) => {
    await gpus.probe({ force: true })
    sendJson(call.response, 200, gpus.report())
  })

  router.on('GET', '/v1/images', async (call) => {
    const reference = call.url.searchParams.get('reference')
    if (reference === null)
      throw new RequestError('bad_request', 'caller', 'say which image: ?reference=…')
    sendJson(call.response, 200, await engine.inspectImage(reference, { signal: call.signal }))
  })

  router.on('PUT', '/v1/bundles/:sha256', async (call) => {
    await bundles.put(bundleOf(call), call.request, { signal: call.signal })
    sendJson(call.response, 200, { bundle: bundleOf(call) })
  })

  router.on('DELETE', '/v1/bundles/:sha256', async (call) => {
    await bundles.remove(bundleOf(call))
    sendJson(call.response, 200, {})
  })

  router.on('GET', '/v1/audit', async (call) => {
    const { url, response, signal } = call
    const ids = await deps.leasesOf(url.searchParams.get('of') ?? '')
    response.writeHead(200, { 'content-type': 'application/x-ndjson' })
    for (const id of ids) {
      const open = leases.find(id)
      if (open !== undefined) await open.egress()
      for await (const event of readAudit(path.join(deps.auditDirectory, `${id}.jsonl`))) {
        if (signal.aborted) return
        if (!response.write(`${JSON.stringify(event)}\n`))
          await new Promise<void>((resolve) => {
            response.once('drain', resolve)
            response.once('close', resolve)
          })
      }
    }
    response.end()
  })

  router.on('POST', '/v1/shutdown', (call) => {
    sendJson(call.response, 202, { status: 'closing' })
    deps.shutdown()
  })
}
