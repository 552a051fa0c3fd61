/**
 * The trajectory in Harbor's format ATIF 1.8, for its viewers and tools. Made from the harness's own trajectory where
 * there is one, else from our steps (whose texts and outputs are cut). The format forbids unknown keys; what it has no
 * place for goes into `extra`.
 */
import type { Step } from '../step-log.ts'
import type { Trajectory } from './trajectory.ts'

export interface AtifMeta {
  readonly session: string
  readonly agent: string
  readonly version: string
  readonly model: string | null
  readonly instruction: string
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
}

export interface Atif {
  readonly schema_version: 'ATIF-v1.8'
  readonly session_id: string
  readonly agent: { readonly name: string; readonly version: string; readonly model_name?: string }
  readonly steps: readonly Readonly<Record<string, unknown>>[]
  readonly final_metrics: Readonly<Record<string, number>>
}

export function atifFromTrajectory(trajectory: Trajectory, meta: AtifMeta): Atif {
  const { system, user } = trajectory.prompt
  const prompt = [
    ...(system === '' ? [] : [{ source: 'system', message: system }]),
    { source: 'user', message: user === '' ? meta.instruction : user },
  ]
  const turns = trajectory.steps.map((step): Turn => ({
    time: step.time,
    text: step.text,
    reasoning: step.reasoning,
    commands: step.commands.map(({ command, output, returnCode }) => ({
      command,
      output: returnCode === null ? null : output,
    })),
    usage: { input: step.inputTokens, cached: step.cachedInputTokens, output: step.outputTokens },
    costUsd: step.costUsd,
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
  }))
  return build([{ source: 'user', message: meta.instruction }], turns, meta)
}

function build(
  prompt: readonly { readonly source: string; readonly message: string }[],
  turns: readonly Turn[],
  meta: AtifMeta,
): Atif {
  const sum = (value: (usage: NonNullable<Turn['usage']>) => number) =>
    turns.reduce((so, { usage }) => so + (usage === null ? 0 : value(usage)), 0)
  return {
    schema_version: 'ATIF-v1.8',
    session_id: meta.session,
    agent: {
      name: meta.agent,
      version: meta.version,
      ...(meta.model !== null && { model_name: meta.model }),
    },
    steps: [
      ...prompt.map((message, index) => ({ step_id: index + 1, ...message })),
      ...turns.map((turn, index) => agentStep(turn, prompt.length + index + 1)),
    ],
    final_metrics: {
      total_prompt_tokens: sum((usage) => usage.input),
      total_completion_tokens: sum((usage) => usage.output),
      total_cached_tokens: sum((usage) => usage.cached),
      total_cost_usd: turns.reduce((so, turn) => so + turn.costUsd, 0),
      total_steps: prompt.length + turns.length,
    },
  }
}

function agentStep(turn: Turn, id: number): Record<string, unknown> {
  const calls = turn.commands.map(({ command, output }, index) => ({
    id: `call_${id}_${index + 1}`,
    command,
    output,
  }))
  const results = calls.flatMap(({ id: source_call_id, output }) =>
    output === null ? [] : [{ source_call_id, content: output }],
  )
  return {
    step_id: id,
    source: 'agent',
    message: turn.text,
    ...(turn.time !== null && { timestamp: turn.time }),
    ...(turn.reasoning !== null && { reasoning_content: turn.reasoning }),
    ...(calls.length > 0 && {
      tool_calls: calls.map(({ id: tool_call_id, command }) => ({
        tool_call_id,
        function_name: 'bash',
        arguments: { command },
      })),
    }),
    ...(results.length > 0 && { observation: { results } }),
    ...(turn.usage !== null && {
      metrics: {
        prompt_tokens: turn.usage.input,
        completion_tokens: turn.usage.output,
        cached_tokens: turn.usage.cached,
        cost_usd: turn.costUsd,
      },
    }),
  }
}

/** Head and tail overlap where the output was short. */
function joinEnds(head: string, tail: string, bytes: number): string {
  if (bytes <= Buffer.byteLength(head)) return head
  return `${head}\n[… ${bytes} bytes in all …]\n${tail}`
}
