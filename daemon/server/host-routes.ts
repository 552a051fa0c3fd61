/** Routes of the host: health, facts, images, bundles, shutdown. See protocol/api.ts. */
import type { Engine } from '../engine/engine.ts'
import { RequestError } from '../errors.ts'
import type { GpuPool } from '../gpu/pool.ts'
import type { Bundles } from '../lease/bundles.ts'
import type { HostFacts } from '../protocol/lease.ts'
import { sendJson, type Call, type Router } from './router.ts'

export interface HostRouteDeps {
  readonly engine: Engine
  readonly bundles: Bundles
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
  const { engine, bundles, gpus, facts } = deps

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

  router.on('POST', '/v1/shutdown', (call) => {
    sendJson(call.response, 202, { status: 'closing' })
    deps.shutdown()
  })
}
