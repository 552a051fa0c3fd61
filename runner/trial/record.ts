/** Puts together the `result.json` of a trial from its plan, what was measured, and its executions. */
import path from 'node:path'
import { isUnset } from '../job/host-values.ts'
import { resultFile } from '../job/layout.ts'
import type { Plan, PlannedTrial } from '../job/plan.ts'
import type { ExecutionState } from '../job/trial-state.ts'
import { RunnerError } from '../errors.ts'
import { resultCanary, resultSchemaName, writeResult, type TrialResult } from '../result.ts'
import type { Measured } from './trial.ts'

export function trialResult(input: {
  plan: Plan
  planned: PlannedTrial
  measured: Measured
  executions: readonly ExecutionState[]
}): TrialResult {
  const { plan, planned, measured, executions } = input
  const task = plan.tasks.find(({ name }) => name === planned.task)
  const configuration = plan.configurations.find(({ name }) => name === planned.configuration)
  if (task === undefined || configuration === undefined)
    throw new RunnerError(
      'plan_invalid',
      'operator',
      `trial ${planned.trial} names a task or configuration that its plan lacks`,
    )
  const hostEnv = Object.entries(task.hostEnv ?? {}).flatMap(([name, value]) =>
    value === isUnset ? [] : [name],
  )
  return {
    schema: resultSchemaName,
    trial: planned.trial,
    job: plan.job,
    task: { name: task.name, digest: task.digest, area: task.area, hardware: task.hardware },
    configuration: {
      name: configuration.name,
      model: configuration.model,
      harness: configuration.harness,
      settings: configuration.settings,
    },
    run: planned.run,
    verdict: measured.verdict,
    blame: measured.blame,
    reason: measured.reason,
    suites: measured.suites,
    tests: [...measured.tests],
    usage: measured.usage,
    costUsd: measured.costUsd,
    steps: measured.steps,
    wallTimeMs: measured.wallTimeMs,
    phasesMs: measured.phasesMs,
    egress: measured.egress,
    proof: {
      before: measured.proof.before.map(resultCanary),
      after: measured.proof.after.map(resultCanary),
    },
    assisted: measured.assisted,
    digests: {
      image: task.image,
      harness: configuration.harnessDigest,
      policy: measured.policyDigest ?? configuration.policyDigest,
      instruction: task.instructionDigest,
      patch: measured.patchDigest,
      tests: task.testsDigest,
    },
    host: measured.host,
    gpus: [...measured.gpus],
    executions: executions.map(({ execution, startedAt, endedAt, blame, reason }) => ({
      id: execution,
      startedAt,
      endedAt: endedAt ?? measured.endedAt,
      blame,
      reason,
    })),
    startedAt: executions[0]?.startedAt ?? measured.startedAt,
    endedAt: measured.endedAt,
    closedbookVersion: plan.closedbookVersion,
    reported: measured.reported,
    ...(measured.rewards !== null && { rewards: { ...measured.rewards } }),
    ...(task.network !== undefined && { network: { ...task.network, given: 'closed-book' } }),
    ...(hostEnv.length > 0 && { hostEnv }),
    ...(measured.notes.length > 0 && { notes: [...measured.notes] }),
  }
}

/** The same, written to its place at once: for those who keep no store. */
export async function recordTrial(
  input: Parameters<typeof trialResult>[0] & { readonly jobDir: string },
): Promise<{ result: TrialResult; digest: string; path: string }> {
  const result = trialResult(input)
  const file = resultFile(input.jobDir, input.planned.trial)
  const digest = await writeResult(file, result)
  return { result, digest, path: path.relative(input.jobDir, file) }
}
