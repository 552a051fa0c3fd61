import { once } from 'node:events'
import t from 'tap'
import {
  apiKey,
  chunk,
  completion,
  events,
  json,
  sse,
  StandInProvider,
  textChunks,
  usage,
  usageChunk,
} from './provider.ts'
import { request, Sandbox, until } from './setup.ts'

void t.test(
  'a plain call reaches the provider with our key and nothing of the client',
  async (t) => {
    await using provider = await StandInProvider.open([
      json(completion('Let me look.', usage(1000, 200, 50, 7), 'ls -la')),
    ])
    await using sandbox = await Sandbox.open({ baseUrl: provider.baseUrl })
    const body = {
      temperature: 0,
      tools: [bash],
      messages: [{ role: 'user', content: 'fix é \ud800' }],
    }
    const answer = await sandbox.ask(body)
    t.equal(answer.status, 200)
    t.strictSame(
      JSON.parse(answer.text),
      completion('Let me look.', usage(1000, 200, 50, 7), 'ls -la'),
    )
    t.strictSame(
      Object.keys(answer.headers).toSorted(),
      ['connection', 'content-length', 'content-type', 'date', 'request-id', 'x-request-id'],
      'headers about the account are dropped',
    )
    const seen = provider.seen[0]
    t.equal(seen?.path, '/v1/chat/completions')
    t.equal(seen?.headers.authorization, `Bearer ${apiKey}`)
    t.strictSame(seen?.body, request(body))
    t.notMatch(JSON.stringify(seen?.headers), /placeholder|org-of-the-agent|203\.0\.113/)
    t.strictSame(sandbox.gateway.usage(), {
      inputTokens: 1000,
      cachedInputTokens: 200,
      cacheWriteInputTokens: 0,
      outputTokens: 50,
      reasoningTokens: 7,
      calls: 1,
      refusedCalls: 0,
      failedCalls: 0,
      // 800 * 1.1 + 200 * 0.11 + 50 * 4.4 = 1122 per million
      costUsd: 0.001122,
      fault: null,
      budgetSpent: false,
    })
    t.match(sandbox.calls, [
      {
        type: 'model.call',
        n: 0,
        status: 200,
        costUsd: 0.001122,
        text: 'Let me look.',
        commands: ['ls -la'],
      },
    ])
    const [decision, close] = sandbox.audit
    t.match(decision, {
      kind: 'decision',
      protocol: 'model',
      action: 'allow',
      reason: 'allowed_gateway',
      host: '127.0.0.1',
      detail: 'POST /v1/chat/completions model="m-1"',
    })
    t.match(close, { kind: 'close', connection: decision?.connection ?? -1 })
    t.equal(close?.bytesDown, Buffer.byteLength(answer.text))
    t.ok(Number(close?.bytesUp) > 100)
  },
)

const bash = {
  type: 'function',
  function: { name: 'bash', parameters: { type: 'object', properties: { file_id: {} } } },
}

void t.test(
  'usage is asked for in every stream and hidden from a client that did not ask',
  async (t) => {
    const chunks = textChunks('hi there')
    const whole = [...chunks, usageChunk(usage(10, 4, 8))]
    await using provider = await StandInProvider.open([sse(whole), sse(whole), sse(whole)])
    await using sandbox = await Sandbox.open({ baseUrl: provider.baseUrl })
    const quiet = await sandbox.ask({ stream: true })
    t.equal(quiet.text, `${events(chunks)}data: [DONE]\n\n`.replace(/^/, ''))
    t.match(quiet.headers['content-type'], 'text/event-stream')
    await until(() => provider.finished === 1)
    await sandbox.caughtUp()
    const loud = await sandbox.ask({ stream: true, stream_options: { include_usage: true } })
    t.equal(loud.text, `${events(whole)}data: [DONE]\n\n`)
    await until(() => provider.finished === 2)
    await sandbox.caughtUp()
    await sandbox.ask({ stream: true, stream_options: { include_obfuscation: false } })
    t.strictSame(
      provider.seen.map(({ body }) => body['stream_options']),
      [
        { include_usage: true },
        { include_usage: true },
        { include_obfuscation: false, include_usage: true },
      ],
    )
    t.match(sandbox.gateway.usage(), {
      calls: 3,
      inputTokens: 30,
      cachedInputTokens: 12,
      outputTokens: 24,
    })
    t.equal(sandbox.calls[0]?.text, 'hi there')
    t.equal(provider.connections, 1, 'the connection is used again after a stream')
  },
)

void t.test(
  'shut in the middle of a stream breaks it off, says so, and leaves nothing in flight',
  async (t) => {
    const hang = textChunks('never ends').slice(0, 3)
    await using provider = await StandInProvider.open([
      (response) => {
        response.writeHead(200, { 'content-type': 'text/event-stream' })
        response.write(events(hang))
      },
      () => {},
    ])
    await using sandbox = await Sandbox.open({ baseUrl: provider.baseUrl })
    const stream = await sandbox.begin('/v1/chat/completions', { body: request({ stream: true }) })
    const silent = sandbox.ask()
    let text = ''
    stream.on('data', (part: Buffer) => (text += part.toString()))
    const ended = once(stream, 'end')
    await once(stream, 'data')
    await until(() => provider.seen.length === 2)
    await sandbox.gateway.shut()
    await ended
    t.match(text, '"code":"gateway_shut"')
    t.notMatch(text, '[DONE]')
    t.match(await silent, { status: 401, headers: { 'x-closedbook-reason': 'gateway_shut' } })
    for (const answer of [await sandbox.ask(), await sandbox.send('/v1/models', { method: 'GET' })])
      t.match(answer, { status: 401, headers: { 'x-closedbook-reason': 'gateway_shut' } })
    const ping = await sandbox.send('/closedbook/ping', { method: 'GET' })
    t.match(ping, { status: 200, text: '{"gateway":"shut"}' }, 'the listener can still be proven')
    t.match(sandbox.gateway.usage(), { calls: 0, failedCalls: 2, refusedCalls: 1, fault: null })
    t.equal((await sandbox.recording()).length, 2)
  },
)

