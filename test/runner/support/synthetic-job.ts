/**
 * A job as it lies on disk, with results made up from a seed: plan, results, egress logs, and the records of their
 * digests. For reports of any size without running anything.
 */
import { createHash } from 'node:crypto'
import { mkdirSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { trialId, type Plan } from '../../../runner/job/plan.ts'
import type { TrialResult } from '../../../runner/result.ts'
import { Random } from './random.ts'
import { sampleResult } from './result.ts'

export interface SyntheticSpec {
  readonly job?: string
  readonly tasks: number
  readonly runs: number
  readonly configurations: readonly {
    readonly name: string
    readonly chance: number
    readonly settings?: TrialResult['configuration']['settings']
  }[]
  readonly seed?: number
  /** Tests that each result lists; they take no part in figures. */
  readonly tests?: number
  readonly change?: (result: TrialResult, index: number) => TrialResult | null
}

const areas = ['model-integration', 'public-api', 'cache-systems', 'gpu-kernels'] as const
const onlyExecution = 'x1-abcd'
const digestOf = (text: string): string =>
  `sha256:${createHash('sha256').update(text).digest('hex')}`

export function syntheticJob(
  dir: string,
  spec: SyntheticSpec,
): { plan: Plan; results: TrialResult[] } {
  const random = new Random(spec.seed ?? 1)
  const plan = syntheticPlan(spec)
  const hardness = new Map(plan.tasks.map(({ name }) => [name, random.next() * 1.2 - 0.6]))
  const results: TrialResult[] = []
  const records: { trial: string; result: string; digest: string }[] = []
  for (const [index, planned] of plan.trials.entries()) {
    const configuration = spec.configurations.find(({ name }) => name === planned.configuration)
    const made = syntheticResult(plan, planned, {
      random,
      chance: (configuration?.chance ?? 0.5) + (hardness.get(planned.task) ?? 0),
      tests: spec.tests ?? 2,
    })
    const result = spec.change === undefined ? made : spec.change(made, index)
    if (result === null) continue
    results.push(result)
    const file = `trials/${planned.trial}/result.json`
    const execution = path.join(dir, 'trials', planned.trial, 'executions', onlyExecution)
    const text = `${JSON.stringify(result, null, 2)}\n`
    mkdirSync(execution, { recursive: true })
    writeFileSync(path.join(dir, file), text)
    writeFileSync(path.join(execution, 'egress.jsonl'), egressLines(result))
    records.push({ trial: planned.trial, result: file, digest: digestOf(text) })
  }
  writeFileSync(path.join(dir, 'plan.json'), `${JSON.stringify(plan, null, 2)}\n`)
  writeFileSync(
    path.join(dir, 'regrade.json'),
    JSON.stringify({ schema: 'closedbook.regrade/1', records }),
  )
  return { plan, results }
}

export function syntheticPlan(spec: SyntheticSpec): Plan {
  const job = spec.job ?? 'j20250102-030405-abcd'
  const digest = digestOf('x')
  const tasks = Array.from({ length: spec.tasks }, (_, index) => ({
    name: `org/task-${String(index + 1).padStart(2, '0')}`,
    dir: `/tasks/${index}`,
    area: areas[index % areas.length] ?? 'public-api',
    hardware: index % 4 === 3 ? ('h100' as const) : ('cpu' as const),
    digest: digestOf(`task ${index}`),
    testsDigest: digest,
    instructionDigest: digest,
    image: digest,
  }))
  return {
    schema: 'closedbook.plan/1',
    job,
    name: 'synthetic',
    createdAt: '2025-01-02T03:04:05.000Z',
    closedbookVersion: '0.1.0',
    runs: spec.runs,
    tasks,
    configurations: spec.configurations.map(({ name, settings }) => ({
      name,
      harness: 'mini-swe-agent',
      model: `model-of-${name}`,
      digest: digestOf(name),
      harnessDigest: digest,
      policyDigest: digest,
      price: null,
      settings: settings ?? {},
    })),
    trials: Array.from({ length: spec.runs }, (_, run) =>
      spec.configurations.flatMap(({ name }) =>
        tasks.map((task) => ({
          trial: trialId(job, task.name, name, run + 1),
          task: task.name,
          configuration: name,
          run: run + 1,
        })),
      ),
    ).flat(),
  }
}

const failures = [
  { code: 'tests_failed', message: 'functional 7 of 11, regression 4 of 4' },
  { code: 'tests_failed', message: 'functional 0 of 11, regression 4 of 4' },
  { code: 'verifier_timeout', message: 'functional: no report within 600 s' },
  { code: 'agent_timeout', message: 'the agent did not end within 3600 s' },
] as const

function syntheticResult(
  plan: Plan,
  planned: Plan['trials'][number],
  { random, chance, tests }: { random: Random; chance: number; tests: number },
): TrialResult {
  const task = plan.tasks.find(({ name }) => name === planned.task)
  const configuration = plan.configurations.find(({ name }) => name === planned.configuration)
  if (task === undefined || configuration === undefined) throw new Error('not in its plan')
  const passed = random.next() < chance
  const skew = Math.exp(random.next() * 2.4 - 1)
  const denied = random.int(0, 4)
  const base = sampleResult()
  return {
    ...base,
    trial: planned.trial,
    job: plan.job,
    task: { name: task.name, digest: task.digest, area: task.area, hardware: task.hardware },
    configuration: {
      name: configuration.name,
      model: configuration.model,
      harness: configuration.harness,
      settings: configuration.settings,
    },
    executions: base.executions.map((one) => ({ ...one, id: onlyExecution })),
    run: planned.run,
    verdict: passed ? 'passed' : 'failed',
    blame: passed ? null : 'agent',
    reason: passed
      ? { code: 'tests_passed', message: 'functional 11 of 11, regression 4 of 4' }
      : random.pick(failures),
    suites: {
      functional: {
        planned: 11,
        passed: passed ? 11 : 7,
        failed: passed ? 0 : 4,
        missing: 0,
        command: 'pytest -q /tests/functional',
        exit: { code: 1 },
      },
      regression: {
        planned: 4,
        passed: 4,
        failed: 0,
        missing: 0,
        command: 'pytest -q /tests/regression',
        exit: { code: 1 },
      },
    },
    tests: Array.from({ length: tests }, (_, n) => ({
      suite: 'functional' as const,
      id: `functional.test_behaviour::test_case_number_${n}[with a parameter]`,
      outcome: passed ? ('passed' as const) : ('failed' as const),
      durationMs: n,
      message: passed ? null : 'AssertionError: assert 1 == 2',
    })),
    usage: {
      ...base.usage,
      outputTokens: Math.round(9000 * skew),
      inputTokens: 400_000,
      calls: 40,
    },
    costUsd: Math.round(skew * 4000) / 10_000,
    steps: Math.round(20 * skew),
    wallTimeMs: Math.round(240_000 * skew),
    egress:
      denied === 0
        ? { attempts: 1, denied: 0, allowed: 1, byReason: { allowed_gateway: 1 } }
        : {
            attempts: denied + 1,
            denied,
            allowed: 1,
            byReason: {
              allowed_gateway: 1,
              not_allowed_host: 1,
              ...(denied > 1 && { direct_tcp: denied - 1 }),
            },
          },
    digests: {
      ...base.digests,
      harness: configuration.harnessDigest,
      policy: configuration.policyDigest,
    },
  }
}

function egressLines({ trial, egress }: TrialResult): string {
  const event = (seq: number, changes: object): string =>
    `${JSON.stringify({ seq, time: '2025-01-02T03:04:05.000Z', lease: 'l1', trial, kind: 'decision', protocol: 'connect', host: null, address: null, port: 443, action: 'deny', reason: 'not_allowed_host', count: 1, bytesUp: 0, bytesDown: 0, ...changes })}\n`
  const lines = [event(1, { host: 'model', action: 'allow', reason: 'allowed_gateway' })]
  if ((egress.byReason['not_allowed_host'] ?? 0) > 0) lines.push(event(2, { host: 'pypi.example' }))
  const direct = egress.byReason['direct_tcp'] ?? 0
  if (direct > 0)
    lines.push(
      event(3, {
        kind: 'census',
        protocol: 'tcp',
        address: '198.51.100.7',
        reason: 'direct_tcp',
        count: direct,
      }),
    )
  return lines.join('')
}
