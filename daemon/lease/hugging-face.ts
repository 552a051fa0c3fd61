/** The Hugging Face gateway of a lease whose policy pins model repositories; the others have no listener for it. */
import type net from 'node:net'
import path from 'node:path'
import { HuggingFaceGateway } from '../gateway/hugging-face/gateway.ts'
import type { LeaseRequest } from '../protocol/lease.ts'
import type { LeaseDeps } from './lease-deps.ts'
import type { Lease } from './lease.ts'

export const wantsHuggingFace = ({ policy }: LeaseRequest): boolean =>
  (policy.huggingface?.repos.length ?? 0) > 0

/** Throws LeaseError where the artifacts can't be served; an adopted lease was checked when it was opened. */
export async function openHuggingFace(
  { id, request, parts, owned, ended }: Lease,
  { huggingFace, directories, log }: LeaseDeps,
  server: net.Server,
  { signal, adopted }: { signal?: AbortSignal; adopted?: unknown },
): Promise<void> {
  const { huggingface } = request.policy
  if (huggingface === undefined) return
  const gateway = owned.use(
    await HuggingFaceGateway.open(huggingface, {
      server,
      audit: parts.audit,
      ...huggingFace,
      pinsFile: path.join(directories.exchanges, `${id}.pins.json`),
      onFault: (error) => log.error({ leaseId: id, err: error }, 'huggingface.failed'),
      signal: ended,
    }),
  )
  parts.huggingFace = gateway
  if (adopted === undefined) parts.artifact = await gateway.check(signal ?? ended)
}