void t.test(
  'a call that hangs when the gateway shuts is the provider’s fault, a young one is nobody’s',
  async (t) => {
    const rows = [
      [200, { code: 'upstream_timeout', message: /had said nothing for/ }],
      [600_000, null],
    ] as const
    for (const [upstreamTimeoutMs, fault] of rows) {
      await using provider = await StandInProvider.open([() => {}])
      await using sandbox = await Sandbox.open({
        baseUrl: provider.baseUrl,
        spec: { upstreamTimeoutMs },
      })
      const asked = sandbox.ask()
      await until(() => provider.seen.length === 1)
      const since = performance.now()
      await until(() => performance.now() - since > 110)
      await sandbox.gateway.shut()
      await asked
      t.match(sandbox.gateway.usage(), { calls: 0, failedCalls: 1, fault })
    }
  },
)

void t.test('a gateway whose owner is gone shuts itself', async (t) => {
  await using sandbox = await Sandbox.open({ replay: [] })
  sandbox.owner.abort()
  t.equal((await sandbox.ask()).status, 401)
})

void t.test(
  'a fault of the provider is told from the agent and cleared by the next good answer',
  async (t) => {
    const rejected = json(
      { error: { message: 'maximum context length is 4 tokens', code: 'context_length_exceeded' } },
      400,
    )
    const good = json(completion('ok', usage(1, 0, 1)))
    const table: [string, Parameters<typeof StandInProvider.open>[0][number], object][] = [
      ['a hang', () => {}, { status: 504, code: 'upstream_timeout' }],
      [
        'a redirect',
        json({}, 302, { location: 'http://203.0.113.1/' }),
        { status: 502, code: 'upstream_invalid' },
      ],
      [
        'our key',
        json({ error: { message: 'bad key' } }, 401),
        { status: 401, code: 'upstream_auth' },
      ],
      [
        'our credit',
        json({ error: { message: 'x', code: 'insufficient_quota' } }, 429),
        { status: 429, code: 'upstream_auth' },
      ],
      [
        'a model that is not there',
        json({ error: { message: 'no' } }, 404),
        { status: 404, code: 'upstream_rejected' },
      ],
      [
        'our settings, while nothing was answered',
        rejected,
        { status: 400, code: 'upstream_rejected' },
      ],
      [
        'no choice',
        json({ ...completion('', usage(1, 0, 1)), choices: [] }),
        { status: 502, code: 'upstream_invalid' },
      ],
      [
        'an error with 200',
        json({ error: { message: 'overloaded' } }),
        { status: 502, code: 'upstream_error', message: 'overloaded' },
      ],
      [
        'a stream that stalls',
        (response) => {
          response.writeHead(200, { 'content-type': 'text/event-stream' })
          response.write(events([chunk({ content: 'x' })]))
        },
        { status: 504, code: 'upstream_timeout' },
      ],
    ]
    await using provider = await StandInProvider.open([
      ...table.map(([, behaviour]) => behaviour),
      good,
      rejected,
    ])
    await using sandbox = await Sandbox.open({
      baseUrl: provider.baseUrl,
      spec: { upstreamTimeoutMs: 400 },
    })
    for (const [why, , fault] of table) {
      await sandbox.ask({ stream: why.includes('stream') })
      t.match(sandbox.gateway.usage().fault, fault, why)
    }
    t.equal((await sandbox.ask()).status, 200)
    t.equal(sandbox.gateway.usage().fault, null)
    t.equal((await sandbox.ask()).status, 400)
    t.match(
      sandbox.gateway.usage(),
      { fault: null, failedCalls: table.length + 1 },
      'a full context is the agent’s',
    )
    await using nobody = await Sandbox.open({ baseUrl: 'http://127.0.0.1:1/v1' })
    t.equal((await nobody.ask()).status, 502)
    t.match(nobody.gateway.usage().fault, { code: 'upstream_unreachable' })
  },
)

void t.test('the key is in no answer, no record, no audit and no event', async (t) => {
  await using provider = await StandInProvider.open([
    json({ error: { message: `Incorrect API key provided: ${apiKey}` } }, 401, {
      'x-request-id': apiKey,
    }),
    (response) => response.writeHead(500).end(`oops ${apiKey}`),
    json(completion(`your key is ${apiKey}`, usage(1, 0, 1))),
    sse([chunk({ content: apiKey }), chunk({}, 'stop'), usageChunk(usage(1, 0, 1))]),
  ])
  await using sandbox = await Sandbox.open({ baseUrl: provider.baseUrl })
  const answers = [
    await sandbox.ask(),
    await sandbox.ask(),
    await sandbox.ask(),
    await sandbox.ask({ stream: true }),
    await sandbox.ask({ model: 'other' }),
  ]
  t.equal(provider.seen.length, 4)
  t.match(answers[2]?.text, '[removed]')
  const everything = JSON.stringify([
    answers,
    sandbox.audit,
    sandbox.calls,
    sandbox.gateway.usage(),
    await sandbox.recordingText(),
  ])
  t.notMatch(everything, apiKey)
  t.notMatch(everything, 'sk-live')
})
