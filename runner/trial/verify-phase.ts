/**
 * Collection and verification of one execution: the patch by trusted git, a snapshot or the declared artifacts, then
 * each suite in a fresh offline container of its own with that work laid out and its hidden tests there and only there.
 * Both suites run side by side. A collection that does not end is infra, never a zero.
 */
import { createHash } from 'node:crypto'
import { Readable } from 'node:stream'
import type { LeaseRequestInput } from '../../daemon/protocol/lease.ts'
import { nothingAllowed } from '../../policy/policy.ts'
import { RunnerError } from '../errors.ts'
import type { Suite, SuiteName, Task } from '../task/task.ts'
import { readTree, treeDigest } from '../task/tree.ts'
import { applyPatch } from './apply.ts'
import { collectArtifacts, placeArtifacts, type Artifact } from './artifacts.ts'
import { collectPatch, type AgentFailure, type Collected } from './collect.ts'
import type { ExecutionContext } from './context.ts'
import { withinLimit } from './deadline.ts'
import { evidenceNames } from './evidence.ts'
import { HeldLease } from './held-lease.ts'
import { huggingFaceVariables, leasePolicy } from './hugging-face.ts'
import type { Pristine } from './pristine.ts'
import {
  collectSnapshot,
  isChangedSince,
  placeSnapshot,
  unreadable,
  type Before,
  type Snapshot,
} from './snapshot.ts'
import { startEntrypoint } from './prepare.ts'
import { removeAll } from './remove-all.ts'
import { ownPlaces } from './script-places.ts'
import { prepareSuite, testsTarget, type PreparedSuite } from './suite-bundle.ts'
import { pinPath, runSuite } from './suite-run.ts'
import { tarEnd, tarHeader } from './tar-writer.ts'
import { decideVerdict, type Decided, type SuiteEvidence } from './verdict.ts'
import { workdirOf } from './workdir.ts'

const resultsTimeoutGraceMs = 5000
/** How a suite's command ended and how long it took: evidence, and what limits are proposed from. */
export const suiteFacts = (suite: SuiteName): string => `${suite}.json`

/** What the agent left, in a form that goes to fresh containers. */
export type Work =
  | { readonly kind: 'patch'; readonly collected: Collected; readonly pristine: Pristine }
  | {
      readonly kind: 'snapshot'
      readonly snapshot: Snapshot
      /** Since the sandbox was up and before the agent began: an entrypoint may write files too. */
      readonly changed: boolean
    }
  | { readonly kind: 'artifacts'; readonly artifacts: readonly Artifact[] }

export type WorkOutcome =
  | { readonly ok: true; readonly work: Work; readonly digest: string }
  | { readonly ok: false; readonly failure: AgentFailure }

const sha256 = (bytes: Uint8Array): string =>
  `sha256:${createHash('sha256').update(bytes).digest('hex')}`

/** The fresh container of the pinned image that collection works in: opened when first asked for, and once. */
export class PristineSandbox implements AsyncDisposable {
  readonly #context: ExecutionContext
  readonly #owned = new AsyncDisposableStack()
  #opening: Promise<HeldLease> | null = null

  constructor(context: ExecutionContext) {
    this.#context = context
  }

  open(): Promise<HeldLease> {
    this.#opening ??= openVerifier(this.#context, 'pristine', [], this.#owned)
    return this.#opening
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#opening?.catch(() => {})
    await this.#owned.disposeAsync()
  }
}

/** What takes longer hangs: a gigabyte goes through in seconds. */
const collectLimitMs = 20 * 60_000

export async function collect(
  context: ExecutionContext,
  agent: HeldLease,
  fresh: PristineSandbox,
  options: { readonly limitMs?: number; readonly before?: Before | null } = {},
): Promise<WorkOutcome> {
  const { limitMs = collectLimitMs, before = null } = options
  return withinLimit(
    { signal: context.signal, limitMs, what: "collecting the agent's work" },
    (signal) => collectWork({ ...context, signal }, agent, { fresh, before }),
  )
}

