/**
 * A trial's `result.json` as Harbor 0.26 writes it (schema version 1), for its viewers and tools. A failure of the agent
 * counts there too: without rewards of its own it has `{"reward": 0}`, so that it stays in the mean; a void trial has
 * no rewards, and an exception that says why. Token counts and costs are ours. Pure.
 */
import { createHash } from 'node:crypto'
import type { Measured } from '../trial/trial.ts'

export interface HarborTrialInput {
  readonly task: { readonly name: string; readonly dir: string; readonly digest: string }
  readonly trial: string
  readonly execution: string
  /** Where the document lies. */
  readonly directory: string
  readonly separate: boolean
  readonly harness: { readonly kind: string; readonly version: string }
  readonly model: string | null
  readonly measured: Measured
}

export type HarborTrialResult = Readonly<Record<string, unknown>>

const agentNames: Readonly<Record<string, string>> = { noop: 'nop' }

export function harborTrialResult(input: HarborTrialInput): HarborTrialResult {
  const { task, trial, measured, model, separate } = input
  const agent = agentNames[input.harness.kind] ?? input.harness.kind
  const rewards = rewardsOf(measured)
  const exception = exceptionOf(measured)
  const modelInfo = model === null ? null : modelOf(model)
  return {
    schema_version: 1,
    id: uuidOf(`${trial}\n${input.execution}`),
    task_name: task.name,
    trial_name: trial,
    trial_uri: `file://${input.directory}`,
    task_id: { path: task.dir },
    source: null,
    task_checksum: task.digest.replace(/^sha256:/, ''),
    config: {
      task: { path: task.dir },
      trial_name: trial,
      agent: { name: agent, ...(model !== null && { model_name: model }) },
      environment: { type: 'docker' },
    },
    agent_info: { name: agent, version: input.harness.version, model_info: modelInfo },
    agent_result: agentResult(measured, model),
    verifier_result: rewards === null ? null : { rewards },
    verifier_environment_mode: separate ? 'separate' : 'shared',
    exception_info: exception,
    started_at: measured.startedAt,
    finished_at: measured.endedAt,
    ...timings(measured),
    step_results: null,
    reward_valid: rewards !== null && exception === null,
  }
}

function rewardsOf({ verdict, rewards }: Measured): Readonly<Record<string, number>> | null {
  if (verdict === 'void') return null
  return rewards ?? { reward: verdict === 'passed' ? 1 : 0 }
}

/** Only for a void trial: one that Harbor drops as well. */
function exceptionOf({ verdict, blame, reason, endedAt }: Measured): HarborTrialResult | null {
  if (verdict !== 'void') return null
  const name = reason.code.replace(/(?:^|[_-])(\w)/g, (_all, letter: string) =>
    letter.toUpperCase(),
  )
  return {
    exception_type: `Closedbook${name}`,
    exception_message: `${reason.message} (blame: ${blame ?? 'unknown'})`,
    exception_traceback: '',
    occurred_at: endedAt,
  }
}

function agentResult(measured: Measured, model: string | null): HarborTrialResult {
  const { usage, costUsd, steps, verdict, blame, reason, egress } = measured
  const metadata = { steps, verdict, blame, reason: { ...reason }, blocked_attempts: egress.denied }
  if (model === null) return { metadata }
  const counts = {
    n_input_tokens: usage.inputTokens,
    n_cache_tokens: usage.cachedInputTokens,
    n_output_tokens: usage.outputTokens,
    cost_usd: costUsd,
  }
  return { ...counts, model_usage: { [model]: counts }, metadata }
}

/** `provider/name` where the name says so. */
function modelOf(model: string): HarborTrialResult {
  const slash = model.indexOf('/')
  return slash === -1
    ? { name: model, provider: null }
    : { name: model.slice(slash + 1), provider: model.slice(0, slash) }
}

/** Phases follow each other; Harbor has no place for freezing and collecting, which lie between agent and verifier. */
function timings({ startedAt, phasesMs }: Measured): HarborTrialResult {
  let at = Date.parse(startedAt)
  const phase = (ms: number): HarborTrialResult => {
    const started_at = new Date(at).toISOString()
    at += ms
    return { started_at, finished_at: new Date(at).toISOString() }
  }
  const environment_setup = phase(phasesMs.lease)
  const agent_setup = phase(0)
  const agent_execution = phase(phasesMs.agent)
  at += phasesMs.freeze + phasesMs.collect
  return { environment_setup, agent_setup, agent_execution, verifier: phase(phasesMs.verify) }
}

/** The same trial and execution always have the same id. */
function uuidOf(text: string): string {
  const hex = createHash('sha256').update(text).digest('hex')
  const variant = ((Number.parseInt(hex[16] ?? '0', 16) & 0x3) | 0x8).toString(16)
  return [
    hex.slice(0, 8),
    hex.slice(8, 12),
    `8${hex.slice(13, 16)}`,
    `${variant}${hex.slice(17, 20)}`,
    hex.slice(20, 32),
  ].join('-')
}
