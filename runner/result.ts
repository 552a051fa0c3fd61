/**
 * `result.json`, schema `closedbook.result/1`: the record of one trial. Its names are a promise to those who compute
 * with it; every count in it was measured by us (gateway, exec, census), and what the harness says of itself stands
 * apart in `reported`. Strict both when written and when read; a change of meaning is a new schema number.
 */
import { createHash } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import { z } from 'zod'
import { exitSchema } from '../daemon/protocol/exec-frames.ts'
import { egressSummarySchema, type CanaryResult } from '../daemon/protocol/lease.ts'
import { RunnerError, messageOf, systemCode } from './errors.ts'
import { writeFileAtomic } from './json-file.ts'
import { zodMessage } from '../daemon/protocol/zod-message.ts'

export const resultSchemaName = 'closedbook.result/1'

export const verdicts = ['passed', 'failed', 'void'] as const
export type Verdict = (typeof verdicts)[number]

/** Who caused an end. A caller's mistake counts as the operator's here. */
export const blames = ['agent', 'infra', 'task', 'operator'] as const
export type TrialBlame = (typeof blames)[number]

export const reasonSchema = z.strictObject({ code: z.string().min(1), message: z.string() })
export type TrialReason = z.infer<typeof reasonSchema>

const count = z.int().nonnegative()
const milliseconds = z.number().nonnegative()
const digest = z.string().regex(/^sha256:[0-9a-f]{64}$/, 'sha256: and 64 hex digits')

export const suiteCountsSchema = z
  .strictObject({
    /** Tests that had to be reported: the expected ids, or what was found where none are recorded. */
    planned: count,
    passed: count,
    /** Failed, errored or skipped. */
    failed: count,
    /** Planned and not reported; they count as failures. */
    missing: count,
    /** null when the task has no such suite. */
    command: z.string().nullable(),
    /** null when the suite was not run. */
    exit: exitSchema.nullable(),
  })
  .refine((suite) => suite.passed + suite.failed + suite.missing === suite.planned, {
    error: 'passed + failed + missing must be planned',
  })
export type SuiteCounts = z.infer<typeof suiteCountsSchema>

export const testOutcomes = ['passed', 'failed', 'error', 'skipped', 'missing'] as const
export const testResultSchema = z.strictObject({
  suite: z.enum(['functional', 'regression']),
  id: z.string(),
  outcome: z.enum(testOutcomes),
  durationMs: milliseconds.nullable(),
  message: z.string().nullable(),
})
export type TestResult = z.infer<typeof testResultSchema>

const canarySchema = z.strictObject({
  canary: z.string(),
  expected: z.string(),
  seen: z.string(),
  audited: z.boolean().nullable(),
})

export const executionSchema = z.strictObject({
  id: z.string(),
  startedAt: z.iso.datetime(),
  endedAt: z.iso.datetime(),
  blame: z.enum(blames).nullable(),
  reason: reasonSchema.nullable(),
})
export type Execution = z.infer<typeof executionSchema>

/** What the harness says of itself; null where it says nothing. Never used for a score. */
export const reportedSchema = z.strictObject({
  harness: z.string(),
  version: z.string().nullable(),
  exitStatus: z.string().nullable(),
  steps: count.nullable(),
  inputTokens: count.nullable(),
  cachedInputTokens: count.nullable(),
  outputTokens: count.nullable(),
  costUsd: z.number().nonnegative().nullable(),
})
export type Reported = z.infer<typeof reportedSchema>

export const phases = ['queue', 'lease', 'agent', 'freeze', 'collect', 'verify', 'close'] as const
export type Phase = (typeof phases)[number]