async function collectWork(
  context: ExecutionContext,
  agent: HeldLease,
  { fresh, before }: { readonly fresh: PristineSandbox; readonly before: Before | null },
): Promise<WorkOutcome> {
  const pristineSandbox = (): Promise<HeldLease> => fresh.open()
  const { task, evidence, signal, images, pristine: cache } = context
  if (task.verify === 'artifacts') return collectDeclared(context, agent)
  if (task.verify === 'snapshot' && task.snapshotOf === 'container')
    return collectChanges(context, agent, before)
  const workdir = await workdirOf(context)
  const pristine = await cache.get(images.task, task, workdir, pristineSandbox, signal)
  const outcome = await collectPatch({ agent, pristineSandbox, pristine, signal })
  if (!outcome.ok) {
    await evidence.writeJson(evidenceNames.collect, outcome)
    return outcome
  }
  const { patch, ...facts } = outcome
  await evidence.writeJson(evidenceNames.collect, facts)
  await evidence.write(evidenceNames.patch, patch)
  return {
    ok: true,
    work: { kind: 'patch', collected: outcome, pristine },
    digest: sha256(patch),
  }
}

async function collectChanges(
  { client, configuration, evidence, remarks, signal }: ExecutionContext,
  agent: HeldLease,
  before: Before | null,
): Promise<WorkOutcome> {
  const changes = await client.changes(agent.lease, { signal })
  const outcome = await collectSnapshot({
    agent,
    changes,
    own: ownPlaces,
    file: evidence.path(evidenceNames.snapshot),
    signal,
  })
  if (!outcome.ok) {
    await evidence.writeJson(evidenceNames.collect, outcome)
    return outcome
  }
  const { snapshot, skipped } = outcome
  for (const { path, why } of skipped)
    if (why === unreadable) remarks.push(`${path} was not taken along: ${why}`)
  const { file: _file, ...facts } = snapshot
  const changed = configuration.harness.kind !== 'noop' && isChangedSince(snapshot, before)
  await evidence.writeJson(evidenceNames.collect, { ok: true, changed, ...facts, skipped })
  const digest = sha256(Buffer.from(JSON.stringify([snapshot.sha256, snapshot.deleted])))
  return { ok: true, work: { kind: 'snapshot', snapshot, changed }, digest }
}

async function collectDeclared(context: ExecutionContext, agent: HeldLease): Promise<WorkOutcome> {
  const { task, evidence, signal, watch, remarks } = context
  const { artifacts } = task
  const outcome = await collectArtifacts({
    agent,
    artifacts,
    workdir: await workdirOf(context),
    directory: evidence.directory,
    signal,
  })
  await evidence.writeJson(evidenceNames.collect, outcome)
  if (!outcome.ok) return outcome
  for (const path of outcome.missing) {
    watch.note(`declared artifact ${path} is not there`)
    remarks.push(`the declared artifact ${path} was not there`)
  }
  const digest = sha256(Buffer.from(outcome.artifacts.map((one) => one.sha256).join('\n')))
  return { ok: true, work: { kind: 'artifacts', artifacts: outcome.artifacts }, digest }
}

export type Verified =
  | { readonly ok: true; readonly decided: Decided }
  | { readonly ok: false; readonly failure: AgentFailure }

export async function verify(
  context: ExecutionContext,
  work: Work,
  owned: AsyncDisposableStack,
): Promise<Verified> {
  const { functional, regression } = context.task.suites
  const runs = await Promise.all(
    [functional, regression].map(async (suite) =>
      suite === null ? null : verifySuite(context, work, suite, owned),
    ),
  )
  const failed = runs.find((run) => run !== null && 'failure' in run)
  if (failed !== undefined && failed !== null && 'failure' in failed)
    return { ok: false, failure: failed.failure }
  const [first, second] = runs as (SuiteEvidence | null)[]
  if (first == null) throw new Error('every task has a functional suite')
  return {
    ok: true,
    decided: decideVerdict({
      changed: context.configuration.harness.kind !== 'noop' && isChanged(work),
      functional: first,
      regression: second ?? null,
    }),
  }
}

