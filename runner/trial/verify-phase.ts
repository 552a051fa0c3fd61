/**
 * Collection and verification of one execution: the patch by trusted git, then each suite in a fresh offline container
 * of its own with the patch applied and its hidden tests mounted there and only there. Both suites run side by side.
 */
import { createHash } from 'node:crypto'
import type { LeaseRequestInput } from '../../daemon/protocol/lease.ts'
import { RunnerError } from '../errors.ts'
import type { Suite, SuiteName } from '../task/task.ts'
import { readTree, treeDigest } from '../task/tree.ts'
import { applyPatch } from './apply.ts'
import { collectArtifacts, placeArtifacts, type Artifact } from './artifacts.ts'
import { collectPatch, type AgentFailure, type Collected } from './collect.ts'
import type { ExecutionContext } from './context.ts'
import { evidenceNames } from './evidence.ts'
import { HeldLease } from './held-lease.ts'
import type { Pristine } from './pristine.ts'
import { prepareSuite } from './suite-bundle.ts'
import { pinPath, runSuite } from './suite-run.ts'
import { decideVerdict, type Decided, type SuiteEvidence } from './verdict.ts'

const resultsTimeoutGraceMs = 5000

/** What the agent left, in a form that goes to fresh containers. */
export type Work =
  | { readonly kind: 'patch'; readonly collected: Collected; readonly pristine: Pristine }
  | { readonly kind: 'artifacts'; readonly artifacts: readonly Artifact[] }

export type WorkOutcome =
  | { readonly ok: true; readonly work: Work; readonly digest: string }
  | { readonly ok: false; readonly failure: AgentFailure }

const sha256 = (bytes: Uint8Array): string =>
  `sha256:${createHash('sha256').update(bytes).digest('hex')}`

/** The fresh container of the pinned image that collection works in: opened when first asked for, and once. */
export class PristineSandbox implements AsyncDisposable {
  readonly #context: ExecutionContext
  #opening: Promise<HeldLease> | null = null

  constructor(context: ExecutionContext) {
    this.#context = context
  }

  open(): Promise<HeldLease> {
    this.#opening ??= openOffline(this.#context, 'pristine', [])
    return this.#opening
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const opened = await this.#opening?.catch(() => null)
    await opened?.[Symbol.asyncDispose]()
  }
}

export async function collect(
  context: ExecutionContext,
  agent: HeldLease,
  fresh: PristineSandbox,
): Promise<WorkOutcome> {
  const pristineSandbox = (): Promise<HeldLease> => fresh.open()
  const { task, evidence, signal, images, pristine: cache } = context
  if (task.verify === 'artifacts') return collectDeclared(context, agent)
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

async function collectDeclared(
  { task, evidence, signal, watch }: ExecutionContext,
  agent: HeldLease,
): Promise<WorkOutcome> {
  const { artifacts } = task
  const outcome = await collectArtifacts({
    agent,
    artifacts,
    directory: evidence.directory,
    signal,
  })
  await evidence.writeJson(evidenceNames.collect, outcome)
  if (!outcome.ok) return outcome
  for (const path of outcome.missing) watch.note(`declared artifact ${path} is not there`)
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
  const changed = work.kind === 'artifacts' || !work.collected.empty
  return {
    ok: true,
    decided: decideVerdict({ changed, functional: first, regression: second ?? null }),
  }
}

async function verifySuite(
  context: ExecutionContext,
  work: Work,
  suite: Suite,
  owned: AsyncDisposableStack,
): Promise<SuiteEvidence | { failure: AgentFailure }> {
  const { client, task, signal, evidence } = context
  const now = treeDigest(await readTree(task.testsDir))
  if (now !== task.testsDigest)
    throw new RunnerError(
      'plan_changed',
      'operator',
      `${task.testsDir} was edited while the job runs; put the planned tests back, or start a new job`,
    )
  const prepared = await prepareSuite({ testsDir: task.testsDir, suite })
  const bundle = await client.putBundle(prepared.bundleTar, { signal })
  owned.defer(() => client.removeBundle(bundle).catch(() => {}))
  const sandbox = owned.use(await openOffline(context, suite.name, [{ bundle, target: '/tests' }]))
  const applied = await apply(work, sandbox, signal)
  if (!applied.ok) return { failure: applied.failure }
  const run = await runSuite({
    sandbox,
    prepared,
    command: suite.command,
    results: suite.results,
    workdir: await workdirOf(context),
    timeoutMs: suite.timeoutSeconds * 1000 + resultsTimeoutGraceMs,
    env: task.verifier.env,
    user: task.verifier.user,
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
  for (const { name, bytes } of run.reportFiles)
    await evidence.write(`${suite.name}-${name}`, bytes)
  await sandbox[Symbol.asyncDispose]()
  return {
    suite: suite.name,
    results: suite.results,
    runner: prepared.runner,
    planned: suite.expected,
    canaries: prepared.canaries,
    run,
  }
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
  const { collected, pristine } = work
  const { root, patch, changes } = collected
  return applyPatch({ sandbox, root, patch, changes, git: pristine.git, signal })
}

async function openOffline(
  { client, task, images, leases, trial, job, signal, watch }: ExecutionContext,
  role: 'pristine' | SuiteName,
  mounts: NonNullable<LeaseRequestInput['mounts']>,
): Promise<HeldLease> {
  const { resources, capabilities } = task.environment
  const request: LeaseRequestInput & { id: string } = {
    id: leases[role],
    image: images.task,
    network: 'offline',
    resources: { ...resources },
    capabilities: [...capabilities],
    gpus: task.hardware === 'h100' && role !== 'pristine' ? 1 : 0,
    mounts,
    user: 'root',
    env: task.environment.env,
    owner: job,
    trial,
  }
  const onWait = (): void => watch.note('waiting for room on this host to verify')
  return HeldLease.open(client, request, { signal, onWait })
}

async function imagePath({
  client,
  images,
  signal,
}: ExecutionContext): Promise<string | undefined> {
  const { env } = await client.inspectImage(images.task, { signal })
  return env.find((one) => one.startsWith('PATH='))?.slice('PATH='.length)
}

export async function workdirOf({
  client,
  task,
  images,
  signal,
}: ExecutionContext): Promise<string> {
  if (task.workdir !== null) return task.workdir
  const { workdir } = await client.inspectImage(images.task, { signal })
  return workdir === '' ? '/' : workdir
}
