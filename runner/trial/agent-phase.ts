/**
 * The agent phase: opens the task's sandbox (and the harness's beside it), lets the harness work, and ends with the
 * frozen sandbox and all that was seen of it. The harness is started while the task's sandbox is still being sealed;
 * its first command waits until that is proven.
 */
import type {
  CanaryResult,
  EgressSummary,
  FreezeReport,
  LeaseRequestInput,
  LeaseView,
  Usage,
} from '../../daemon/protocol/lease.ts'
import { RemoteError } from '../../daemon/protocol/errors.ts'
import type { AuditEvent } from '../../policy/audit-event.ts'
import { RunnerError } from '../errors.ts'
import { worksInside } from '../harness/harness.ts'
import { classifyInsideEnd } from '../harness/inside-ends.ts'
import { classifyEnd, classifyScriptEnd, type End } from '../harness/ends.ts'
import { atifFromSteps, atifFromTrajectory } from '../harness/atif.ts'
import { atifProblems, type Atif } from '../harness/atif-schema.ts'
import { readTrajectory, type TrajectoryRead } from '../harness/trajectory.ts'
import type { Step } from '../step-log.ts'
import type { Reported } from '../result.ts'
import { packageVersion } from '../../daemon/protocol/version.ts'
import { runCollectHooks } from './collect-hooks.ts'
import type { ExecutionContext } from './context.ts'
import { evidenceNames } from './evidence.ts'
import { HeldLease } from './held-lease.ts'
import { huggingFaceEnvironment, leasePolicy } from './hugging-face.ts'
import type { HarnessEnd, HarnessRun } from './harness-run.ts'
import { insideRun } from './inside-run.ts'
import { miniRun } from './mini-run.ts'
import { changedByBoot, needsPreparation, prepareSandbox } from './prepare.ts'
import { scriptRun } from './script-run.ts'
import type { Before } from './snapshot.ts'
import { saveRecordings } from './recordings.ts'
import { proxyEnvironment } from './proxy-environment.ts'
import { StepRecorder } from './step-recorder.ts'

export interface AgentPhase {
  /** Frozen, and still open: the patch is collected from it. */
  readonly task: HeldLease
  /** What its entrypoint and health check had changed before the agent began; null: nothing, as far as is known. */
  readonly before: Before | null
  readonly end: End
  readonly freeze: FreezeReport | null
  readonly usage: Usage
  readonly egress: EgressSummary
  readonly proof: { readonly before: CanaryResult[]; readonly after: CanaryResult[] }
  readonly steps: number
  readonly reported: Reported | null
  /** A person ran a command in the task's sandbox. */
  readonly assisted: boolean
  readonly gpus: LeaseView['gpus']
  /** Of the policy that was in force, the task's artifacts included. */
  readonly policyHash: string
}

export async function runAgentPhase(
  context: ExecutionContext,
  owned: AsyncDisposableStack,
  { onEnd }: { onEnd: () => void },
): Promise<AgentPhase> {
  const { client, clock, watch, evidence } = context
  const run = await harnessRun(context)
  const failed = new AbortController()
  const signal = AbortSignal.any([context.signal, failed.signal])
  watch.phase('lease')
  const started = performance.now()
  const open = (request: LeaseRequestInput & { id: string }): Promise<HeldLease> =>
    HeldLease.openFor(owned, client, request, {
      signal,
      onWait: () => watch.note('waiting for room on this host'),
    })
  let before: Before | null = null
  const opening = open({
    ...taskRequest(context),
    ...run.task,
    id: context.leases.task,
  }).then(async (lease) => {
    if (!needsPreparation(context.task)) return lease
    await prepareSandbox({ ...context, signal }, lease)
    before = await changedByBoot({ ...context, signal }, lease)
    return lease
  })
  opening.catch((error: unknown) => failed.abort(error))
  const harness =
    run.harness === null ? null : await open({ ...run.harness, id: context.leases.harness })
  const gone = new AbortController()
  await using recorder = await StepRecorder.open(context, harness, () =>
    gone.abort(new Error('a sandbox has ended under the agent')),
  )
  // A harness beside it would not wait for what is prepared, only for the sandbox.
  if (needsPreparation(context.task)) await opening
  const working = run.work?.({ task: opening, harness }, AbortSignal.any([signal, gone.signal]))
  working?.catch(() => {})
  const task = await opening
  clock.ms.lease += Math.round(performance.now() - started)
  watch.phase('agent')
  const outcome = await clock.time('agent', async () => {
    try {
      return await working
    } catch (error) {
      // what ended it is told by the daemon when the sandbox is frozen
      if (gone.signal.aborted) return null
      throw error
    }
  })
  onEnd()
  if (!gone.signal.aborted) await runCollectHooks(context, task)
  watch.phase('freeze')
  const frozen = await clock.time('freeze', () => freeze(context, task, harness))
  const trajectory = trajectoryOf(outcome ?? null)
  const steps = await recorder.finish(trajectory?.kind === 'whole' ? trajectory.trajectory : null)
  await saveRecords(context, task, harness)
  await evidence.writeJson(evidenceNames.freeze, frozen.report)
  await writeAtif(context, atif(context, trajectory, steps))
  const { end, reported } = classify(context, outcome ?? null, trajectory, frozen)
  return {
    task,
    before,
    end,
    freeze: frozen.report,
    usage: frozen.usage,
    egress: frozen.egress,
    proof: { before: task.view.proof.before, after: frozen.after },
    steps: context.configuration.model === null ? commandSteps(steps) : frozen.usage.calls,
    reported,
    assisted: frozen.assisted,
    gpus: task.view.gpus,
    policyHash: task.view.policyHash,
  }
}

