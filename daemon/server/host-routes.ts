/** Routes of the host: health, facts, images, bundles, shutdown. See protocol/api.ts. */
import { z } from 'zod'
import type { Engine } from '../engine/engine.ts'
import { exportLabels } from '../engine/labels.ts'
import { RequestError } from '../errors.ts'
import type { GpuPool } from '../gpu/pool.ts'
import type { Bundles } from '../lease/bundles.ts'
import { gpuReportSchema } from '../protocol/gpu.ts'
import { hostFactsSchema, type HostFacts } from '../protocol/lease.ts'
import { readJson, sendJson, type Call, type Router } from './router.ts'

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

  router.on(
    'GET',
    '/v1/health',
    { role: 'view', summary: 'that it serves, with its version and its engine' },
    (call) => sendJson(call.response, 200, deps.health()),
  )
  router.on(
    'GET',
    '/v1/host',
    { role: 'view', summary: 'facts of the host', answer: hostFactsSchema },
    (call) => sendJson(call.response, 200, facts()),
  )
  router.on(
    'GET',
    '/v1/gpus',
    { role: 'view', summary: 'the GPUs of the host, as last seen', answer: gpuReportSchema },
    (call) => sendJson(call.response, 200, gpus.report()),
  )
  router.on(
    'POST',
    '/v1/gpus/probe',
    { role: 'admin', summary: 'looks at the GPUs now', answer: gpuReportSchema },
    async (call) => {
      await gpus.probe({ force: true })
      sendJson(call.response, 200, gpus.report())
    },
  )

  router.on(
    'GET',
    '/v1/images',
    { role: 'view', summary: 'facts of an image of the engine' },
    async (call) => {
      const reference = call.url.searchParams.get('reference')
      if (reference === null)
        throw new RequestError('bad_request', 'caller', 'say which image: ?reference=…')
      sendJson(call.response, 200, await engine.inspectImage(reference, { signal: call.signal }))
    },
  )

  router.on(
    'PUT',
    '/v1/bundles/:sha256',
    {
      role: 'run',
      summary: 'brings a read-only tree, named by the digest of its tar',
      bodyType: 'application/x-tar',
    },
    async (call) => {
      await bundles.put(bundleOf(call), call.request, { signal: call.signal })
      sendJson(call.response, 200, { bundle: bundleOf(call) })
    },
  )

  router.on(
    'POST',
    '/v1/bundles',
    { role: 'run', summary: 'makes a bundle of the file system of an image' },
    async (call) => {
      const { image } = await readJson(call, z.strictObject({ image: z.string().min(1) }))
      const { signal } = call
      const { id } = await engine.inspectImage(image, { signal })
      const labels = exportLabels(facts().instance)
      const bundle = await bundles.putImage(id, () => engine.exportImage(id, { labels }))
      sendJson(call.response, 200, { bundle })
    },
  )

  router.on(
    'DELETE',
    '/v1/bundles/:sha256',
    { role: 'run', summary: 'forgets a bundle that no lease mounts' },
    async (call) => {
      await bundles.remove(bundleOf(call))
      sendJson(call.response, 200, {})
    },
  )

  router.on(
    'POST',
    '/v1/shutdown',
    { role: 'admin', summary: 'closes every lease and ends the daemon', status: 202 },
    (call) => {
      sendJson(call.response, 202, { status: 'closing' })
      deps.shutdown()
    },
  )
}