const isChanged = (work: Work): boolean => {
  switch (work.kind) {
    case 'patch':
      return !work.collected.empty
    case 'snapshot':
      return work.changed
    case 'artifacts':
      return work.artifacts.some(({ kind, entries }) => kind !== 'directory' || entries > 1)
  }
}

async function verifySuite(
  context: ExecutionContext,
  work: Work,
  suite: Suite,
  owned: AsyncDisposableStack,
): Promise<SuiteEvidence | { failure: AgentFailure }> {
  const { client, task, configuration, signal, evidence } = context
  const now = treeDigest(await readTree(task.testsDir).catch(() => []))
  if (now !== task.testsDigest)
    throw new RunnerError(
      'plan_changed',
      'operator',
      `${task.testsDir} was edited while the job runs; put the planned tests back, or start a new job`,
    )
  const prepared = await prepareSuite({
    testsDir: task.testsDir,
    suite,
    leftOut: task.leftOut.tests,
  })
  const sandbox = await openForTests(context, suite, prepared, owned)
  const applied = await apply(work, sandbox, signal)
  if (!applied.ok) return { failure: applied.failure }
  if (suite.manner === 'harbor') await layTests(context, sandbox, work, prepared)
  const pass = suite.name === 'functional' ? configuration.pass : null
  const run = await runSuite({
    sandbox,
    prepared,
    command: suite.command,
    results: suite.results,
    manner: suite.manner,
    pass,
    workdir: await verifierWorkdir(context),
    timeoutMs: suite.timeoutSeconds * 1000 + resultsTimeoutGraceMs,
    env: task.verifier.env,
    user: task.verifier.user ?? (suite.manner === 'harbor' ? await imageUser(context) : null),
    ...(work.kind === 'patch'
      ? {
          path: pinPath(
            await imagePath(context),
            work.pristine.root,
            work.collected.changes.map(({ path }) => path),
          ),
        }
      : {}),
    settle: () => client.freeze(sandbox.lease, { signal }),
    signal,
  })
  await evidence.write(`${suite.name}.stdout`, run.stdout)
  await evidence.write(`${suite.name}.stderr`, run.stderr)
  await evidence.writeJson(suiteFacts(suite.name), {
    command: run.command,
    exit: run.exit,
    durationMs: run.durationMs,
    outputBytes: run.outputBytes,
  })
  for (const { name, bytes } of run.reportFiles)
    await evidence.write(`${suite.name}-${name}`, bytes)
  await sandbox[Symbol.asyncDispose]()
  return {
    suite: suite.name,
    results: suite.results,
    runner: prepared.runner,
    manner: suite.manner,
    planned: pass !== null && suite.results === 'reward' ? Object.keys(pass) : suite.expected,
    canaries: prepared.canaries,
    run,
  }
}

async function openForTests(
  context: ExecutionContext,
  suite: Suite,
  prepared: PreparedSuite,
  owned: AsyncDisposableStack,
): Promise<HeldLease> {
  if (suite.manner === 'harbor') return openVerifier(context, suite.name, [], owned)
  const { client, signal } = context
  const bundle = await client.putBundle(prepared.bundleTar, { signal })
  const remove = (): Promise<void> => client.removeBundle(bundle).catch(() => {})
  if (owned.disposed) await remove()
  owned.defer(remove)
  return openVerifier(context, suite.name, [{ bundle, target: testsTarget }], owned)
}

/**
 * Harbor's scripts may write beside themselves, so their tests are no mount. They come after the agent's work, which may
 * neither bring a reward along nor stand in their place; an image that holds them keeps its own.
 */
