import t from 'tap'
import type { RecordedCall } from '../../../daemon/protocol/recording.ts'
import { apiKey, json, namedEvents, namedSse, StandInProvider } from './provider.ts'
import { Sandbox, until, type Received } from './setup.ts'
import { message, messageEvents, response, responseEvents, type Event } from './shapes.ts'

const ask = {
  messages: { model: 'm-1', max_tokens: 64, messages: [{ role: 'user', content: 'hello' }] },
  responses: { model: 'm-1', input: 'hello' },
}
type Name = keyof typeof ask

/** As the provider's own client sends it. */
const clientHeaders = {
  'content-type': 'application/json',
  'x-api-key': 'sk-placeholder',
  authorization: 'Bearer sk-placeholder',
  'anthropic-version': '2023-06-01',
  'x-stainless-lang': 'python',
}

const send = (sandbox: Sandbox, name: Name, fields: object = {}, headers: object = {}) =>
  sandbox.send(`/v1/${name}`, {
    body: { ...ask[name], ...fields },
    headers: { ...clientHeaders, ...headers },
  })

const kinds = { messages: 'anthropic', responses: 'openai' } as const
const names = ['messages', 'responses'] as const
const whole = { messages: message, responses: response }
const streamed = { messages: messageEvents, responses: responseEvents }

const payloads = (text: string): Event[] =>
  text
    .split('\n')
    .filter((line) => line.startsWith('data: '))
    .map((line) => JSON.parse(line.slice(6)) as Event)

void t.test('an answer passes whole, plain and streamed, and is metered the same', async (t) => {
  for (const name of names) {
    await using provider = await StandInProvider.open([
      namedSse(streamed[name]()),
      json(whole[name]()),
    ])
    const { baseUrl } = provider
    await using sandbox = await Sandbox.open({ baseUrl, kind: kinds[name] })
    const stream = await send(sandbox, name, { stream: true })
    await until(() => provider.finished === 1)
    await sandbox.caughtUp()
    const plain = await send(sandbox, name)
    t.strictSame([plain.status, JSON.parse(plain.text)], [200, whole[name]()], name)
    t.notMatch(Object.keys(plain.headers), /organization|ratelimit|cookie/)
    t.match(plain.headers, { 'request-id': 'req_1' })
    t.equal(stream.text, namedEvents(streamed[name]()), `${name}: byte for byte`)
    t.equal(provider.connections, 1, 'the connection is used again after an answer')
    t.strictSame(
      sandbox.gateway.usage(),
      {
        // The whole prompt, in both APIs: 100 fresh, 60 read from the cache, 40 written to it.
        inputTokens: 400,
        cachedInputTokens: 120,
        cacheWriteInputTokens: 80,
        outputTokens: 60,
        reasoningTokens: 24,
        calls: 2,
        refusedCalls: 0,
        failedCalls: 0,
        // 200 * 1.1 + 120 * 0.11 + 80 * 1.375 + 60 * 4.4 = 607.2 per million
        costUsd: 0.0006072,
        fault: null,
        budgetSpent: false,
      },
      name,
    )
    const seen = { text: 'Let me look.', commands: ['ls -la'], costUsd: 0.0003036, status: 200 }
    t.match(sandbox.calls, [seen, seen], name)
    t.match(
      sandbox.audit
        .filter(({ detail }) => detail !== 'GET /closedbook/ping')
        .map(({ kind, action, detail }) => [kind, action, detail]),
      [
        ['decision', 'allow', `POST /v1/${name} model="m-1"`],
        ['close', 'none', undefined],
        ['decision', 'allow', `POST /v1/${name} model="m-1"`],
        ['close', 'none', undefined],
      ],
    )
  }
})

