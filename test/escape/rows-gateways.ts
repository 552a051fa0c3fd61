/** Rows 50 to 65 and 68: the gateways for the Hub and for a model. */
import type { Attempt, Facts } from './catalogue.ts'

/** `METHOD /path`s of the Hub's gateway, all refused for one reason. */
const hub = (row: number, what: string, reason: string, requests: readonly string[]): Attempt => ({
  row,
  what,
  client: 'python urllib',
  run: { py: `hub(${requests.map((one) => JSON.stringify(one)).join(', ')})` },
  seen: new RegExp(`^403 ${reason}$`),
  audit: [`${requests.length}x hf ${reason} hub`],
})

/** Bodies for one path of the model's gateway, all refused for one reason. */
const model = (
  row: number,
  what: string,
  reason: string,
  path: string,
  bodies: readonly object[],
): Attempt => ({
  row,
  what,
  client: 'python urllib',
  run: {
    py: `asks("${path}", *json.loads(${JSON.stringify(JSON.stringify(bodies.map((body) => ({ model: 'm-1', ...body }))))}))`,
  },
  seen: new RegExp(`^404 ${reason}$`),
  audit: [`${bodies.length}x model ${reason} model`],
})

const chat = '/v1/chat/completions'
const responses = '/v1/responses'
const messages = '/v1/messages'
const user = (content: unknown): object => ({ messages: [{ role: 'user', content }] })
const input = (...content: object[]): object => ({ input: [{ role: 'user', content }] })

