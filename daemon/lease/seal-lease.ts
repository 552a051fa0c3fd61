/** Seals the network of a lease and opens what serves its listeners: proxy, DNS, tripwire and the gateways it asked for. */
import type { AuditEvent } from '../../policy/audit-event.ts'
import { serveEgress, type Egress } from '../egress/egress.ts'
import { SealedNetwork } from '../network/seal.ts'
import { ExecGateway } from './exec-gateway.ts'
import { openHuggingFace, wantsHuggingFace } from './hugging-face.ts'
import type { LeaseDeps } from './lease-deps.ts'
import type { Lease } from './lease.ts'
import { closeAtOnce, openModel } from './open-model.ts'

const appearPollMs = 20
const appearLimitMs = 600_000

export async function seal(
  lease: Lease,
  deps: LeaseDeps,
  options: {
    signal?: AbortSignal
    adopted?: readonly AuditEvent[]
    spentBytes?: number
    hadModel?: boolean
  },
): Promise<void> {
  const { parts, request, owned } = lease
  const { execInto } = request
  let nameOf: Egress['nameOf'] = () => null
  const network = owned.use(
    await SealedNetwork.open({
      pid: parts.pid,
      model: request.model !== undefined || options.hadModel === true,
      huggingFace: wantsHuggingFace(request),
      exec: execInto !== undefined,
      onCensus: (record) =>
        void parts.audit.append({ ...record, host: nameOf(record.address ?? '') }),
      ...options,
    }),
  )
  parts.network = network
  const { model, huggingFace, exec, ...listeners } = network.listeners
  const egress = owned.use(
    serveEgress(listeners, {
      policy: request.policy,
      audit: parts.audit,
      counted: true,
      spentBytes: options.spentBytes ?? 0,
      ...deps.egress,
    }),
  )
  nameOf = (address) => egress.nameOf(address)
  if (model !== null) {
    parts.modelListener = model
    if (request.model !== undefined) await openModel(lease, request.model, deps)
    else model.on('connection', closeAtOnce)
  }
  if (huggingFace !== null) await openHuggingFace(lease, deps, huggingFace, options)
  if (execInto !== undefined && exec !== null)
    parts.execGateway = owned.use(
      new ExecGateway(
        exec,
        {
          ready: async (signal) => (await appears(execInto, deps, signal)).waitUntilReady(signal),
          exec: (incoming, socket, head) =>
            deps.getLease(execInto).serveExec(incoming, socket, head, 'harness'),
        },
        execInto,
      ),
    )
}

/** A harness may be opened before its task: the two are sealed side by side. */
async function appears(id: string, deps: LeaseDeps, signal: AbortSignal): Promise<Lease> {
  for (let waited = 0; ; waited += appearPollMs) {
    const lease = deps.findLease(id)
    if (lease !== undefined) return lease
    signal.throwIfAborted()
    if (waited >= appearLimitMs) return deps.getLease(id)
    await new Promise((resolve) => setTimeout(resolve, appearPollMs))
  }
}
