import t from 'tap'
import { decideModelRequest, isSearchGrounded } from '../../policy/model-request.ts'

const user = { role: 'user', content: 'hi' }
const base = { model: 'm-1', messages: [user] }
const bash = {
  type: 'function',
  function: { name: 'bash', description: 'run', parameters: { type: 'object', properties: {} } },
}
const pixel = 'data:image/png;base64,iVBORw0KGgo='
const parts = (...content: unknown[]) => ({ messages: [{ role: 'user', content }] })
const message = (fields: object) => ({ messages: [user, fields] })
const image = (image_url: unknown) => parts({ type: 'image_url', image_url })

void t.test('what stays between the sandbox and the model is allowed', (t) => {
  const table: [object, string][] = [
    [{}, 'model and messages alone'],
    [
      { tools: [bash], tool_choice: 'auto', parallel_tool_calls: true },
      'as mini-SWE-agent sends it',
    ],
    [{ temperature: 0, top_p: 1, max_tokens: 4096, seed: 7, stop: ['\n', 'x'] }, 'sampling'],
    [{ top_k: 40, min_p: 0.1, repetition_penalty: 1.1 }, 'sampling of open model servers'],
    [{ reasoning_effort: 'high', reasoning: { effort: 'high' }, verbosity: 'low' }, 'effort'],
    [
      { stream: true, stream_options: { include_usage: true, include_obfuscation: false } },
      'streams',
    ],
    [{ stream: null, tools: null, store: null, plugins: null }, 'null is as good as absent'],
    [{ service_tier: 'default', safety_identifier: 'x' }, 'the standard price'],
    [{ store: false, modalities: ['text'] }, 'the harmless value of a field that could do more'],
    [
      { tools: [{ type: 'custom', custom: { name: 'sql', format: { type: 'text' } } }] },
      'custom tools',
    ],
    [
      {
        tools: [
          {
            type: 'function',
            function: { ...bash.function, parameters: { properties: { file_id: {}, url: {} } } },
          },
        ],
      },
      'a tool’s own parameters may have any name',
    ],
    [{ tool_choice: { type: 'function', function: { name: 'bash' } } }, 'a named tool'],
    [
      {
        tool_choice: {
          type: 'allowed_tools',
          allowed_tools: { mode: 'auto', tools: [{ type: 'function', name: 'bash' }] },
        },
      },
      'a set of tools',
    ],
    [{ functions: [bash.function], function_call: { name: 'bash' } }, 'the older form of tools'],
    [
      { response_format: { type: 'json_schema', json_schema: { name: 'x', schema: {} } } },
      'JSON answers',
    ],
    [
      message({
        role: 'assistant',
        content: null,
        tool_calls: [{ id: 'c', type: 'function', function: {} }],
      }),
      'a call',
    ],
    [
      message({
        role: 'assistant',
        content: 'x',
        reasoning_content: 'y',
        provider_specific_fields: { refusal: null },
      }),
      'as litellm sends turns back',
    ],
    [
      message({ role: 'assistant', content: 'x', audio: null, annotations: null }),
      'unknown fields that are null',
    ],
    [
      message({ role: 'tool', tool_call_id: 'c', content: 'see https://198.51.100.7/ for more' }),
      'a URL in text',
    ],
    [parts({ type: 'text', text: 'x', cache_control: { type: 'ephemeral' } }), 'text parts'],
    [image({ url: pixel, detail: 'low' }), 'an inline image'],
    [image(pixel), 'an inline image in its short form'],
    [
      parts({ type: 'input_audio', input_audio: { data: 'UklGRg==', format: 'wav' } }),
      'inline audio',
    ],
    [
      parts({
        type: 'file',
        file: { filename: 'a.pdf', file_data: 'data:application/pdf;base64,JVBERi0=' },
      }),
      'an inline file',
    ],
  ]
  for (const [fields, why] of table) {
    const decision = decideModelRequest({ model: 'm-1' }, { ...base, ...fields })
    t.strictSame([decision.action, decision.message], ['allow', 'allowed'], why)
  }
  t.end()
})