void t.test('the provider gets our key, what policy let through, and nothing else', async (t) => {
  await using claude = await StandInProvider.open([json(message()), json(message())])
  await using sandbox = await Sandbox.open({ baseUrl: claude.baseUrl, kind: 'anthropic' })
  await send(sandbox, 'messages')
  const betas = 'interleaved-thinking-2025-05-14, pdfs-2024-09-25'
  await sandbox.send('/v1/messages?beta=true', {
    body: ask.messages,
    headers: { ...clientHeaders, 'anthropic-beta': betas, 'anthropic-version': '2026-10-21' },
  })
  const [plain, beta] = claude.seen
  t.match([plain?.path, beta?.path], ['/v1/messages', '/v1/messages?beta=true'])
  t.match(plain?.headers, { 'x-api-key': apiKey, 'anthropic-version': '2023-06-01' })
  t.match(beta?.headers, {
    'anthropic-beta': 'interleaved-thinking-2025-05-14,pdfs-2024-09-25',
    'anthropic-version': '2026-10-21',
  })
  t.strictSame(plain?.body, ask.messages)
  t.notMatch(JSON.stringify(plain?.headers), /placeholder|stainless|authorization|beta/)

  await using openai = await StandInProvider.open([json(response())])
  await using other = await Sandbox.open({ baseUrl: openai.baseUrl })
  await send(other, 'responses')
  t.match(openai.seen[0], { path: '/v1/responses', headers: { authorization: `Bearer ${apiKey}` } })
  t.strictSame(openai.seen[0]?.body, { ...ask.responses, store: false }, 'nothing is kept there')
  t.notMatch(JSON.stringify(openai.seen[0]?.headers), /placeholder|stainless|x-api-key/)
})

void t.test('a recorded answer is served again byte for byte, in either form', async (t) => {
  const plain = ({ status, headers, text }: Received) => {
    return { status, headers: { ...headers, date: 'any' }, text }
  }
  for (const name of names) {
    await using provider = await StandInProvider.open([
      json(whole[name]()),
      namedSse(streamed[name]()),
      json({ type: 'error', error: { type: 'rate_limit_error', message: 'slow' } }, 429, {
        'retry-after': '7',
      }),
    ])
    const { baseUrl } = provider
    await using live = await Sandbox.open({ baseUrl, kind: kinds[name] })
    const run = async (sandbox: Sandbox) => [
      plain(await send(sandbox, name)),
      plain(await send(sandbox, name, { stream: true })),
      plain(await send(sandbox, name)),
    ]
    const first = await run(live)
    t.match(first[2], { status: 429, headers: { 'retry-after': '7' } })
    const recording = await live.recording()
    t.strictSame([...new Set(recording.map(({ api }) => api))], [`${kinds[name]}.${name}`])
    await using again = await Sandbox.open({ replay: recording })
    t.strictSame(await run(again), first, name)
    t.strictSame(again.gateway.usage(), live.gateway.usage())

    await using turned = await Sandbox.open({ replay: recording })
    const asStream = await send(turned, name, { stream: true })
    const asPlain = await send(turned, name)
    t.strictSame(JSON.parse(asPlain.text), whole[name](), `${name}: a stream is put together`)
    t.match(asStream.headers['content-type'], 'text/event-stream')
    t.equal(asStream.text, namedEvents(payloads(asStream.text)))
    const shape = (list: readonly Event[]) =>
      list.map(({ type }) => type).filter((type, n, all) => type !== all[n - 1] && type !== 'ping')
    t.strictSame(shape(payloads(asStream.text)), shape(streamed[name]()), `${name}: or taken apart`)
    const elsewhere = name === 'messages' ? 'responses' : 'messages'
    t.match((await send(turned, elsewhere)).headers, { 'x-closedbook-reason': 'replay_mismatch' })
  }
})

void t.test('a replay knows the turn of a conversation in each API', async (t) => {
  const call = (api: RecordedCall['api'], assistantTurns: number, body: unknown): RecordedCall => ({
    v: 1,
    n: 0,
    api,
    request: { model: 'm-1', assistantTurns },
    response: { status: 200, headers: {}, body },
    latencyMs: 0,
  })
  const output = { type: 'function_call_output', call_id: 'call_1', output: 'x' }
  const turn = [
    { type: 'reasoning', id: 'rs_1', summary: [] },
    { role: 'assistant', content: 'a' },
  ]
  await using sandbox = await Sandbox.open({
    replay: [
      call('openai.responses', 2, response()),
      call('anthropic.messages', 1, message()),
      call('openai.responses', 1, response()),
    ],
  })
  const user = { role: 'user', content: 'x' }
  const input = [user, ...turn, output, output, ...turn, user]
  t.equal((await send(sandbox, 'responses', { input })).status, 200)
  const messages = [user, { role: 'assistant', content: 'a' }, user]
  t.equal((await send(sandbox, 'messages', { messages })).status, 200)
  const late = await send(sandbox, 'responses', { input: [user] })
  t.match(late, { status: 404, headers: { 'x-closedbook-reason': 'replay_mismatch' } })
})

