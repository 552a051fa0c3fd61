/**
 * The trajectory in Harbor's format ATIF, 1.7 or 1.8, for its viewers and tools. Made from the harness's own trajectory
 * where there is one, else from our steps (whose texts and outputs are cut). What the agent chose to print, and what its
 * harness claims, may be anything: it is brought into the form that the format wants, or left out.
 */
import type { Step } from '../step-log.ts'
import type { Atif, AtifStep, AtifVersion } from './atif-schema.ts'
import type { Trajectory } from './trajectory.ts'

export interface AtifMeta {
  readonly session: string
  readonly agent: string
  readonly version: string
  readonly model: string | null
  readonly instruction: string
  readonly atif: AtifVersion
}

interface Turn {
  readonly time: string | null
  readonly text: string
  readonly reasoning: string | null
  readonly commands: readonly { readonly command: string; readonly output: string | null }[]
  readonly usage: {
    readonly input: number
    readonly cached: number
    readonly output: number
  } | null
  readonly costUsd: number
  /** null: not known. */
  readonly modelCalls: 0 | 1 | null
  readonly denied: Step['denied']
}

interface Prompt {
  readonly source: 'system' | 'user'
  readonly message: string
}

/** `seen`: our own steps of the same trial; refusals are told where they are as many as the harness's. */
export function atifFromTrajectory(
  trajectory: Trajectory,
  meta: AtifMeta,
  seen: readonly Step[] = [],
): Atif {
  const { system, user } = trajectory.prompt
  const prompt: Prompt[] = [
    ...(system === '' ? [] : [{ source: 'system' as const, message: system }]),
    { source: 'user', message: user === '' ? meta.instruction : user },
  ]
  const same = seen.length === trajectory.steps.length ? seen : []
  const turns = trajectory.steps.map((step, index): Turn => ({
    time: step.time,
    text: step.text,
    reasoning: step.reasoning,
    commands: step.commands.map(({ command, output, returnCode }) => ({
      command,
      output: returnCode === null ? null : output,
    })),
    usage: { input: step.inputTokens, cached: step.cachedInputTokens, output: step.outputTokens },
    costUsd: step.costUsd,
    modelCalls: 1,
    denied: same[index]?.denied ?? [],
  }))
  return build(prompt, turns, meta)
}

export function atifFromSteps(steps: readonly Step[], meta: AtifMeta): Atif {
  const turns = steps.map((step): Turn => ({
    time: step.time,
    text: step.text ?? '',
    reasoning: null,
    commands: step.commands.map(({ command, head, tail, outputBytes }) => ({
      command,
      output: joinEnds(head, tail, outputBytes ?? 0),
    })),
    usage:
      step.tokens === null
        ? null
        : { input: step.tokens.input, cached: step.tokens.cachedInput, output: step.tokens.output },
    costUsd: step.costUsd,
    modelCalls: step.tokens === null ? (meta.model === null ? 0 : null) : 1,
    denied: step.denied,
  }))
  return build([{ source: 'user', message: meta.instruction }], turns, meta)
}

function build(prompt: readonly Prompt[], turns: readonly Turn[], meta: AtifMeta): Atif {
  const steps = [
    ...prompt.map(({ source, message }, index) => ({
      step_id: index + 1,
      source,
      message: message.toWellFormed(),
    })),
    ...turns.map((turn, index) => agentStep(turn, prompt.length + index + 1)),
  ]
  const sum = (value: (usage: NonNullable<Turn['usage']>) => number) =>
    turns.reduce((so, { usage }) => so + (usage === null ? 0 : whole(value(usage))), 0)
  return {
    schema_version: `ATIF-v${meta.atif}`,
    session_id: meta.session,
    agent: {
      name: meta.agent,
      version: meta.version.toWellFormed(),
      ...(meta.model !== null && { model_name: meta.model }),
    },
    steps,
    final_metrics: {
      total_prompt_tokens: sum((usage) => usage.input),
      total_completion_tokens: sum((usage) => usage.output),
      total_cached_tokens: sum((usage) => usage.cached),
      total_cost_usd: turns.reduce((so, turn) => so + turn.costUsd, 0),
      total_steps: steps.length,
    },
  }
}

function agentStep(turn: Turn, id: number): AtifStep {
  const calls = turn.commands.map(({ command, output }, index) => ({
    id: `call_${id}_${index + 1}`,
    command,
    output,
  }))
  const results = calls.flatMap(({ id: source_call_id, output }) =>
    output === null ? [] : [{ source_call_id, content: output.toWellFormed() }],
  )
  return {
    step_id: id,
    ...(isTimestamp(turn.time) && { timestamp: turn.time }),
    source: 'agent',
    message: turn.text.toWellFormed(),
    ...(turn.reasoning !== null && { reasoning_content: turn.reasoning.toWellFormed() }),
    ...(calls.length > 0 && {
      tool_calls: calls.map(({ id: tool_call_id, command }) => ({
        tool_call_id,
        function_name: 'bash' as const,
        arguments: { command: command.toWellFormed() },
      })),
    }),
    ...(results.length > 0 && { observation: { results } }),
    ...(turn.usage !== null && {
      metrics: {
        prompt_tokens: whole(turn.usage.input),
        completion_tokens: whole(turn.usage.output),
        cached_tokens: whole(turn.usage.cached),
        cost_usd: turn.costUsd,
      },
    }),
    ...(turn.modelCalls !== null && { llm_call_count: turn.modelCalls }),
    ...(turn.denied.length > 0 && {
      extra: {
        denied: turn.denied.map(({ protocol, target, reason, count }) => ({
          protocol,
          target: target.toWellFormed(),
          reason,
          count,
        })),
      },
    }),
  }
}

/** A harness may claim half a token. */
const whole = (tokens: number): number => Math.min(Math.round(tokens), Number.MAX_SAFE_INTEGER)

/** Not of a year that takes more than four digits, which a date may have that a harness claims. */
const isTimestamp = (time: string | null): time is string =>
  time !== null && /^\d{4}-\d\d-\d\dT/.test(time) && !time.startsWith('0000')

/** Head and tail overlap where the output was short. */
function joinEnds(head: string, tail: string, bytes: number): string {
  if (bytes <= Buffer.byteLength(head)) return head
  return `${head}\n[… ${bytes} bytes in all …]\n${tail}`
}
