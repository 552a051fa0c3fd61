import t from 'tap'
import {
  decideCountRequest,
  decideMessagesRequest,
  type MessagesHeaders,
} from '../../policy/model-messages.ts'

const spec = { model: 'm-1' }
const noHeaders: MessagesHeaders = { version: undefined, betas: [] }
const user = { role: 'user', content: 'hi' }
const pixel = 'iVBORw0KGgo='
const elsewhere = 'https://198.51.100.7/x'
const tool = (...tools: unknown[]) => ({ tools })

const messages = (fields: object, headers = noHeaders) =>
  decideMessagesRequest(
    spec,
    { model: 'm-1', max_tokens: 64, messages: [user], ...fields },
    headers,
  )

type Denied = readonly [object, string, string, string]
type Allowed = readonly [object, string]

const block = (...content: unknown[]) => ({ messages: [{ role: 'user', content }] })
const base64 = { type: 'base64', media_type: 'image/png', data: pixel }
const shell = { name: 'bash', input_schema: { type: 'object', properties: { url: {} } } }

void t.test('a Messages request that stays between sandbox and model is allowed', (t) => {
  const ephemeral = { cache_control: { type: 'ephemeral', ttl: '5m' } }
  const table: readonly Allowed[] = [
    [{}, 'text alone'],
    [{ system: 'x', temperature: 0, top_k: 1, stop_sequences: ['x'], stream: true }, 'sampling'],
    [{ system: [{ type: 'text', text: 'x', ...ephemeral }], ...ephemeral }, 'marks for the cache'],
    [{ thinking: { type: 'enabled', budget_tokens: 1024 } }, 'thinking'],
    [{ output_config: { effort: 'high', format: { type: 'json_schema', schema: {} } } }, 'JSON'],
    [{ metadata: { user_id: 'x' }, service_tier: 'standard_only', speed: 'standard' }, 'defaults'],
    [{ container: null, mcp_servers: null }, 'null is as good as absent'],
    [
      {
        tools: [
          { ...shell, type: 'custom', description: 'run', ...ephemeral },
          { ...shell, type: null, strict: true, input_examples: [{ url: elsewhere }] },
          { type: 'bash_20250124', name: 'bash' },
          { type: 'text_editor_20250728', name: 'str_replace_based_edit_tool', max_characters: 9 },
        ],
        tool_choice: { type: 'tool', name: 'bash', disable_parallel_tool_use: true },
      },
      'tools of the sandbox',
    ],
    [
      {
        messages: [
          user,
          {
            role: 'assistant',
            content: [
              { type: 'thinking', thinking: 'x', signature: 'c2ln' },
              { type: 'redacted_thinking', data: 'eA==' },
              {
                type: 'text',
                text: 'x',
                citations: [{ type: 'char_location', cited_text: 'x', document_index: 0 }],
              },
              {
                type: 'tool_use',
                id: 'toolu_1',
                name: 'bash',
                input: { url: elsewhere },
                caller: { type: 'direct' },
              },
            ],
          },
          {
            role: 'user',
            content: [
              { type: 'tool_result', tool_use_id: 'toolu_1', is_error: true, content: elsewhere },
              {
                type: 'tool_result',
                tool_use_id: 'toolu_2',
                content: [
                  { type: 'text', text: 'x' },
                  { type: 'image', source: base64 },
                ],
              },
            ],
          },
          { role: 'system', content: 'x' },
        ],
      },
      'a conversation',
    ],
    [
      block(
        { type: 'image', source: base64, ...ephemeral },
        {
          type: 'document',
          title: 'a',
          citations: { enabled: true },
          source: { type: 'base64', media_type: 'application/pdf', data: 'JVBERi0=' },
        },
        { type: 'document', source: { type: 'text', media_type: 'text/plain', data: 'x' } },
        { type: 'document', source: { type: 'content', content: [{ type: 'text', text: 'x' }] } },
      ),
      'data in the request',
    ],
  ]
  for (const [fields, why] of table)
    t.match(messages(fields), { action: 'allow', message: 'allowed' }, why)
  const betas = ['interleaved-thinking-2025-05-14', 'prompt-caching-2024-07-31']
  t.match(messages({}, { version: '2023-06-01', betas }), { action: 'allow' })
  t.end()
})