async function harnessRun(context: ExecutionContext): Promise<HarnessRun> {
  const { harness } = context.configuration
  switch (harness.kind) {
    case 'mini-swe-agent':
      return harness.placement === 'inside' ? insideRun(context) : miniRun(context)
    case 'command':
      return insideRun(context)
    case 'oracle':
    case 'script':
      return scriptRun(context, harness)
    case 'noop':
      return { task: {}, harness: null, work: null }
  }
}

function taskRequest({
  task,
  configuration,
  images,
  trial,
  job,
}: ExecutionContext): LeaseRequestInput {
  const { resources } = task.environment
  const chosen = Object.entries({ ...resources, ...configuration.resources }).filter(
    ([, value]) => value !== undefined,
  )
  const policy = leasePolicy(configuration.policy, task.huggingface)
  return {
    image: images.task,
    network: 'sealed',
    policy,
    env: {
      ...proxyEnvironment(policy),
      ...huggingFaceEnvironment(policy),
      ...task.environment.env,
    },
    capabilities: [...task.environment.capabilities],
    resources: Object.fromEntries(chosen),
    gpus: task.hardware === 'h100' ? 1 : 0,
    owner: job,
    trial,
    ...(task.agent.user === null ? {} : { user: task.agent.user }),
    ...(task.workdir === null ? {} : { workdir: task.workdir }),
  }
}

interface Frozen {
  readonly report: FreezeReport | null
  readonly usage: Usage
  readonly egress: EgressSummary
  readonly after: CanaryResult[]
  readonly assisted: boolean
  /** The task's container died under the agent. */
  readonly gone: { readonly oom: boolean } | null
  readonly harnessOom: boolean
}

async function freeze(
  { client, signal }: ExecutionContext,
  task: HeldLease,
  harness: HeldLease | null,
): Promise<Frozen> {
  const wait = { signal }
  const [report, harnessReport] = await Promise.all([
    client.freeze(task.lease, wait).catch((error: unknown) => goneOf(error)),
    harness === null ? null : client.freeze(harness.lease, wait),
  ])
  const gone = 'oom' in report ? report : null
  const proof = gone === null ? await client.prove(task.lease, wait) : { canaries: [], ok: true }
  if (!proof.ok)
    throw new RunnerError(
      'proof_failed',
      'infra',
      `after the agent the sandbox was not sealed as it must be: ${proof.canaries
        .filter(({ ok }) => !ok)
        .map(({ canary, seen }) => `${canary}: ${seen}`)
        .join('; ')}`,
    )
  const [view, usage, egress, harnessEgress] = await Promise.all([
    client.lease(task.lease, wait),
    client.usage((harness ?? task).lease, wait),
    client.egress(task.lease, wait),
    harness === null ? null : client.egress(harness.lease, wait),
  ])
  return {
    report: 'oom' in report ? null : report,
    usage,
    egress: sum(egress, harnessEgress),
    after: proof.canaries,
    assisted: view.assisted,
    gone,
    harnessOom: (harnessReport?.oomKills ?? 0) > 0,
  }
}

/** A limit that the harness did not take is a limit that did not hold: such a trial says nothing. */
const settingsIgnored = (settings: readonly string[]): End => ({
  kind: 'refused',
  blame: 'operator',
  reason: {
    code: 'harness_settings',
    message: `the harness used other settings than it was given: ${settings.join(', ')}`,
  },
  gradable: false,
})

function goneOf(error: unknown): { oom: boolean } {
  if (error instanceof RemoteError && error.code === 'container_gone')
    return { oom: error.message.includes('out of memory') }
  throw error
}

function sum(a: EgressSummary, b: EgressSummary | null): EgressSummary {
  if (b === null) return a
  const byReason = { ...a.byReason }
  for (const [reason, count] of Object.entries(b.byReason))
    byReason[reason] = (byReason[reason] ?? 0) + count
  return {
    attempts: a.attempts + b.attempts,
    denied: a.denied + b.denied,
    allowed: a.allowed + b.allowed,
    byReason,
  }
}

async function* auditOf(
  leases: readonly HeldLease[],
  client: ExecutionContext['client'],
  signal: AbortSignal,
): AsyncGenerator<AuditEvent> {
  for (const { lease } of leases) yield* client.audit(lease, { signal })
}