void t.test(
  'what the provider would run, fetch or keep is refused, and so is what nobody here knows',
  (t) => {
    const tool = (type: string, more: object = {}) => ({ tools: [bash, { type, ...more }] })
    const named = (name: unknown) => ({ tools: [{ type: 'function', function: { name } }] })
    const table: [unknown, string, string, string][] = [
      [{ tools: [], model: 'm-2' }, 'model_denied', 'model', 'another model'],
      [{ model: 'm-1:online' }, 'model_denied', 'model', 'a variant that searches'],
      [{ model: null }, 'model_denied', 'model', 'no model'],
      [tool('web_search'), 'tool_denied', 'tools[1].type', 'search at the provider'],
      [tool('web_search_preview'), 'tool_denied', 'tools[1].type', 'search at the provider'],
      [
        tool('code_interpreter', { container: { type: 'auto' } }),
        'tool_denied',
        'tools[1].type',
        'code at the provider',
      ],
      [
        tool('mcp', { server_url: 'https://198.51.100.7/' }),
        'tool_denied',
        'tools[1].type',
        'a hosted tool server',
      ],
      [tool('file_search'), 'tool_denied', 'tools[1].type', 'a vector store'],
      [
        tool('builtin_function', { function: { name: '$web_search' } }),
        'tool_denied',
        'tools[1].type',
        'a builtin',
      ],
      [{ tools: [{ googleSearch: {} }] }, 'tool_denied', 'tools[0].type', 'a tool without a type'],
      [{ tools: ['web_search'] }, 'tool_denied', 'tools[0]', 'a tool that is only a name'],
      [{ tools: { type: 'web_search' } }, 'body_invalid', 'tools', 'tools that are no list'],
      [
        named('$web_search'),
        'tool_denied',
        'tools[0].function.name',
        'a builtin under a function’s type',
      ],
      [
        named('openrouter:web_search'),
        'tool_denied',
        'tools[0].function.name',
        'a builtin under a function’s type',
      ],
      [named(7), 'tool_denied', 'tools[0].function.name', 'no name'],
      [
        { tools: [{ ...bash, server_url: 'x' }] },
        'tool_denied',
        'tools[0].server_url',
        'more beside a function',
      ],
      [
        { tools: [{ ...bash, function: { ...bash.function, url: 'x' } }] },
        'tool_denied',
        'tools[0].function.url',
        'a function with a URL',
      ],
      [
        { functions: [{ name: 'a b' }] },
        'tool_denied',
        'functions[0].name',
        'the older form is no way round',
      ],
      [
        { tool_choice: { type: 'web_search' } },
        'tool_denied',
        'tool_choice.type',
        'choosing a tool of the provider',
      ],
      [
        { tool_choice: { type: 'allowed_tools', allowed_tools: { tools: [{ type: 'mcp' }] } } },
        'tool_denied',
        'tool_choice.tools[0].type',
        'within a set',
      ],
      [
        message({ role: 'assistant', tool_calls: [{ type: 'web_search_call' }] }),
        'tool_denied',
        'messages[1].tool_calls[0].type',
        'a call of the provider',
      ],
      [{ web_search_options: {} }, 'body_field_denied', 'web_search_options', 'search by option'],
      [
        { search_parameters: { mode: 'on' } },
        'body_field_denied',
        'search_parameters',
        'search by option (xAI)',
      ],
      [
        { plugins: [{ id: 'web' }] },
        'body_field_denied',
        'plugins',
        'search by plugin (OpenRouter)',
      ],
      [{ models: ['m-2'] }, 'body_field_denied', 'models', 'a fallback to another model'],
      [{ extra_body: {} }, 'body_field_denied', 'extra_body', 'a field of clients'],
      [{ service_tier: 'priority' }, 'body_field_denied', 'service_tier', 'another price'],
      [
        parts({ type: 'text', text: 'x', cache_control: { type: 'ephemeral', ttl: '1h' } }),
        'body_field_denied',
        'messages[0].content[0].cache_control.ttl',
        'another price',
      ],
      [{ tool_choice: 'web_search' }, 'tool_denied', 'tool_choice', 'choosing one by name'],
      [{ metadata: {} }, 'body_field_denied', 'metadata', 'kept at the provider'],
      [{ constructor: {} }, 'body_field_denied', 'constructor', 'a name from Object.prototype'],
      [{ store: true }, 'body_field_denied', 'store', 'kept at the provider'],
      [
        { modalities: ['text', 'audio'] },
        'body_field_denied',
        'modalities',
        'audio is kept at the provider',
      ],
      [
        { stream_options: { include_usage: true, x: true } },
        'body_field_denied',
        'stream_options.x',
        'unknown option',
      ],
      [
        { stream_options: { include_usage: 'yes' } },
        'body_invalid',
        'stream_options.include_usage',
        'not a boolean',
      ],
      [{ stream: 'true' }, 'body_invalid', 'stream', 'not a boolean'],
      [
        { reasoning: { mcp: { url: 'x' } } },
        'body_invalid',
        'reasoning.mcp',
        'a structure where values belong',
      ],
      [
        { temperature: { a: 1 } },
        'body_invalid',
        'temperature',
        'a structure where a value belongs',
      ],
      [
        { response_format: { type: 'x' } },
        'body_field_denied',
        'response_format',
        'unknown format',
      ],
      [
        image({ url: 'https://198.51.100.7/x.png' }),
        'remote_url_denied',
        'messages[0].content[0].image_url',
        'a URL to fetch',
      ],
      [
        image('http://198.51.100.7/x.png'),
        'remote_url_denied',
        'messages[0].content[0].image_url',
        'a URL to fetch',
      ],
      [
        image({ url: ` ${pixel}` }),
        'remote_url_denied',
        'messages[0].content[0].image_url',
        'spelt oddly',
      ],
      [
        image({ url: 'data:image/svg+xml;base64,PHN2Zz4=' }),
        'remote_url_denied',
        'messages[0].content[0].image_url',
        'an image that refers to others',
      ],
      [
        image({ url: 'file:///etc/passwd' }),
        'remote_url_denied',
        'messages[0].content[0].image_url',
        'another scheme',
      ],
      [image(null), 'remote_url_denied', 'messages[0].content[0].image_url', 'nothing'],
      [
        image({ url: pixel, file_id: 'f' }),
        'remote_url_denied',
        'messages[0].content[0].image_url.file_id',
        'an id beside it',
      ],
      [
        parts({ type: 'file', file: { file_id: 'file-1' } }),
        'remote_url_denied',
        'messages[0].content[0].file.file_id',
        'a stored file',
      ],
      [
        parts({ type: 'file', file: { file_data: 'https://198.51.100.7/a.pdf' } }),
        'remote_url_denied',
        'messages[0].content[0].file.file_data',
        'a URL to fetch',
      ],
      [
        parts({ type: 'input_audio', input_audio: { data: 'https://198.51.100.7/' } }),
        'remote_url_denied',
        'messages[0].content[0].input_audio.data',
        'a URL to fetch',
      ],
      [
        parts({ type: 'input_file', file_url: 'x' }),
        'body_field_denied',
        'messages[0].content[0].type',
        'a part of another API',
      ],
      [
        parts({ type: 'document', source: { type: 'url' } }),
        'body_field_denied',
        'messages[0].content[0].type',
        'a part of another API',
      ],
      [
        parts({ type: 'text', text: 'x', file_id: 'f' }),
        'remote_url_denied',
        'messages[0].content[0].file_id',
        'an id in a text part',
      ],
      [parts('text'), 'body_invalid', 'messages[0].content[0]', 'a part that is no object'],
      [
        message({ role: 'assistant', audio: { id: 'audio_1' } }),
        'body_field_denied',
        'messages[1].audio',
        'a stored answer',
      ],
      [
        message({ role: 'user', content: 'x', images: ['https://198.51.100.7/'] }),
        'body_field_denied',
        'messages[1].images',
        'another server’s images',
      ],
      [message({ role: 'root', content: 'x' }), 'body_invalid', 'messages[1].role', 'unknown role'],
      [
        message({ role: 'user', content: 7 }),
        'body_invalid',
        'messages[1].content',
        'content that is no text',
      ],
      [{ messages: [] }, 'body_invalid', 'messages', 'no message'],
      [{ messages: null }, 'body_invalid', 'messages', 'no messages'],
      [{ messages: 'hi' }, 'body_invalid', 'messages', 'messages that are no list'],
    ]
    for (const [fields, reason, rule, why] of table) {
      const decision = decideModelRequest({ model: 'm-1' }, { ...base, ...(fields as object) })
      t.strictSame([decision.action, decision.reason, decision.rule], ['deny', reason, rule], why)
    }
    for (const body of [null, undefined, [], 'x', 7])
      t.match(decideModelRequest({ model: 'm-1' }, body), {
        action: 'deny',
        reason: 'body_invalid',
      })
    t.end()
  },
)

void t.test('a model that searches the web by its nature is known by its name', (t) => {
  const grounded = [
    'gpt-4o-search-preview',
    'gpt-5-search-api',
    'sonar',
    'perplexity/sonar-pro',
    'o3-deep-research',
    'anyone/any-model:online',
    'groq/compound-mini',
    'pplx-7b-online',
  ]
  const plain = [
    'gpt-5.1',
    'claude-sonnet-4-5',
    'deepseek-chat',
    'moonshotai/kimi-k2',
    'research-7b',
    'm:free',
  ]
  for (const model of grounded) t.ok(isSearchGrounded(model), model)
  for (const model of plain) t.notOk(isSearchGrounded(model), model)
  t.end()
})