void t.test('a Messages request for what the provider would run, fetch or keep is refused', (t) => {
  const unknown = 'body_field_denied'
  const refused = 'tool_denied'
  const remote = 'remote_url_denied'
  const table: readonly Denied[] = [
    [{ model: 'm-1:online' }, 'model_denied', 'model', 'a variant that searches'],
    [{ max_tokens: null }, 'body_invalid', 'max_tokens', 'no limit'],
    [{ messages: [] }, 'body_invalid', 'messages', 'no message'],
    [{ mcp_servers: [{ type: 'url', url: elsewhere }] }, unknown, 'mcp_servers', 'hosted tools'],
    [{ container: 'container_1' }, unknown, 'container', 'code at the provider'],
    [{ context_management: {} }, unknown, 'context_management', 'unknown'],
    [{ betas: ['x'] }, unknown, 'betas', 'belongs into the header'],
    [{ service_tier: 'priority' }, unknown, 'service_tier', 'another price'],
    [{ speed: 'fast' }, unknown, 'speed', 'another price'],
    [{ inference_geo: 'us' }, unknown, 'inference_geo', 'another price'],
    [{ metadata: { trace: 'x' } }, unknown, 'metadata.trace', 'unknown'],
    [{ cache_control: { type: 'ephemeral', ttl: '1h' } }, unknown, 'cache_control.ttl', 'price'],
    [{ thinking: { a: {} } }, 'body_invalid', 'thinking.a', 'a structure where values belong'],
    [{ output_config: { task_budget: {} } }, unknown, 'output_config.task_budget', 'unknown'],
    ...[
      'web_search_20250305',
      'web_search_20260318',
      'web_fetch_20250910',
      'code_execution_20250825',
      'computer_20250124',
      'computer_toolset_20260801',
      'browser_toolset_20260801',
      'memory_20250818',
      'tool_search_tool_bm25_20251119',
      'mcp_toolset',
      'bash_code_execution_20250825',
      'bash_20250124x',
    ].map((type): Denied => [tool(shell, { type, name: 'x' }), refused, 'tools[1].type', type]),
    [tool({ name: '$web_search' }), refused, 'tools[0].name', 'a builtin'],
    [tool({ ...shell, url: elsewhere }), refused, 'tools[0].url', 'more beside it'],
    [tool({ ...shell, defer_loading: true }), refused, 'tools[0].defer_loading', 'tool search'],
    [
      tool({ ...shell, allowed_callers: ['code_execution_20250825'] }),
      unknown,
      'tools[0].allowed_callers[0]',
      'a program at the provider',
    ],
    [tool('web_search'), refused, 'tools[0]', 'a tool that is only a name'],
    [{ tool_choice: { type: 'web_search' } }, refused, 'tool_choice.type', 'choosing one'],
    ...[
      'server_tool_use',
      'web_search_tool_result',
      'web_fetch_tool_result',
      'code_execution_tool_result',
      'tool_search_tool_result',
      'mcp_tool_use',
      'mcp_tool_result',
    ].map((type): Denied => [block({ type }), refused, 'messages[0].content[0].type', type]),
    [
      block({ type: 'container_upload', file_id: 'x' }),
      unknown,
      'messages[0].content[0].type',
      'x',
    ],
    [block({ type: 'image_url' }), unknown, 'messages[0].content[0].type', 'of another API'],
    [block('x'), 'body_invalid', 'messages[0].content[0]', 'no object'],
    ...[
      { type: 'url', url: elsewhere },
      { type: 'file', file_id: 'file_1' },
      { url: elsewhere },
    ].flatMap((source): Denied[] => [
      [block({ type: 'image', source }), remote, 'messages[0].content[0].source.type', 'fetched'],
      [
        block({ type: 'document', source }),
        remote,
        'messages[0].content[0].source.type',
        'fetched',
      ],
      [
        block({ type: 'tool_result', content: [{ type: 'image', source }] }),
        remote,
        'messages[0].content[0].content[0].source.type',
        'fetched, from the output of a tool',
      ],
      [
        block({
          type: 'document',
          source: { type: 'content', content: [{ type: 'image', source }] },
        }),
        remote,
        'messages[0].content[0].source.content[0].source.type',
        'fetched, from within a document',
      ],
    ]),
    [
      block({ type: 'image', source: { ...base64, url: elsewhere } }),
      remote,
      'messages[0].content[0].source.url',
      'a URL beside the data',
    ],
    [
      block({ type: 'image', source: { ...base64, media_type: 'image/svg+xml' } }),
      unknown,
      'messages[0].content[0].source.media_type',
      'an image that refers to others',
    ],
    [
      block({ type: 'image', source: { ...base64, data: elsewhere } }),
      remote,
      'messages[0].content[0].source.data',
      'no data',
    ],
    [
      block({ type: 'text', text: 'x', citations: [{ type: 'web_search_result_location' }] }),
      refused,
      'messages[0].content[0].citations[0].type',
      'what a search found',
    ],
    [
      block({ type: 'tool_use', input: {}, caller: { type: 'code_execution_20250825' } }),
      unknown,
      'messages[0].content[0].caller.type',
      'a program at the provider',
    ],
    [{ messages: [{ role: 'root', content: 'x' }] }, 'body_invalid', 'messages[0].role', 'role'],
    [{ system: [{ type: 'image' }] }, unknown, 'system[0].type', 'a system prompt is text'],
  ]
  for (const [fields, reason, rule, why] of table) {
    const decision = messages(fields)
    t.strictSame([decision.action, decision.reason, decision.rule], ['deny', reason, rule], why)
  }
  for (const beta of [
    'files-api-2025-04-14',
    'mcp-client-2025-11-20',
    'code-execution-2025-05-22',
    'context-1m-2025-08-07',
    'skills-2025-10-02',
    'constructor',
  ])
    t.match(messages({}, { version: undefined, betas: [beta] }), {
      action: 'deny',
      reason: 'body_field_denied',
      rule: 'anthropic-beta',
    })
  t.match(messages({}, { version: '2024-01-01', betas: [] }), {
    reason: 'body_invalid',
    rule: 'anthropic-version',
  })
  t.end()
})

void t.test('a count of tokens is judged as the request that it counts', (t) => {
  const count = (fields: object) =>
    decideCountRequest(spec, { model: 'm-1', messages: [user], ...fields }, noHeaders)
  t.match(count({ system: 'x', tools: [shell] }), { action: 'allow' })
  const source = { type: 'url', url: elsewhere }
  t.match(count(block({ type: 'image', source })), { action: 'deny', reason: 'remote_url_denied' })
  t.match(count({ tools: [{ type: 'web_search_20250305' }] }), { reason: 'tool_denied' })
  t.match(count({ max_tokens: 9 }), { reason: 'body_field_denied', rule: 'max_tokens' })
  t.match(count({ model: 'm-2' }), { reason: 'model_denied' })
  t.end()
})