async function saveRecords(
  { client, evidence, signal, configuration }: ExecutionContext,
  task: HeldLease,
  harness: HeldLease | null,
): Promise<void> {
  // Not by trial: an execution before this one had leases of its own.
  const leases = [task, ...(harness === null ? [] : [harness])]
  await evidence.writeLines(evidenceNames.egress, auditOf(leases, client, signal))
  await saveRecordings(client, evidence, leases, signal)
  if (configuration.model === null) return
  await evidence.write(
    evidenceNames.exchanges,
    await client.exchanges((harness ?? task).lease, { signal }),
  )
}

const trajectoryOf = (outcome: HarnessEnd | null): TrajectoryRead | null =>
  outcome?.trajectory == null ? null : readTrajectory(outcome.trajectory)

/** Denials alone are no step of an agent. */
const commandSteps = (steps: readonly Step[]): number =>
  steps.filter(({ commands }) => commands.length > 0).length

/** From the harness's own account where it is whole, else from what we saw. */
function atif(
  { configuration, trial, task, atif: version }: ExecutionContext,
  read: TrajectoryRead | null,
  steps: readonly Step[],
): Atif {
  const whole = read?.kind === 'whole' ? read.trajectory : null
  const meta = {
    session: trial,
    agent: configuration.harness.kind,
    version: whole?.version ?? packageVersion,
    model: configuration.model?.name ?? null,
    instruction: task.instruction,
    atif: version,
  }
  return whole === null ? atifFromSteps(steps, meta) : atifFromTrajectory(whole, meta, steps)
}

/** A document that breaks the format is a bug of ours, and no reason to lose a trial: it is said in the result. */
async function writeAtif({ evidence, remarks }: ExecutionContext, document: Atif): Promise<void> {
  const [problem, ...others] = atifProblems(document)
  if (problem !== undefined)
    remarks.push(
      `${evidenceNames.atif} does not keep to ${document.schema_version}: ${problem}${others.length > 0 ? ` (and ${others.length} more)` : ''}`,
    )
  await evidence.writeJson(evidenceNames.atif, document)
}

function classify(
  { configuration, task }: ExecutionContext,
  outcome: HarnessEnd | null,
  read: TrajectoryRead | null,
  frozen: Frozen,
): { end: End; reported: Reported | null } {
  const exit = outcome?.exit ?? { code: 0 }
  const mayEndSandbox = task.environment.capabilities.length > 0
  const timedOut = outcome?.timedOut ?? false
  const diskLimit: End | null =
    frozen.report?.diskLimitHit === true
      ? {
          kind: 'limit',
          blame: 'agent',
          reason: { code: 'disk_limit', message: 'the agent filled the disk that it may use' },
          gradable: true,
        }
      : null
  const trajectory = read?.kind === 'whole' ? read.trajectory : null
  const reported: Reported = {
    harness: 'mini-swe-agent',
    version: trajectory?.version ?? null,
    exitStatus: trajectory?.exitStatus ?? null,
    steps: trajectory?.calls ?? null,
    inputTokens: trajectory?.inputTokens ?? null,
    cachedInputTokens: trajectory?.cachedInputTokens ?? null,
    outputTokens: trajectory?.outputTokens ?? null,
    costUsd: trajectory?.costUsd ?? null,
  }
  if (worksInside(configuration.harness)) {
    const end = classifyInsideEnd({
      processExit: exit,
      timedOut,
      hung: outcome?.hung ?? false,
      gatewayFault: frozen.usage.fault,
      budgetSpent: frozen.usage.budgetSpent,
      taskGone: frozen.gone,
      mayEndSandbox,
      exitStatus: trajectory?.exitStatus ?? null,
    })
    return { end: diskLimit ?? end, reported: trajectory === null ? null : reported }
  }
  if (configuration.harness.kind !== 'mini-swe-agent') {
    const end = classifyScriptEnd({
      processExit: exit,
      timedOut,
      killedByUs: null,
      taskGone: frozen.gone,
      mayEndSandbox,
    })
    return { end: diskLimit ?? end, reported: null }
  }
  const ignored = trajectory === null ? [] : (outcome?.ignoredSettings?.(trajectory.config) ?? [])
  const end =
    ignored.length > 0
      ? settingsIgnored(ignored)
      : classifyEnd({
          exitStatus: trajectory?.exitStatus ?? null,
          ...(trajectory === null ? {} : { exitMessage: trajectory.exitMessage }),
          processExit: exit,
          file: read === null ? 'absent' : read.kind === 'whole' ? 'whole' : 'torn',
          gatewayFault: frozen.usage.fault,
          budgetSpent: frozen.usage.budgetSpent,
          timedOut,
          hung: outcome?.hung ?? false,
          killedByUs: null,
          oom: frozen.harnessOom,
          taskGone: frozen.gone,
        })
  return { end: diskLimit ?? end, reported }
}
