/**
 * Opens a lease through its phases: journal, container, sealed network, gateways, proof. Each acquisition goes onto
 * one undo stack; a failure in any phase gives back everything and leaves the reason in the journal. `adoptLease`
 * takes over a lease of a daemon that died: the same namespace, new listeners, the same records.
 */
import type { AuditEvent } from '../../policy/audit-event.ts'
import { readAudit } from '../egress/read-audit.ts'
import { ClosedbookError, LeaseError, RequestError } from '../errors.ts'
import type { LeaseRequest } from '../protocol/lease.ts'
import { wantsHuggingFace } from './hugging-face.ts'
import type { LeaseRecord } from './journal.ts'
import { attach, commandDefaults, createContainer, own } from './lease-container.ts'
import type { LeaseDeps } from './lease-deps.ts'
import { auditFile, openRecords } from './lease-records.ts'
import { Lease } from './lease.ts'
import { seal } from './seal-lease.ts'

/** What a policy's limit of bytes counts. */
const passesProxy: ReadonlySet<AuditEvent['protocol']> = new Set(['connect', 'http', 'tls'])

export async function openLease(
  id: string,
  request: LeaseRequest,
  deps: LeaseDeps,
  options: { signal: AbortSignal; onAdmitted: (lease: Lease) => void },
): Promise<Lease> {
  const { signal, onAdmitted } = options
  refuseUnenforceable(request)
  await deps.requireRoom()
  await using undo = new AsyncDisposableStack()
  undo.use(deps.admission.admit(id, request.resources))
  undo.use(await deps.bundles.use(bundlesOf(request)))
  // Returned when the container is gone: what is acquired later is given back before it.
  const gpus =
    request.gpus === 0 ? null : undo.use(await deps.gpus.grant(id, request.gpus, { signal }))
  const parts = { ...(await openRecords(id, request, deps, undo)), gpus }
  const lease = new Lease(id, request, parts, deps, undo.move())
  onAdmitted(lease)
  const watch = phases(lease)
  try {
    await deps.journal.write(lease.record())
    await lease.enter('creating')
    await createContainer(lease, deps, signal)
    watch('create')
    if (request.network === 'sealed') {
      await lease.enter('sealing')
      lease.proving.start('before')
      await seal(lease, deps, { signal })
      watch('seal')
      await lease.enter('proving')
      const { ok, canaries } = await lease.prove('before')
      watch('prove')
      if (!ok)
        throw new LeaseError(
          'proof_failed',
          'infra',
          `the sandbox isn't sealed as it must be: ${canaries
            .filter((canary) => !canary.ok)
            .map(
              ({ canary, seen, audited }) =>
                `${canary} ${audited === false ? 'left no audit event' : `ended with ${seen}`}`,
            )
            .join('; ')}`,
          { facts: { canaries } },
        )
    }
    signal.throwIfAborted()
    await lease.enter('ready')
    return lease
  } catch (error) {
    await lease
      .close(error instanceof ClosedbookError ? error.message : 'opening failed')
      .catch(() => {})
    throw error
  }
}

export async function adoptLease(record: LeaseRecord, deps: LeaseDeps): Promise<Lease> {
  const request: LeaseRequest = record.request
  const container = record.container
  if (container === null) throw new Error('no container was made')
  const state = await deps.engine.inspectContainer(container)
  const image = await deps.engine.inspectImage(request.image)
  if (state.status !== 'running') throw new Error(`its container is ${state.status}`)
  await using undo = new AsyncDisposableStack()
  undo.use(deps.admission.admit(record.lease, request.resources))
  undo.use(await deps.bundles.use(bundlesOf(request)))
  const had = { gpus: record.gpus, nodes: record.gpuNodes }
  const gpus =
    request.gpus === 0 ? null : undo.use(deps.gpus.adopt(record.lease, had, state.deviceIds))
  const adopted: AuditEvent[] = []
  let spentBytes = 0
  for await (const event of readAudit(auditFile(record.lease, deps))) {
    if (event.kind === 'census') adopted.push(event)
    if (event.kind === 'close' && passesProxy.has(event.protocol))
      spentBytes += event.bytesUp + event.bytesDown
  }
  const parts = { ...(await openRecords(record.lease, request, deps, undo)), gpus }
  const lease = new Lease(record.lease, request, parts, deps, undo.move(), record)
  lease.resumeAt(record)
  parts.defaults = commandDefaults(request, image)
  try {
    own(lease, deps, container)
    attach(lease, deps, state.pid, state.upperDir)
    if (request.network === 'sealed')
      await seal(lease, deps, { adopted, spentBytes, hadModel: record.hadModel })
    await lease.ptys.adopt(container)
    parts.audit.append({
      kind: 'lifecycle',
      protocol: 'none',
      action: 'none',
      reason: null,
      detail: 'the daemon was restarted; while it was down every attempt was refused',
    })
    return lease
  } catch (error) {
    await lease.close('could not be adopted after a restart of the daemon').catch(() => {})
    throw error
  }
}

const bundlesOf = ({ mounts, model }: LeaseRequest): string[] => [
  ...mounts.map(({ bundle }) => bundle),
  ...(model?.upstream.kind === 'replay' ? [model.upstream.bundle] : []),
]

/** What this host can't enforce never starts. */
function refuseUnenforceable(request: LeaseRequest): void {
  if (
    request.network === 'offline' &&
    (request.model !== undefined || request.execInto !== undefined || wantsHuggingFace(request))
  )
    throw new RequestError(
      'bad_request',
      'caller',
      'an offline lease has no listeners, so it can have no model, Hugging Face or exec gateway; use network "sealed"',
    )
}

/** Notes how long each phase took, in ms since the previous one. */
function phases(lease: Lease): (phase: string) => void {
  let last = performance.now()
  return (phase) => {
    const now = performance.now()
    lease.timingsMs[phase] = Math.round((now - last) * 10) / 10
    last = now
  }
}
