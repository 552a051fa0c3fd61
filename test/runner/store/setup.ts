/** A real store on a private cluster of the test's own, and jobs in it that need no engine. */
import { spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import type { Test } from 'tap'
import { packageVersion } from '../../../daemon/protocol/version.ts'
import { plainConfiguration } from '../../../runner/job/configuration.ts'
import {
  makePlan,
  plainHarnessDigest,
  type Plan,
  type PlannedTrial,
} from '../../../runner/job/plan.ts'
import { serializeResult, type TrialResult } from '../../../runner/result.ts'
import { claimTrial, type Claim, type ClaimOutcome } from '../../../runner/store/claim.ts'
import { stopCluster } from '../../../runner/store/cluster.ts'
import { lockPlan, type ConfigurationLoad, type JobLimits } from '../../../runner/store/plans.ts'
import type { End } from '../../../runner/store/settle.ts'
import { Store } from '../../../runner/store/store.ts'
import { loadTask } from '../../../runner/task/load.ts'
import { Scratch } from '../support/scratch.ts'
import { sampleResult } from '../support/result.ts'

export interface TestStore {
  readonly scratch: Scratch
  readonly stateDir: string
  readonly store: Store
  open(): Promise<Store>
}

/** Stopped and removed with the test. */
export async function testStore(t: Test): Promise<TestStore> {
  const scratch = await Scratch.make()
  const stateDir = join(scratch.path, 'state')
  const opened: Store[] = []
  const open = async (): Promise<Store> => {
    const store = await Store.open({ stateDir, heartbeatSeconds: 120 })
    opened.push(store)
    return store
  }
  t.teardown(async () => {
    for (const store of opened) await store[Symbol.asyncDispose]()
    await stopCluster(stateDir)
    await scratch[Symbol.asyncDispose]()
  })
  return { scratch, stateDir, store: await open(), open }
}

const free: JobLimits = {
  trialsAtOnce: 100,
  perConfiguration: null,
  perEndpoint: null,
  budgetUsd: null,
}

/** A job of one task and some configurations. */
export async function plannedJob(
  { scratch, store }: TestStore,
  options: {
    readonly configurations: readonly string[]
    readonly runs: number
    readonly limits?: Partial<JobLimits>
    readonly load?: Partial<ConfigurationLoad>
    readonly hardware?: 'cpu' | 'h100'
  },
): Promise<Plan> {
  const dir = `task-${options.hardware ?? 'cpu'}`
  const hardware = options.hardware ?? 'cpu'
  const toml = `[task]\nname = "org/one"\n[closedbook]\nhardware = "${hardware}"\n[closedbook.functional]\ncommand = "x"\n`
  await scratch.write(`${dir}/task.toml`, toml)
  await scratch.write(`${dir}/instruction.md`, 'Do it.')
  await scratch.write(`${dir}/environment/Dockerfile`, 'FROM scratch')
  await scratch.write(`${dir}/tests/test.sh`, '')
  const task = await loadTask(join(scratch.path, dir))
  const plain = await plainConfiguration('noop', '/')
  const configurations = options.configurations.map((name) => {
    const configuration = { ...plain, name }
    return { configuration, harnessDigest: plainHarnessDigest(configuration, packageVersion) }
  })
  const plan = makePlan({
    name: 'sample',
    tasks: [{ task, image: `sha256:${'1'.repeat(64)}` }],
    configurations,
    runs: options.runs,
    closedbookVersion: '0',
    now: new Date(),
  })
  const load = { endpoint: null, ceilingUsd: 0, harnessImage: null, ...options.load }
  await lockPlan(store, {
    plan,
    sources: {
      schema: 'closedbook.sources/1',
      taskDirs: [task.dir],
      configurations: [{ kind: 'harness', harness: 'noop', baseDir: '/' }],
      concurrency: 1,
    },
    jobDir: join(scratch.path, 'jobs', plan.job),
    limits: { ...free, ...options.limits },
    hostKey: 'key',
    loads: new Map(options.configurations.map((name) => [name, load])),
  })
  return plan
}

/** Of one job only: the tests share a store. */
export const claim = (store: Store, worker: string, { job }: Plan): Promise<ClaimOutcome> =>
  claimTrial(store, {
    worker,
    classes: ['cpu'],
    leases: ['a', 'b'],
    serves: (group) => group.job === job,
  })

/** For a claim that must have been granted. */
export function granted(outcome: ClaimOutcome): Claim {
  if (outcome.kind === 'claimed') return outcome.claim
  throw new Error(`nothing was claimed: ${JSON.stringify(outcome)}`)
}

export function passedEnd(held: Claim, planned: PlannedTrial, costUsd = 0): End {
  const result: TrialResult = sampleResult({ trial: planned.trial, run: planned.run, costUsd })
  const { text, digest } = serializeResult(result)
  return {
    execution: held.execution,
    blame: null,
    reason: { code: 'tests_passed', message: 'm' },
    costUsd,
    endedAt: new Date().toISOString(),
    result: { verdict: 'passed', blame: null, digest, body: text, costUsd, wallTimeMs: 1 },
  }
}

export const faultedEnd = (held: Claim): End => ({
  execution: held.execution,
  blame: 'infra',
  reason: { code: 'sandbox_gone', message: 'm' },
  costUsd: 0,
  endedAt: new Date().toISOString(),
  result: null,
})

/** Another process that runs `program`, an ES module; resolves when it has printed something. */
export async function otherProcess(program: string): Promise<ChildProcess> {
  const child = spawn(process.execPath, ['--no-warnings', '--input-type=module', '-e', program], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  await once(child.stdout, 'data')
  return child
}