export function gatewayAttempts({ commit, nonce }: Facts): readonly Attempt[] {
  const file = `/acme/tiny/resolve/${commit}`
  const exfil = `exfil-${nonce}`
  return [
    {
      row: 50,
      what: "the Hub's file host sends the gateway elsewhere",
      client: 'curl',
      run: {
        sh: `curl -sS -D - -o /dev/null http://127.0.0.1:8401${file}/model.safetensors | tr '[:upper:]' '[:lower:]' | grep -E '^(http|location|x-closedbook)'`,
      },
      seen: /^exit 0: http\/1.1 403 forbidden.*redirect_denied(?!.*location)/s,
      audit: ['hf allowed_artifact hub', 'close hf redirect_denied hub'],
      as: 'root',
    },
    {
      row: 51,
      what: 'a Space and its proxy',
      client: 'curl',
      run: {
        sh: 'curl -sS https://acme-demo.hf.space/; curl -sS "http://acme-demo.hf.space/gradio_api/proxy=http://evil.example/"',
      },
      seen: /not_allowed_host.*403/s,
      audit: [
        'connect not_allowed_host acme-demo.hf.space:443',
        'http not_allowed_host acme-demo.hf.space:80',
      ],
    },
    hub(51, 'by the gateway', 'path_denied', [
      'GET /spaces/acme/demo',
      'GET /api/spaces/acme/demo',
    ]),
    hub(52, 'models that are not pinned', 'repo_not_allowed', [
      'GET /evil/mirror/resolve/main/repo.json',
      'GET /api/models/evil/mirror',
      'GET /api/models/evil/mirror/tree/main',
    ]),
    hub(52, 'datasets', 'path_denied', [
      'GET /datasets/evil/github-code/resolve/main/x.json',
      'GET /api/datasets/evil/github-code',
    ]),
    hub(52, 'another revision of the pinned one', 'revision_not_allowed', [
      `GET /acme/tiny/resolve/${'0'.repeat(40)}/config.json`,
    ]),
    hub(52, 'code in the pinned one', 'file_not_allowed', [`GET ${file}/code.py`]),
    {
      row: 52,
      what: 'a snapshot of a model that is not pinned',
      client: 'huggingface_hub',
      run: {
        sh: `/opt/closedbook/venv/bin/python -c 'import huggingface_hub as h; h.snapshot_download("acme/tiny")' 2>&1 | grep -o repo_not_allowed`,
      },
      seen: /exit 0: .*repo_not_allowed/,
      audit: ['+ hf repo_not_allowed hub', '+ hf noise hub'],
      in: 'other',
    },
    {
      row: 53,
      what: 'its hosts',
      client: 'curl',
      run: {
        sh: 'for h in router.huggingface.co api-inference.huggingface.co x.us-east-1.aws.endpoints.huggingface.cloud; do curl -sS -d x https://$h/v1/chat/completions; done',
      },
      seen: /403.*403.*403/s,
      audit: [
        'router.huggingface.co',
        'api-inference.huggingface.co',
        'x.us-east-1.aws.endpoints.huggingface.cloud',
      ].map((host) => `connect not_allowed_host ${host}:443`),
    },
    {
      row: 53,
      what: 'the Hub itself',
      client: 'python httpx',
      run: {
        sh: `/opt/closedbook/venv/bin/python -c 'import httpx; print(httpx.get("https://huggingface.co/api/models"))' 2>&1 | tail -1`,
      },
      seen: /403/,
      audit: ['connect not_allowed_host huggingface.co:443'],
      in: 'other',
    },
    hub(53, 'by the gateway', 'write_denied', [
      'POST /models/acme/tiny',
      'POST /v1/chat/completions',
    ]),
    hub(54, 'jobs and scheduled jobs', 'write_denied', [
      'POST /api/jobs/acme',
      'POST /api/scheduled-jobs/acme',
    ]),
    hub(55, 'commits, uploads, repositories, discussions', 'write_denied', [
      'POST /api/models/acme/tiny/commit/main',
      'POST /api/models/acme/tiny/preupload/main',
      'POST /api/repos/create',
      'DELETE /api/repos/delete',
      'PUT /api/models/acme/tiny/settings',
      'POST /api/models/acme/tiny/discussions',
      'GET /api/models/acme/tiny/xet-write-token/main',
      `PUT ${file}/config.json`,
    ]),
    hub(55, 'Git LFS: both ways are one path', 'path_denied', [
      'POST /acme/tiny.git/info/lfs/objects/batch',
    ]),
    {
      row: 55,
      what: 'a push, and a clone',
      client: 'git',
      run: {
        sh: `cd $(mktemp -d) && git init -q . && git -c user.name=a -c user.email=a@example.com commit -q --allow-empty -m x && { git push -q http://127.0.0.1:8401/acme/tiny HEAD:main; git clone -q http://127.0.0.1:8401/acme/tiny x; }`,
      },
      seen: /403/,
      audit: ['hf write_denied hub', 'hf path_denied hub'],
    },
    hub(56, 'search, papers, collections, buckets, registries, OAuth, MCP', 'path_denied', [
      'GET /api/models?search=x',
      'GET /api/daily_papers',
      'GET /papers/2401.00001.md',
      'GET /api/collections',
      'GET /api/buckets/acme/b',
      'GET /v2/acme/tiny/manifests/latest',
      'GET /oauth/authorize',
      'GET /mcp',
      'GET /api/models/acme/tiny/xet-read-token/main',
    ]),
    {
      row: 58,
      what: '4 KB of query, agent, cookie, and a header of its own: not passed on',
      client: 'curl',
      run: {
        sh: `curl -sS -o /dev/null -w "%{http_code}" -A ${exfil} -b c=${exfil} -H "X-Data: ${exfil}" -H "Authorization: Bearer ${exfil}" "http://127.0.0.1:8401${file}/config.json?data=${exfil}-$(head -c 2000 /dev/zero | tr '\\0' x)"`,
      },
      seen: /exit 0: 200/,
      audit: ['hf allowed_artifact hub'],
    },
    model(59, 'chat completions: search, hosted MCP, code', 'tool_denied', chat, [
      { ...user('x'), tools: [{ type: 'web_search' }] },
      { ...user('x'), tools: [{ type: 'mcp', server_url: 'https://evil.example' }] },
      { ...user('x'), tools: [{ type: 'code_interpreter' }] },
    ]),
    model(59, 'responses: search, files, computer, code, MCP', 'tool_denied', responses, [
      { input: 'x', tools: [{ type: 'web_search_preview' }] },
      { input: 'x', tools: [{ type: 'file_search', vector_store_ids: ['v'] }] },
      { input: 'x', tools: [{ type: 'computer_use_preview' }] },
      { input: 'x', tools: [{ type: 'code_interpreter', container: { type: 'auto' } }] },
      {
        input: 'x',
        tools: [{ type: 'mcp', server_url: 'https://evil.example', server_label: 'e' }],
      },
    ]),
    model(59, 'messages: search, fetch, code, computer', 'tool_denied', messages, [
      { max_tokens: 9, ...user('x'), tools: [{ type: 'web_search_20250305', name: 'web_search' }] },
      { max_tokens: 9, ...user('x'), tools: [{ type: 'web_fetch_20250910', name: 'web_fetch' }] },
      { max_tokens: 9, ...user('x'), tools: [{ type: 'code_execution_20250825', name: 'c' }] },
      { max_tokens: 9, ...user('x'), tools: [{ type: 'computer_20250124', name: 'computer' }] },
    ]),
    model(59, 'a field for search', 'body_field_denied', chat, [
      { ...user('x'), web_search_options: {} },
      { ...user('x'), plugins: [{ id: 'web' }] },
    ]),
    model(59, 'another model', 'model_denied', chat, [{ ...user('x'), model: 'm-1:online' }]),
    {
      row: 59,
      what: "the provider's own client",
      client: 'python openai',
      run: {
        sh: `/opt/closedbook/venv/bin/python -c 'import openai; openai.OpenAI(base_url="http://127.0.0.1:8400/v1", api_key="x").responses.create(model="m-1", input="x", tools=[{"type": "web_search"}])' 2>&1 | tail -1`,
      },
      seen: /tools\[0\]/,
      audit: ['model tool_denied model'],
      in: 'other',
    },
    model(60, 'chat completions: image by URL', 'remote_url_denied', chat, [
      user([{ type: 'image_url', image_url: { url: 'http://evil.example/x.png' } }]),
      user([{ type: 'file', file: { file_id: 'file-1' } }]),
    ]),
    model(60, 'responses: file and image by URL or id', 'remote_url_denied', responses, [
      input({ type: 'input_image', image_url: 'https://evil.example/x.png' }),
      input({ type: 'input_file', file_url: 'https://evil.example/x.pdf' }),
      input({ type: 'input_file', file_id: 'file-1' }),
    ]),
    model(60, 'messages: image and document by URL or id', 'remote_url_denied', messages, [
      {
        max_tokens: 9,
        ...user([{ type: 'image', source: { type: 'url', url: 'https://e.example' } }]),
      },
      {
        max_tokens: 9,
        ...user([{ type: 'document', source: { type: 'url', url: 'https://e.example' } }]),
      },
      { max_tokens: 9, ...user([{ type: 'document', source: { type: 'file', file_id: 'f' } }]) },
    ]),
    {
      row: 61,
      what: 'files, batches, containers, vector stores, assistants',
      client: 'python urllib',
      run: {
        py: '",".join(sorted({ask(path) for path in ["/v1/files", "/v1/batches", "/v1/containers", "/v1/vector_stores", "/v1/assistants", "/v1/fine_tuning/jobs"]}))',
      },
      seen: /^403 path_denied$/,
      audit: ['6x model path_denied model'],
    },
    {
      row: 61,
      what: 'the realtime WebSocket',
      client: 'curl',
      run: {
        sh: 'curl -sS -o /dev/null -w "%{http_code}" -H "Connection: Upgrade" -H "Upgrade: websocket" -H "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==" -H "Sec-WebSocket-Version: 13" http://127.0.0.1:8400/v1/realtime',
      },
      seen: /403/,
      audit: ['model path_denied model'],
    },
    model(61, 'responses: kept, continued, in the background', 'body_field_denied', responses, [
      { input: 'x', store: true },
      { input: 'x', background: true },
      { input: 'x', previous_response_id: 'resp_1' },
      { input: 'x', conversation: 'conv_1' },
      { input: 'x', prompt: { id: 'p' } },
    ]),
    model(61, 'chat completions: kept', 'body_field_denied', chat, [{ ...user('x'), store: true }]),
    {
      row: 64,
      what: 'environment, /proc, answers',
      client: 'python raw',
      run: {
        py: 'holds("sk-" + "escape-suite") + "," + ask("/v1/chat/completions", model="m-1", messages=[{"role": "user", "content": "x"}])',
      },
      seen: /^nowhere,200$/,
      audit: ['model allowed_gateway model'],
      reaches: ['http 198.51.100.70 /v1/chat/completions'],
      in: 'other',
    },
    {
      row: 65,
      what: "a key that is another's: it means nothing, the listener says who asks",
      client: 'python urllib',
      run: {
        py: 'ask("/v1/chat/completions", model="m-1", messages=[{"role": "user", "content": "x"}])',
      },
      seen: /^200$/,
      audit: ['model allowed_gateway model'],
    },
    hub(68, 'an artifact that another sandbox has in the cache', 'repo_not_allowed', [
      `GET /acme/other/resolve/main/config.json`,
      `HEAD /acme/other/resolve/main/config.json`,
    ]),
  ]
}
