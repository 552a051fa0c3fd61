/** Answers in the shapes of OpenAI's Responses API and Anthropic's Messages API, plain and streamed. */
type Json = Record<string, unknown>
export type Event = Json & { type: string }

const messageUsage = {
  input_tokens: 100,
  cache_creation_input_tokens: 40,
  cache_read_input_tokens: 60,
  output_tokens: 30,
  output_tokens_details: { thinking_tokens: 12 },
}

export const bashUse = {
  type: 'tool_use',
  id: 'toolu_1',
  name: 'bash',
  input: { command: 'ls -la', timeout: 3 },
}

export const message = (fields: Json = {}): Json => ({
  id: 'msg_1',
  type: 'message',
  role: 'assistant',
  model: 'm-1-2025',
  content: [
    { type: 'thinking', thinking: 'Look first.', signature: 'c2ln' },
    { type: 'text', text: 'Let me look.' },
    bashUse,
  ],
  stop_reason: 'tool_use',
  stop_sequence: null,
  usage: messageUsage,
  ...fields,
})

const messageStart = {
  type: 'message_start',
  message: message({
    content: [],
    stop_reason: null,
    usage: { ...messageUsage, output_tokens: 1, output_tokens_details: null },
  }),
}
const blockStart = (index: number, content_block: Json) => ({
  type: 'content_block_start',
  index,
  content_block,
})
export const blockDelta = (index: number, delta: Json) => ({
  type: 'content_block_delta',
  index,
  delta,
})
const blockStop = (index: number) => ({ type: 'content_block_stop', index })

/** The stream of `message()`, as the provider cuts it. */
export const messageEvents = (): Event[] => [
  messageStart,
  blockStart(0, { type: 'thinking', thinking: '', signature: '' }),
  { type: 'ping' },
  blockDelta(0, { type: 'thinking_delta', thinking: 'Look ' }),
  blockDelta(0, { type: 'thinking_delta', thinking: 'first.' }),
  blockDelta(0, { type: 'signature_delta', signature: 'c2ln' }),
  blockStop(0),
  blockStart(1, { type: 'text', text: '' }),
  blockDelta(1, { type: 'text_delta', text: 'Let me' }),
  blockDelta(1, { type: 'text_delta', text: ' look.' }),
  blockStop(1),
  blockStart(2, { ...bashUse, input: {} }),
  blockDelta(2, { type: 'input_json_delta', partial_json: '' }),
  blockDelta(2, { type: 'input_json_delta', partial_json: '{"command": "ls' }),
  blockDelta(2, { type: 'input_json_delta', partial_json: ' -la", "timeout": 3}' }),
  blockStop(2),
  {
    type: 'message_delta',
    delta: { stop_reason: 'tool_use', stop_sequence: null },
    usage: { output_tokens: 30, output_tokens_details: { thinking_tokens: 12 } },
  },
  { type: 'message_stop' },
]

export const bashCall = {
  type: 'function_call',
  id: 'fc_1',
  call_id: 'call_1',
  name: 'bash',
  arguments: '{"command":"ls -la"}',
  status: 'completed',
}

const said = { type: 'output_text', text: 'Let me look.', annotations: [], logprobs: [] }
const saidItem = {
  type: 'message',
  id: 'msg_1',
  role: 'assistant',
  status: 'completed',
  content: [said],
}
const reasoned = { type: 'reasoning', id: 'rs_1', summary: [], encrypted_content: 'ZW5j' }

export const response = (fields: Json = {}): Json => ({
  id: 'resp_1',
  object: 'response',
  created_at: 1764446400,
  status: 'completed',
  error: null,
  incomplete_details: null,
  instructions: null,
  model: 'm-1-2025',
  output: [reasoned, saidItem, bashCall],
  parallel_tool_calls: true,
  tool_choice: 'auto',
  tools: [],
  usage: {
    input_tokens: 200,
    input_tokens_details: { cached_tokens: 60, cache_write_tokens: 40 },
    output_tokens: 30,
    output_tokens_details: { reasoning_tokens: 12 },
    total_tokens: 230,
  },
  ...fields,
})

/** The stream of `response()`, as the provider cuts it. */
export function responseEvents(end: Event = ended()): Event[] {
  const begun = response({ status: 'in_progress', output: [], usage: null })
  const text = { item_id: 'msg_1', output_index: 1, content_index: 0 }
  const call = { item_id: 'fc_1', output_index: 2 }
  const events: Event[] = [
    { type: 'response.created', response: begun },
    { type: 'response.in_progress', response: begun },
    { type: 'response.output_item.added', output_index: 0, item: reasoned },
    { type: 'response.output_item.done', output_index: 0, item: reasoned },
    {
      type: 'response.output_item.added',
      output_index: 1,
      item: { ...saidItem, status: 'in_progress', content: [] },
    },
    { type: 'response.content_part.added', ...text, part: { ...said, text: '' } },
    { type: 'response.output_text.delta', ...text, delta: 'Let me', logprobs: [] },
    { type: 'response.output_text.delta', ...text, delta: ' look.', logprobs: [] },
    { type: 'response.output_text.done', ...text, text: 'Let me look.', logprobs: [] },
    { type: 'response.content_part.done', ...text, part: said },
    { type: 'response.output_item.done', output_index: 1, item: saidItem },
    {
      type: 'response.output_item.added',
      output_index: 2,
      item: { ...bashCall, status: 'in_progress', arguments: '' },
    },
    { type: 'response.function_call_arguments.delta', ...call, delta: '{"command":' },
    { type: 'response.function_call_arguments.delta', ...call, delta: '"ls -la"}' },
    { type: 'response.function_call_arguments.done', ...call, arguments: bashCall.arguments },
    { type: 'response.output_item.done', output_index: 2, item: bashCall },
    end,
  ]
  return events.map((event, sequence_number) => ({ ...event, sequence_number }))
}

const ended = (): Event => ({ type: 'response.completed', response: response() })