async function layTests(
  context: ExecutionContext,
  sandbox: HeldLease,
  work: Work,
  prepared: PreparedSuite,
): Promise<void> {
  const { task, signal } = context
  if (work.kind === 'artifacts') await removeAll(sandbox, ['/logs/verifier'], signal)
  const image = await verifierImage(context)
  if (task.verifier.place?.bundled !== true) {
    const directory = tarHeader({ path: testsTarget.slice(1), kind: 'directory', mode: 0o755 })
    const top = Readable.from([Buffer.concat([directory, tarEnd()])])
    await sandbox.writeArchive('/', top, { signal })
    await sandbox.writeArchive(testsTarget, Readable.from([prepared.bundleTar]), { signal })
  }
  const user = image.user === '' ? '0' : image.user
  await startEntrypoint(sandbox, image.entrypoint, { user, workdir: image.workdir }, signal)
}

async function apply(
  work: Work,
  sandbox: HeldLease,
  signal: AbortSignal,
): Promise<{ ok: true } | { ok: false; failure: AgentFailure }> {
  if (work.kind === 'artifacts') {
    await placeArtifacts({ sandbox, artifacts: work.artifacts, signal })
    return { ok: true }
  }
  if (work.kind === 'snapshot') {
    await placeSnapshot({ sandbox, snapshot: work.snapshot, signal })
    return { ok: true }
  }
  const { collected, pristine } = work
  const { root, patch, changes } = collected
  return applyPatch({ sandbox, root, patch, changes, git: pristine.git, signal })
}

/** Tests run without any network, or with a gateway to the task's artifacts and nothing else. */
function networkOf(
  { verifierArtifacts, huggingface }: Task,
  role: 'pristine' | SuiteName,
): Pick<LeaseRequestInput, 'network' | 'policy'> {
  if (role === 'pristine' || !verifierArtifacts) return { network: 'offline' }
  return { network: 'sealed', policy: leasePolicy(nothingAllowed, huggingface) }
}

async function openVerifier(
  { client, task, images, leases, trial, job, signal, watch }: ExecutionContext,
  role: 'pristine' | SuiteName,
  mounts: NonNullable<LeaseRequestInput['mounts']>,
  owner: AsyncDisposableStack,
): Promise<HeldLease> {
  const place = role === 'pristine' ? null : task.verifier.place
  const { capabilities } = task.environment
  const { env, resources } = place ?? task.environment
  const request: LeaseRequestInput & { id: string } = {
    id: leases[role],
    image: (role === 'pristine' ? null : images.verifier) ?? images.task,
    ...networkOf(task, role),
    resources: { ...resources },
    capabilities: [...capabilities],
    gpus: task.hardware === 'h100' && role !== 'pristine' ? 1 : 0,
    mounts,
    user: 'root',
    env: { ...env, ...(role !== 'pristine' && task.verifierArtifacts ? huggingFaceVariables : {}) },
    owner: job,
    trial,
  }
  const onWait = (): void => watch.note('waiting for room on this host to verify')
  return HeldLease.openFor(owner, client, request, { signal, onWait })
}

const verifierImage = ({
  client,
  images,
  signal,
}: ExecutionContext): ReturnType<ExecutionContext['client']['inspectImage']> =>
  client.inspectImage(images.verifier ?? images.task, { signal })

async function imagePath(context: ExecutionContext): Promise<string | undefined> {
  const { env } = await verifierImage(context)
  return env.find((one) => one.startsWith('PATH='))?.slice('PATH='.length)
}

const imageUser = async (context: ExecutionContext): Promise<string | null> =>
  (await verifierImage(context)).user || null

async function verifierWorkdir(context: ExecutionContext): Promise<string> {
  const { place } = context.task.verifier
  if (place === null) return workdirOf(context)
  return place.workdir ?? ((await verifierImage(context)).workdir || '/')
}