export const resultSchema = z
  .strictObject({
    schema: z.literal(resultSchemaName),
    trial: z.string(),
    job: z.string(),
    task: z.strictObject({
      name: z.string(),
      digest,
      area: z.string(),
      hardware: z.enum(['cpu', 'h100']),
    }),
    configuration: z.strictObject({
      name: z.string(),
      /** null where no model takes part (noop, oracle, script). */
      model: z.string().nullable(),
      harness: z.string(),
      /** Everything else that was set, as in the plan; never a secret. */
      settings: z.record(z.string(), z.json()),
    }),
    run: z.int().positive(),
    verdict: z.enum(verdicts),
    blame: z.enum(blames).nullable(),
    reason: reasonSchema,
    suites: z.strictObject({ functional: suiteCountsSchema, regression: suiteCountsSchema }),
    tests: z.array(testResultSchema),
    usage: z.strictObject({
      inputTokens: count,
      cachedInputTokens: count,
      /** Part of the input, where a provider bills what it writes to its cache; absent: none. */
      cacheWriteInputTokens: count.optional(),
      outputTokens: count,
      reasoningTokens: count,
      calls: count,
    }),
    costUsd: z.number().nonnegative(),
    steps: count,
    wallTimeMs: milliseconds,
    phasesMs: z.strictObject({
      queue: milliseconds,
      lease: milliseconds,
      agent: milliseconds,
      freeze: milliseconds,
      collect: milliseconds,
      verify: milliseconds,
      close: milliseconds,
    }),
    egress: egressSummarySchema,
    proof: z.strictObject({ before: z.array(canarySchema), after: z.array(canarySchema) }),
    /** A person typed into the trial: recorded, never scored. */
    assisted: z.boolean(),
    digests: z.strictObject({
      image: digest,
      harness: digest,
      policy: digest,
      instruction: digest,
      /** null where no patch was collected. */
      patch: digest.nullable(),
      tests: digest,
    }),
    host: z.strictObject({
      name: z.string(),
      engine: z.string(),
      kernel: z.string(),
      cpus: z.number().positive(),
    }),
    gpus: z.array(z.strictObject({ uuid: z.string(), name: z.string() })),
    executions: z.array(executionSchema).min(1),
    startedAt: z.iso.datetime(),
    endedAt: z.iso.datetime(),
    closedbookVersion: z.string(),
    reported: reportedSchema.nullable(),
    /** What the hidden tests wrote as rewards, every number of it; null or absent where they report tests. */
    rewards: z.record(z.string(), z.number()).nullable().optional(),
    /** Absent where the task asked for no network. Asked for and not given, because the operator said so. */
    network: z
      .strictObject({
        asked: z.enum(['public', 'allowlist']),
        hosts: z.array(z.string()),
        given: z.literal('closed-book'),
      })
      .optional(),
    /** Names of variables that the task was given from the host, which has values for them; absent: none. */
    hostEnv: z.array(z.string()).optional(),
    /** What went otherwise than the task says and isn't a fault, for people. */
    notes: z.array(z.string()).optional(),
  })
  .superRefine((result, context) => {
    const allowed: Readonly<Record<Verdict, readonly (TrialBlame | null)[]>> = {
      passed: [null],
      failed: ['agent'],
      void: ['infra', 'task', 'operator'],
    }
    if (!allowed[result.verdict].includes(result.blame))
      context.addIssue({
        code: 'custom',
        path: ['blame'],
        message: `a ${result.verdict} trial has blame ${allowed[result.verdict].join(', ') || 'null'}, not ${result.blame}`,
      })
    if (result.assisted && result.verdict !== 'void')
      context.addIssue({
        code: 'custom',
        path: ['assisted'],
        message: 'an assisted trial is void, by the operator',
      })
  })

export type TrialResult = z.infer<typeof resultSchema>

/** The four facts of a canary that a result keeps. */
export const resultCanary = ({ canary, expected, seen, audited }: CanaryResult) => ({
  canary,
  expected,
  seen,
  audited,
})

/** The counts of a suite that was not run; `planned` of its tests are missing. */
export const suiteNotRun = (command: string | null, planned: number): SuiteCounts => ({
  planned,
  passed: 0,
  failed: 0,
  missing: planned,
  command,
  exit: null,
})

export const isScored = (result: Pick<TrialResult, 'verdict'>): boolean => result.verdict !== 'void'

/** The bytes of result.json, checked, and their digest. */
export function serializeResult(result: TrialResult): { text: string; digest: string } {
  const parsed = resultSchema.safeParse(result)
  if (!parsed.success)
    throw new RunnerError(
      'result_invalid',
      'infra',
      `the result of trial ${result.trial} breaks ${resultSchemaName}: ${zodMessage(parsed.error)}`,
      { cause: parsed.error },
    )
  const text = `${JSON.stringify(parsed.data, null, 2)}\n`
  return { text, digest: `sha256:${createHash('sha256').update(text).digest('hex')}` }
}

/** Checks, writes whole or not at all, and returns the digest of the bytes on disk. */
export async function writeResult(path: string, result: TrialResult): Promise<string> {
  const { text, digest } = serializeResult(result)
  await writeFileAtomic(path, text)
  return digest
}

export async function readResult(path: string): Promise<TrialResult> {
  const text = await readFile(path, 'utf8').catch((error: unknown) => {
    const missing = systemCode(error) === 'ENOENT'
    throw new RunnerError(
      missing ? 'result_missing' : 'result_invalid',
      'operator',
      missing
        ? `no result at ${path}; the trial has not ended, or its job was moved`
        : `can't read ${path}: ${messageOf(error)}`,
      { cause: error },
    )
  })
  return parseResult(text, path)
}

export function parseResult(text: string, path: string): TrialResult {
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch (error) {
    throw new RunnerError(
      'result_invalid',
      'operator',
      `${path} is not JSON: ${messageOf(error)}`,
      {
        cause: error,
      },
    )
  }
  const parsed = resultSchema.safeParse(value)
  if (parsed.success) return parsed.data
  throw new RunnerError(
    'result_invalid',
    'operator',
    `${path} is not a ${resultSchemaName}: ${zodMessage(parsed.error)}`,
    { cause: parsed.error },
  )
}
