/**
 * Reads mini-SWE-agent's trajectory file. Tolerant: the file is rewritten in place after every step, so it may be torn;
 * it is the harness's own account, so nothing in it is used for a score. Reads the formats of mini 1.x and 2.x and both
 * its forms (tool calls, fenced blocks); refuses to guess at others.
 */
export interface TrajectoryCommand {
  readonly command: string
  /** null where mini did not run it (the submitting one, and those after it). */
  readonly returnCode: number | null
  readonly output: string
}

export interface TrajectoryStep {
  readonly n: number
  readonly time: string | null
  readonly text: string
  readonly reasoning: string | null
  readonly commands: readonly TrajectoryCommand[]
  /** The model broke the form that mini asks for; no command was run. */
  readonly formatError: boolean
  readonly inputTokens: number
  readonly cachedInputTokens: number
  readonly outputTokens: number
  readonly reasoningTokens: number
  readonly costUsd: number
}

export interface Trajectory {
  readonly format: string
  readonly version: string | null
  readonly steps: readonly TrajectoryStep[]
  /** "" where mini was stopped before it could say. */
  readonly exitStatus: string
  /** What the last message says: an error's text, or the submission. */
  readonly exitMessage: string
  readonly submission: string
  readonly calls: number | null
  readonly costUsd: number | null
  readonly inputTokens: number
  readonly cachedInputTokens: number
  readonly outputTokens: number
  readonly prompt: { readonly system: string; readonly user: string }
  /** `info.config`: what mini says it used. */
  readonly config: unknown
}

export type TrajectoryRead =
  | { readonly kind: 'whole'; readonly trajectory: Trajectory }
  | { readonly kind: 'torn'; readonly message: string }
  | { readonly kind: 'unknown-format'; readonly message: string }

type Fields = Readonly<Record<string, unknown>>
const fields = (value: unknown): Fields =>
  typeof value === 'object' && value !== null && !Array.isArray(value)
    ? Object.fromEntries(Object.entries(value))
    : {}
const text = (value: unknown): string => (typeof value === 'string' ? value : '')
const number = (value: unknown): number =>
  typeof value === 'number' && Number.isFinite(value) && value > 0 ? value : 0
const list = (value: unknown): readonly unknown[] => (Array.isArray(value) ? value : [])

const formats = ['mini-swe-agent-1', 'mini-swe-agent-1.1']
const largestBytes = 400 * 1024 * 1024

export function readTrajectory(bytes: Uint8Array): TrajectoryRead {
  if (bytes.length > largestBytes)
    return { kind: 'torn', message: `${bytes.length} bytes; over ${largestBytes} are not read` }
  let document: Fields
  try {
    document = fields(JSON.parse(Buffer.from(bytes).toString('utf8')))
  } catch (error) {
    return { kind: 'torn', message: error instanceof Error ? error.message : String(error) }
  }
  const format = text(document['trajectory_format'])
  if (!formats.includes(format))
    return { kind: 'unknown-format', message: `trajectory_format "${format}" is not known` }
  return { kind: 'whole', trajectory: toTrajectory(document, format) }
}

function toTrajectory(document: Fields, format: string): Trajectory {
  const info = fields(document['info'])
  const stats = fields(info['model_stats'])
  const messages = list(document['messages']).map(fields)
  const steps = readSteps(messages)
  const last = messages.at(-1) ?? {}
  const exit = fields(last['extra'])
  const atExit = last['role'] === 'exit' || exit['exit_status'] !== undefined
  const sum = (key: 'inputTokens' | 'cachedInputTokens' | 'outputTokens') =>
    steps.reduce((total, step) => total + step[key], 0)
  return {
    format,
    version: text(info['mini_version']) || null,
    steps,
    exitStatus: text(exit['exit_status']) || text(info['exit_status']),
    exitMessage: atExit ? contentText(last['content']) : '',
    submission: text(exit['submission']) || text(info['submission']),
    calls: typeof stats['api_calls'] === 'number' ? stats['api_calls'] : null,
    costUsd: typeof stats['instance_cost'] === 'number' ? stats['instance_cost'] : null,
    inputTokens: sum('inputTokens'),
    cachedInputTokens: sum('cachedInputTokens'),
    outputTokens: sum('outputTokens'),
    prompt: {
      system: contentText(messages.find((message) => message['role'] === 'system')?.['content']),
      user: contentText(messages.find((message) => message['role'] === 'user')?.['content']),
    },
    config: info['config'] ?? null,
  }
}

/** One step for each answer of the model: an assistant message, or the user message that rejects its form. */
function readSteps(messages: readonly Fields[]): TrajectoryStep[] {
  const steps: TrajectoryStep[] = []
  for (const [index, message] of messages.entries()) {
    const extra = fields(message['extra'])
    const formatError = extra['interrupt_type'] === 'FormatError' && extra['response'] !== undefined
    if (message['role'] !== 'assistant' && !formatError) continue
    const response = fields(extra['response'])
    const answer = formatError ? fields(fields(list(response['choices'])[0])['message']) : message
    const next = messages.findIndex((other, at) => at > index && other['role'] === 'assistant')
    const replies = messages.slice(index + 1, next === -1 ? undefined : next)
    steps.push({
      n: steps.length + 1,
      time: timeText(extra['timestamp'] ?? message['timestamp']),
      text: contentText(answer['content']) || text(extra['model_response']),
      reasoning: text(answer['reasoning_content']) || null,
      commands: formatError ? [] : readCommands(extra, replies),
      formatError,
      ...readUsage(fields(response['usage'])),
      costUsd: number(extra['cost']),
    })
  }
  return steps
}

function readCommands(extra: Fields, replies: readonly Fields[]): TrajectoryCommand[] {
  const observations = replies
    .map((reply) => ({ id: text(reply['tool_call_id']), extra: fields(reply['extra']) }))
    .filter((reply) => reply.extra['returncode'] !== undefined)
  return list(extra['actions']).map((action, index) => {
    const { command, tool_call_id: id } = fields(action)
    const observed = id ? observations.find((reply) => reply.id === id) : observations[index]
    const code = observed?.extra['returncode']
    const notRun = /was not executed/.test(text(observed?.extra['exception_info']))
    return {
      command: typeof command === 'string' ? command : JSON.stringify(command ?? null),
      returnCode: typeof code === 'number' && !notRun ? code : null,
      output: text(observed?.extra['raw_output']),
    }
  })
}

/** Chat completions and Responses name their counts differently; both include reasoning in the output. */
function readUsage(usage: Fields) {
  const inputDetails = fields(usage['prompt_tokens_details'] ?? usage['input_tokens_details'])
  const outputDetails = fields(usage['completion_tokens_details'] ?? usage['output_tokens_details'])
  return {
    inputTokens: number(usage['prompt_tokens'] ?? usage['input_tokens']),
    cachedInputTokens: number(inputDetails['cached_tokens']),
    outputTokens: number(usage['completion_tokens'] ?? usage['output_tokens']),
    reasoningTokens: number(outputDetails['reasoning_tokens']),
  }
}

function contentText(content: unknown): string {
  if (typeof content === 'string') return content
  return list(content)
    .map((part) => text(fields(part)['text']))
    .join('')
}

function timeText(value: unknown): string | null {
  if (typeof value === 'number' && Number.isFinite(value) && Math.abs(value) < 8e12)
    return new Date(value * 1000).toISOString()
  return typeof value === 'string' && !Number.isNaN(Date.parse(value))
    ? new Date(value).toISOString()
    : null
}
