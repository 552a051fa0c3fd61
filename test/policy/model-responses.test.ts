import t from 'tap'
import { decideResponsesRequest } from '../../policy/model-responses.ts'

const spec = { model: 'm-1' }
const user = { role: 'user', content: 'hi' }
const pixel = 'iVBORw0KGgo='
const image = `data:image/png;base64,${pixel}`
const elsewhere = 'https://198.51.100.7/x'

const responses = (fields: object) =>
  decideResponsesRequest(spec, { model: 'm-1', input: 'hi', ...fields })
type Denied = readonly [object, string, string, string]
type Allowed = readonly [object, string]

const item = (...input: unknown[]) => ({ input })
const part = (...content: unknown[]) => item({ role: 'user', content })
const tool = (...tools: unknown[]) => ({ tools })
const bash = { type: 'function', name: 'bash', parameters: { type: 'object', properties: {} } }

void t.test('a Responses request that stays between sandbox and model is allowed', (t) => {
  const table: readonly Allowed[] = [
    [{}, 'text alone'],
    [{ instructions: 'be brief', max_output_tokens: 9, temperature: 0, top_p: 1 }, 'sampling'],
    [{ store: false, background: false, metadata: null, previous_response_id: null }, 'no state'],
    [{ stream: true, stream_options: { include_obfuscation: false } }, 'a stream'],
    [{ reasoning: { effort: 'high', summary: 'auto', mode: 'standard' } }, 'effort'],
    [{ include: ['reasoning.encrypted_content'] }, 'reasoning that is carried along'],
    [{ service_tier: 'auto', truncation: 'auto', prompt_cache_retention: 'in_memory' }, 'defaults'],
    [
      { text: { format: { type: 'json_schema', name: 'x', schema: {} }, verbosity: 'low' } },
      'JSON answers',
    ],
    [
      {
        tools: [
          { ...bash, strict: true, description: null, allowed_callers: ['direct'] },
          { type: 'custom', name: 'sql', format: { type: 'text' } },
        ],
        tool_choice: { type: 'allowed_tools', mode: 'auto', tools: [{ type: 'function' }] },
        parallel_tool_calls: false,
      },
      'tools of the sandbox',
    ],
    [
      item(
        user,
        { type: 'message', role: 'developer', content: [{ type: 'input_text', text: 'x' }] },
        { type: 'reasoning', id: 'rs_1', summary: [], encrypted_content: 'ZW5j', status: null },
        {
          type: 'message',
          id: 'msg_1',
          role: 'assistant',
          status: 'completed',
          phase: 'commentary',
          content: [
            { type: 'output_text', text: 'x', annotations: [], logprobs: [{ token: 'x' }] },
            { type: 'refusal', refusal: 'no' },
          ],
        },
        {
          type: 'function_call',
          id: 'fc_1',
          call_id: 'call_1',
          name: 'no such tool!',
          arguments: '{"url": "https://198.51.100.7/"}',
          caller: { type: 'direct' },
        },
        { type: 'function_call_output', call_id: 'call_1', output: 'see https://198.51.100.7/' },
        { type: 'custom_tool_call', call_id: 'call_2', name: 'sql', input: 'select 1' },
        {
          type: 'custom_tool_call_output',
          call_id: 'call_2',
          output: [
            { type: 'input_text', text: '1' },
            { type: 'input_image', image_url: image, detail: 'auto', file_id: null },
          ],
        },
      ),
      'a conversation that is sent whole',
    ],
    [
      part(
        { type: 'input_image', image_url: image, detail: 'low' },
        {
          type: 'input_file',
          filename: 'a.pdf',
          file_data: 'data:application/pdf;base64,JVBERi0=',
        },
        { type: 'input_audio', input_audio: { data: pixel, format: 'wav' } },
      ),
      'data in the request',
    ],
  ]
  for (const [fields, why] of table)
    t.match(responses(fields), { action: 'allow', message: 'allowed' }, why)
  t.end()
})

