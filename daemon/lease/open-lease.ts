/**
 * Opens a lease through its phases: journal, container, sealed network, gateways, proof. Each acquisition goes onto
 * one undo stack; a failure in any phase gives back everything and leaves the reason in the journal. `adoptLease`
 * takes over a lease of a daemon that died: the same namespace, new listeners, the same records.
 */
import { writeFileSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import type { Socket } from 'node:net'
import path from 'node:path'
import type { AuditEvent } from '../../policy/audit-event.ts'
import { AuditLog } from '../egress/audit-log.ts'
import { readAudit } from '../egress/read-audit.ts'
import { serveEgress, type Egress } from '../egress/egress.ts'
import { Cgroup } from '../engine/cgroup.ts'
import type { ImageInfo } from '../engine/engine.ts'
import { ClosedbookError, LeaseError, RequestError } from '../errors.ts'
import { ModelGateway } from '../gateway/model.ts'
import { SealedNetwork } from '../network/seal.ts'
import type { LeaseRequest, ModelGatewaySpec } from '../protocol/lease.ts'
import { recordedCallSchema, type RecordedCall } from '../protocol/recording.ts'
import { leaseLabels } from '../engine/labels.ts'
import { DiskWatch } from './disk-watch.ts'
import { EventLog } from './event-log.ts'
import { ExecGateway } from './exec-gateway.ts'
import { openHuggingFace, wantsHuggingFace } from './hugging-face.ts'
import type { LeaseRecord } from './journal.ts'
import type { LeaseDeps } from './lease-deps.ts'
import { Lease } from './lease.ts'
import { readPastCalls } from './past-calls.ts'
import type { LeaseParts } from './lease-parts.ts'

/** What a policy's limit of bytes counts. */
const passesProxy: ReadonlySet<AuditEvent['protocol']> = new Set(['connect', 'http', 'tls'])
const appearPollMs = 20
const appearLimitMs = 600_000
/**
 * PID 1 holds the namespaces and outlives the freeze, so that nobody inside may signal, trace or write to it: it runs
 * as a user that no image has, and without capabilities not even root in the sandbox can touch another's process.
 * Where a task declares capabilities, PID 1 is root, for the engine gives them to no command of a container whose
 * user isn't; a root agent can then end its own sandbox, and that counts as its own doing.
 */
const initUser = '65333:65333'

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

const auditFile = (id: string, deps: LeaseDeps): string =>
  path.join(deps.directories.audit, `${id}.jsonl`)

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

async function openRecords(
  id: string,
  request: LeaseRequest,
  deps: LeaseDeps,
  undo: AsyncDisposableStack,
): Promise<LeaseParts> {
  const events = undo.use(
    await EventLog.open(id, path.join(deps.directories.events, `${id}.jsonl`)),
  )
  const auditWatchers = new Set<(event: AuditEvent) => void>()
  const audit = undo.use(
    await AuditLog.open(auditFile(id, deps), {
      lease: id,
      trial: request.trial ?? null,
      onEvent: (event) => {
        for (const watcher of auditWatchers) watcher(event)
      },
    }),
  )
  auditWatchers.add((event) => {
    if (event.action !== 'deny' || event.canary === true || event.kind === 'close') return
    const target = event.host ?? event.address ?? 'unknown'
    events.append({
      type: 'egress.denied',
      seq: event.seq,
      protocol: event.protocol,
      target: event.port === null ? target : `${target}:${event.port}`,
      reason: event.reason ?? 'internal_error',
    })
  })
  return {
    container: null,
    pid: 0,
    gpus: null,
    defaults: { user: '0', workdir: '/' },
    upperDir: null,
    cgroup: null,
    network: null,
    audit,
    auditWatchers,
    events,
    model: null,
    modelListener: null,
    huggingFace: null,
    artifact: null,
    execGateway: null,
    disk: null,
  }
}

async function createContainer(lease: Lease, deps: LeaseDeps, signal: AbortSignal): Promise<void> {
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

const commandDefaults = (request: LeaseRequest, image: ImageInfo): LeaseParts['defaults'] => ({
  user: request.user ?? (image.user || '0'),
  workdir: request.workdir ?? (image.workdir || '/'),
})

/** From here on the container is removed with the lease, whatever happens. */
function own(lease: Lease, deps: LeaseDeps, container: string): void {
  lease.parts.container = container
  lease.owned.defer(() => deps.engine.removeContainer(container))
}

function attach(lease: Lease, deps: LeaseDeps, pid: number, upperDir: string | null): void {
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

async function seal(
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

/** Until the model is told again a client is refused, and tries once more. */
const closeAtOnce = (socket: Socket): void => void socket.destroy()

/** For a new lease, or for one whose last gateway ended with its daemon: that one's meter is gone on with. */
export async function openModel(
  lease: Lease,
  spec: ModelGatewaySpec,
  deps: LeaseDeps,
): Promise<void> {
  const { parts } = lease
  const server = parts.modelListener
  if (server === null || parts.model !== null)
    throw new LeaseError(
      'lease_wrong_state',
      'caller',
      `lease ${lease.id} ${server === null ? 'was opened without a model' : 'has its model gateway'}`,
    )
  const exchangesFile = path.join(deps.directories.exchanges, `${lease.id}.jsonl`)
  const gateway = await ModelGateway.open(spec, {
    server,
    audit: parts.audit,
    replay: await readRecording(spec, deps),
    past: lease.state === 'sealing' ? null : await readPastCalls(parts.events, exchangesFile),
    exchangesFile,
    onCall: (event) => parts.events.append(event),
    signal: lease.ended,
  })
  server.removeListener('connection', closeAtOnce)
  parts.model = lease.owned.use(gateway)
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

async function readRecording(
  spec: NonNullable<LeaseRequest['model']>,
  deps: LeaseDeps,
): Promise<RecordedCall[] | null> {
  const { upstream } = spec
  if (upstream.kind !== 'replay') return null
  const root = deps.bundles.pathOf(upstream.bundle)
  const file = path.resolve(root, `./${upstream.path}`)
  const wrong = (why: string): RequestError =>
    new RequestError(
      'bad_request',
      'caller',
      `recording ${upstream.path} of bundle ${upstream.bundle.slice(0, 12)} ${why}`,
    )
  if (!file.startsWith(`${root}${path.sep}`)) throw wrong('lies outside the bundle')
  const text = await readFile(file, 'utf8').catch(() => {
    throw wrong('does not exist')
  })
  return text
    .split('\n')
    .filter((line) => line.trim() !== '')
    .map((line, index) => {
      try {
        return recordedCallSchema.parse(JSON.parse(line))
      } catch (error) {
        throw wrong(`has a bad line ${index + 1}: ${(error as Error).message}`)
      }
    })
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
