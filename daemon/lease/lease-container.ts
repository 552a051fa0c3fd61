/** The container of a lease: made, owned from the moment it has an id, and watched over. */
import { writeFileSync } from 'node:fs'
import { Cgroup } from '../engine/cgroup.ts'
import type { ImageInfo } from '../engine/engine.ts'
import { leaseLabels } from '../engine/labels.ts'
import { LeaseError } from '../errors.ts'
import type { LeaseRequest } from '../protocol/lease.ts'
import { DiskWatch } from './disk-watch.ts'
import type { LeaseDeps } from './lease-deps.ts'
import type { LeaseParts } from './lease-parts.ts'
import type { Lease } from './lease.ts'

/**
 * PID 1 holds the namespaces and outlives the freeze, so that nobody inside may signal, trace or write to it: it runs
 * as a user that no image has, and without capabilities not even root in the sandbox can touch another's process.
 * Where a task declares capabilities, PID 1 is root, for the engine gives them to no command of a container whose
 * user isn't; a root agent can then end its own sandbox, and that counts as its own doing.
 */
const initUser = '65333:65333'

export async function createContainer(
  lease: Lease,
  deps: LeaseDeps,
  signal: AbortSignal,
): Promise<void> {
  const { request, parts } = lease
  const image = await deps.engine.inspectImage(request.image, { signal })
  // The engine would make each a directory of the host's disk, outside every limit and every archive of the sandbox.
  if (image.volumes.length > 0)
    throw new LeaseError(
      'lease_refused',
      'task',
      `the image declares VOLUME ${image.volumes.join(', ')}, and what is written there would escape the disk limit; build the image without it`,
    )
  parts.defaults = commandDefaults(request, image)
  // Not given up on: the engine would go on with it, and its id be unknown.
  const { id } = await deps.engine.createContainer({
    image: request.image,
    name: `cb-${lease.id}`,
    hostname: request.hostname,
    user: request.capabilities.length === 0 ? initUser : '0',
    workdir: '/',
    env: request.env,
    capabilities: request.capabilities,
    resources: request.resources,
    labels: leaseLabels({
      instance: deps.instance,
      lease: lease.id,
      trial: request.trial ?? null,
      owner: request.owner,
      expiresAt: lease.expiry.at,
    }),
    readOnlyMounts: request.mounts.map(({ bundle, target }) => ({
      source: deps.bundles.pathOf(bundle),
      target,
    })),
    mountRoots: [deps.bundles.directory],
    ...deps.tools,
    ...(parts.gpus === null ? {} : { gpus: parts.gpus.spec }),
  })
  own(lease, deps, id)
  signal.throwIfAborted()
  if (parts.gpus === null) await deps.engine.startContainer(id, { signal })
  else await parts.gpus.starting(id, signal, () => deps.engine.startContainer(id))
  const state = await deps.engine.inspectContainer(id, { signal })
  attach(lease, deps, state.pid, state.upperDir)
  await parts.gpus?.confirm(parts)
}

export const commandDefaults = (
  request: LeaseRequest,
  image: ImageInfo,
): LeaseParts['defaults'] => ({
  user: request.user ?? (image.user || '0'),
  workdir: request.workdir ?? (image.workdir || '/'),
})

/** From here on the container is removed with the lease, whatever happens. */
export function own(lease: Lease, deps: LeaseDeps, container: string): void {
  lease.parts.container = container
  lease.owned.defer(() => deps.engine.removeContainer(container))
}

export function attach(lease: Lease, deps: LeaseDeps, pid: number, upperDir: string | null): void {
  const { parts, request } = lease
  parts.pid = pid
  parts.upperDir = upperDir
  parts.cgroup = Cgroup.ofPid(pid)
  sparePid1(pid)
  const limitBytes = request.resources.diskBytes ?? deps.defaultDiskBytes
  parts.disk = lease.owned.use(
    new DiskWatch(upperDir, {
      limitBytes,
      active: () => (parts.cgroup?.pids().length ?? 0) > 1,
      onLimit: (used) => void lease.killWork(`it wrote ${used}`).catch(() => {}),
    }),
  )
}

/** The kernel's memory killer should pass it over; a daemon that may not say so asks for as much as it may. */
function sparePid1(pid: number): void {
  for (const score of ['-1000', '0'])
    try {
      writeFileSync(`/proc/${pid}/oom_score_adj`, score)
      return
    } catch {
      // CAP_SYS_RESOURCE is missing
    }
}