void t.test(
  'a Responses request for what the provider would run, fetch or keep is refused',
  (t) => {
    const state = 'body_field_denied'
    const refused = 'tool_denied'
    const remote = 'remote_url_denied'
    const table: readonly Denied[] = [
      [{ model: 'm-2' }, 'model_denied', 'model', 'another model'],
      [{ input: null }, 'body_invalid', 'input', 'no input'],
      [{ input: 7 }, 'body_invalid', 'input', 'input that is no text'],
      [{ store: true }, state, 'store', 'kept'],
      [{ previous_response_id: 'resp_1' }, state, 'previous_response_id', 'kept'],
      [{ conversation: 'conv_1' }, state, 'conversation', 'kept'],
      [{ background: true }, state, 'background', 'fetched later'],
      [{ background_options: {} }, state, 'background_options', 'fetched later'],
      [{ prompt: { id: 'pmpt_1' } }, state, 'prompt', 'kept, with tools of its own'],
      [{ metadata: { a: 'b' } }, state, 'metadata', 'kept'],
      [{ context_management: [] }, state, 'context_management', 'unknown'],
      [{ moderation: { model: 'x' } }, state, 'moderation', 'another model'],
      [{ service_tier: 'flex' }, state, 'service_tier', 'another price'],
      [{ reasoning: { mode: 'pro' } }, state, 'reasoning.mode', 'another price'],
      [{ prompt_cache_options: { ttl: '12h' } }, state, 'prompt_cache_options', 'another price'],
      [{ extra: 1 }, state, 'extra', 'nobody knows it'],
      [{ truncation: 'x' }, state, 'truncation', 'unknown'],
      [
        { include: ['web_search_call.action.sources'] },
        refused,
        'include[0]',
        'results of a search',
      ],
      [{ include: ['file_search_call.results'] }, refused, 'include[0]', 'results of a search'],
      [{ include: ['code_interpreter_call.outputs'] }, refused, 'include[0]', 'results of code'],
      ...[
        'web_search',
        'web_search_2025_08_26',
        'web_search_preview',
        'file_search',
        'code_interpreter',
        'computer',
        'computer_use_preview',
        'image_generation',
        'mcp',
        'local_shell',
        'shell',
        'apply_patch',
        'tool_search',
        'namespace',
        'programmatic_tool_calling',
      ].map((type): Denied => [tool(bash, { type, name: 'x' }), refused, 'tools[1].type', type]),
      [tool({ ...bash, name: '$web_search' }), refused, 'tools[0].name', 'a builtin'],
      [tool({ type: 'function' }), refused, 'tools[0].name', 'no name'],
      [tool({ ...bash, server_url: elsewhere }), refused, 'tools[0].server_url', 'more beside it'],
      [
        tool({ ...bash, defer_loading: true }),
        refused,
        'tools[0].defer_loading',
        'a search of tools',
      ],
      [
        tool({ ...bash, allowed_callers: ['programmatic'] }),
        state,
        'tools[0].allowed_callers[0]',
        'a program at the provider',
      ],
      [tool('web_search'), refused, 'tools[0]', 'a tool that is only a name'],
      [
        { tool_choice: { type: 'web_search_preview' } },
        refused,
        'tool_choice.type',
        'choosing one',
      ],
      [{ tool_choice: 'web_search' }, refused, 'tool_choice', 'choosing one by name'],
      [
        { tool_choice: { type: 'allowed_tools', tools: [{ type: 'mcp' }] } },
        refused,
        'tool_choice.tools[0].type',
        'within a set',
      ],
      ...[
        'web_search_call',
        'file_search_call',
        'computer_call',
        'code_interpreter_call',
        'image_generation_call',
        'mcp_list_tools',
        'mcp_call',
        'mcp_approval_response',
        'local_shell_call',
        'shell_call_output',
        'apply_patch_call',
        'tool_search_output',
        'additional_tools',
        'program',
      ].map((type): Denied => [item(user, { type, id: 'x' }), refused, 'input[1].type', type]),
      [item({ type: 'item_reference', id: 'x' }), state, 'input[0]', 'what was kept'],
      [item({ id: 'msg_1' }), state, 'input[0]', 'what was kept, without its type'],
      [item({ type: 'compaction', encrypted_content: 'x' }), state, 'input[0].type', 'unknown'],
      [item({ type: 'configuration_update' }), state, 'input[0].type', 'unknown'],
      [item('text'), 'body_invalid', 'input[0]', 'no object'],
      [item({ role: 'root', content: 'x' }), 'body_invalid', 'input[0].role', 'unknown role'],
      [item({ ...user, content: 7 }), 'body_invalid', 'input[0].content', 'no text'],
      [item({ ...user, file_ids: ['x'] }), remote, 'input[0].file_ids', 'what was stored'],
      [
        item({ type: 'function_call', name: 'x', arguments: '', caller: { type: 'program' } }),
        state,
        'input[0].caller.type',
        'a program at the provider',
      ],
      [
        part({ type: 'input_image', image_url: elsewhere }),
        remote,
        'input[0].content[0].image_url',
        'fetched',
      ],
      [
        part({ type: 'input_image', file_id: 'file-1' }),
        remote,
        'input[0].content[0].file_id',
        'stored',
      ],
      [
        part({ type: 'input_file', file_url: elsewhere }),
        remote,
        'input[0].content[0].file_url',
        'fetched',
      ],
      [part({ type: 'input_file', file_id: 'f' }), remote, 'input[0].content[0].file_id', 'stored'],
      [
        part({ type: 'input_file', file_data: elsewhere }),
        remote,
        'input[0].content[0].file_data',
        'fetched',
      ],
      [part({ type: 'image_url' }), state, 'input[0].content[0].type', 'a part of another API'],
      [
        item({
          type: 'function_call_output',
          output: [{ type: 'input_file', file_url: elsewhere }],
        }),
        remote,
        'input[0].output[0].file_url',
        'fetched, from the output of a tool',
      ],
      [
        part({ type: 'output_text', text: 'x', annotations: [{ type: 'file_citation' }] }),
        state,
        'input[0].content[0].annotations',
        'what a tool found',
      ],
    ]
    for (const [fields, reason, rule, why] of table) {
      const decision = responses(fields)
      t.strictSame([decision.action, decision.reason, decision.rule], ['deny', reason, rule], why)
    }
    t.end()
  },
)