void t.test(
  'counting tokens is no call: free, recorded, and served in its own order',
  async (t) => {
    const counted = { input_tokens: 2095 }
    await using provider = await StandInProvider.open([json(counted), json(message())])
    const { baseUrl } = provider
    const spec = { budget: { calls: 1 } }
    await using sandbox = await Sandbox.open({ baseUrl, kind: 'anthropic', spec })
    const { max_tokens: _, ...question } = ask.messages
    const ask1 = (at: Sandbox, body: object = question) =>
      at.send('/v1/messages/count_tokens', { body, headers: clientHeaders })
    t.strictSame(JSON.parse((await ask1(sandbox)).text), counted)
    t.equal(provider.seen[0]?.path, '/v1/messages/count_tokens')
    t.match(sandbox.gateway.usage(), { calls: 0, inputTokens: 0, costUsd: 0 })
    t.match(await ask1(sandbox, ask.messages), { status: 404 }, 'it takes no max_tokens')
    await send(sandbox, 'messages')
    t.match(await ask1(sandbox), {
      status: 401,
      headers: { 'x-closedbook-reason': 'budget_spent' },
    })
    t.match(sandbox.gateway.usage(), { calls: 1, failedCalls: 0, refusedCalls: 2 })
    t.equal(sandbox.calls.length, 1, 'and no step')
    const recording = await sandbox.recording()
    t.strictSame(
      recording.map(({ api }) => api),
      ['anthropic.count', 'anthropic.messages'],
    )
    await using again = await Sandbox.open({ replay: recording })
    t.equal((await send(again, 'messages')).status, 200)
    t.strictSame(JSON.parse((await ask1(again)).text), counted)
    t.match(await ask1(again), {
      status: 404,
      text: /replay_exhausted: the recording has 1 counts and all were served/,
    })
  },
)

void t.test('an upstream serves the APIs of its kind, and lists the one model', async (t) => {
  await using claude = await Sandbox.open({ baseUrl: 'http://127.0.0.1:1/v1', kind: 'anthropic' })
  await using openai = await Sandbox.open({ baseUrl: 'http://127.0.0.1:1/v1' })
  const refused = await send(claude, 'responses')
  t.match(refused, { status: 403, headers: { 'x-closedbook-reason': 'path_denied' } })
  t.match(refused.text, 'POST goes to /v1/messages, /v1/messages/count_tokens"')
  t.match(
    (await send(openai, 'messages')).text,
    'POST goes to /v1/chat/completions, /v1/responses"',
  )
  for (const sandbox of [claude, openai]) {
    const get = async (path: string) => {
      const { status, text } = await sandbox.send(path, { method: 'GET' })
      return [status, JSON.parse(text)] as const
    }
    const model = { id: 'm-1', object: 'model', type: 'model', display_name: 'm-1' }
    t.match(await get('/v1/models'), [200, { object: 'list', data: [model], has_more: false }])
    t.match(await get('/v1/models?limit=1000&beta=true'), [200, { data: [model] }])
    t.match(await get('/v1/models/m-1'), [200, model])
    t.match(await get('/v1/models/other'), [404, { error: { code: 'model_denied' } }])
    t.match(sandbox.audit.at(-1), { action: 'deny', reason: 'model_denied' })
  }
})

void t.test('a refusal has the shape and the status that each client reads', async (t) => {
  await using provider = await StandInProvider.open([])
  const { baseUrl } = provider
  await using claude = await Sandbox.open({ baseUrl, kind: 'anthropic' })
  const tools = [{ type: 'web_search_20250305', name: 'web_search' }]
  const refused = await send(claude, 'messages', { tools, stream: true })
  t.match(refused, { status: 404, headers: { 'x-closedbook-reason': 'tool_denied' } })
  t.match(JSON.parse(refused.text), {
    type: 'error',
    error: { type: 'closedbook_refusal', code: 'tool_denied', message: /tools\[0\]\.type/ },
  })
  const beta = { 'anthropic-beta': 'pdfs-2024-09-25,mcp-client-2025-11-20' }
  t.match(await send(claude, 'messages', {}, beta), {
    status: 404,
    text: /body_field_denied: anthropic-beta .*mcp-client-2025-11-20.* is not among the betas/,
  })
  const version = { 'anthropic-version': '2024-01-01' }
  t.match(await send(claude, 'messages', {}, version), { status: 404, text: /body_invalid/ })
  await using openai = await Sandbox.open({ baseUrl })
  t.match(await send(openai, 'responses', { previous_response_id: 'resp_1' }), {
    status: 404,
    headers: { 'x-closedbook-reason': 'body_field_denied' },
  })
  t.equal(provider.seen.length, 0)
  t.match(claude.gateway.usage(), { refusedCalls: 3, failedCalls: 0, fault: null })
})
