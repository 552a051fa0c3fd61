import t from 'tap'
import {
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
import { request, Sandbox, turns, until, type Received } from './setup.ts'

const errorOf = (received: Received) =>
  (JSON.parse(received.text) as { error: { message: string; type: string; code: string } }).error

void t.test(
  'a recorded session is served again byte for byte, metered and faulted the same',
  async (t) => {
    await using provider = await StandInProvider.open([
      json(completion('one', usage(1000, 0, 50, 7), 'ls')),
      sse([...textChunks('two'), usageChunk(usage(1100, 100, 50, 7))]),
      json({ error: { message: 'slow down', type: 'requests', code: 'x' } }, 429, {
        'retry-after': '3',
      }),
      (response) => response.writeHead(503, { 'content-type': 'text/html' }).end('<h1>sorry</h1>'),
      (response) => response.writeHead(200).end('not json'),
      json(completion('free?', null)),
      (response) => response.socket?.destroy(),
      sse(textChunks('three'), { end: '' }),
      sse(textChunks('cut').slice(0, 2), { end: '' }),
      (response) => {
        response.writeHead(200, { 'content-type': 'text/event-stream' })
        response.write(events([chunk({ role: 'assistant', content: 'half' })]))
        response.write('data: {"choices"', () => response.socket?.destroy())
      },
      sse([chunk({ content: 'x' }), { error: { message: 'model crashed', code: 502 } }]),
      json(completion('last', usage(1200, 300, 5))),
    ])
    await using live = await Sandbox.open({ baseUrl: provider.baseUrl })
    const streamed = new Set([1, 7, 8, 9, 10])
    const run = async (sandbox: Sandbox): Promise<Received[]> => {
      const all: Received[] = []
      for (let n = 0; n < 12; n += 1)
        all.push(await sandbox.ask({ messages: turns(n), stream: streamed.has(n) }))
      return all
    }
    const first = await run(live)
    const usageOfLive = live.gateway.usage()
    const recording = await live.recording()
    t.equal(recording.length, 12)
    await using replayed = await Sandbox.open({ replay: recording })
    const second = await run(replayed)
    const plain = ({ status, headers, text }: Received) => {
      const { date: _, ...rest } = headers
      return { status, headers: rest, text }
    }
    t.strictSame(second.map(plain), first.map(plain))
    t.strictSame(replayed.gateway.usage(), usageOfLive)
    t.match(usageOfLive, { calls: 3, failedCalls: 9, fault: null })
    t.strictSame(
      first.map(({ status, text }) => (text.includes('"error"') ? [status, codes(text)] : status)),
      [
        200,
        200,
        [429, 'x'],
        [503, 'upstream_error'],
        [502, 'upstream_invalid'],
        [502, 'usage_missing'],
        [502, 'upstream_unreachable'],
        [200, 'usage_missing'],
        [200, 'upstream_broken'],
        [200, 'upstream_broken'],
        [200, '502'],
        200,
      ],
    )
    t.equal(first[2]?.headers['retry-after'], '3')
    t.equal(first[2]?.headers['x-closedbook-reason'], 'upstream_bad')
    t.notMatch(first[5]?.text, 'free?', 'an answer that says no usage is withheld')
    for (const n of [7, 8, 9, 10])
      t.notMatch(first[n]?.text, '[DONE]', 'a broken stream is no whole one')
    const again = await replayed.recording()
    t.strictSame(
      again.map(({ request, response }) => [request, response]),
      recording.map(({ request, response }) => [request, response]),
      'a replay is recorded as the live run was',
    )
  },
)

const codes = (text: string): string => /"code":"?([a-z0-9_]+)/.exec(text)?.[1] ?? 'none'

void t.test(
  'a recorded plain answer is streamed, a recorded stream is answered plain',
  async (t) => {
    const plain = completion('Hi', usage(3, 1, 2), 'pwd')
    const call = (n: number, response: object) =>
      ({
        v: 1,
        n,
        api: 'openai.chat',
        latencyMs: 0,
        response: { status: 200, headers: {}, ...response },
      }) as const
    const toolStream = [
      chunk({ role: 'assistant', content: null }),
      chunk({
        tool_calls: [
          { index: 0, id: 'c1', type: 'function', function: { name: 'bash', arguments: '' } },
        ],
      }),
      chunk({ tool_calls: [{ index: 0, function: { arguments: '{"comm' } }] }),
      chunk({ tool_calls: [{ index: 0, function: { arguments: 'and": "id"}' } }] }),
      chunk({
        tool_calls: [
          { index: 1, id: 'c2', type: 'function', function: { name: 'bash', arguments: '{}' } },
        ],
      }),
      chunk({}, 'tool_calls'),
      usageChunk(usage(3, 1, 2)),
    ]
    await using sandbox = await Sandbox.open({
      replay: [call(0, { body: plain }), call(1, { body: plain }), call(2, { events: toolStream })],
    })
    const quiet = await sandbox.ask({ stream: true })
    const loud = await sandbox.ask({ stream: true, stream_options: { include_usage: true } })
    const payloads = (text: string) =>
      text
        .split('\n\n')
        .filter((line) => line.startsWith('data: {'))
        .map((line) => JSON.parse(line.slice(6)) as Record<string, unknown>)
    t.ok(loud.text.endsWith('data: [DONE]\n\n'))
    t.strictSame(payloads(loud.text).slice(0, 2), payloads(quiet.text))
    t.match(payloads(loud.text), [
      {
        object: 'chat.completion.chunk',
        choices: [{ delta: { content: 'Hi', tool_calls: [{ index: 0, id: 'call_0_0' }] } }],
      },
      { choices: [{ delta: {}, finish_reason: 'tool_calls' }] },
      { choices: { length: 0 }, usage: { prompt_tokens: 3 } },
    ])
    t.match(JSON.parse((await sandbox.ask()).text), {
      object: 'chat.completion',
      choices: [
        {
          index: 0,
          finish_reason: 'tool_calls',
          message: {
            role: 'assistant',
            content: null,
            tool_calls: [
              {
                id: 'c1',
                type: 'function',
                function: { name: 'bash', arguments: '{"command": "id"}' },
              },
              { id: 'c2', function: { arguments: '{}' } },
            ],
          },
        },
      ],
      usage: { completion_tokens: 2 },
    })
    t.strictSame(sandbox.calls[2]?.commands, ['id', 'bash {}'])
  },
)

void t.test(
  'a replay that is used up or elsewhere in the conversation ends the run and says why',
  async (t) => {
    const call = (turns: number) =>
      ({
        v: 1,
        n: 0,
        api: 'openai.chat',
        latencyMs: 0,
        request: { model: 'm-1', assistantTurns: turns },
        response: { status: 200, headers: {}, body: completion('yes', usage(1, 0, 1)) },
      }) as const
    await using sandbox = await Sandbox.open({ replay: [call(0), call(1)] })
    t.equal((await sandbox.ask()).status, 200)
    const elsewhere = await sandbox.ask({ messages: turns(2) })
    t.match(elsewhere, { status: 404, headers: { 'x-closedbook-reason': 'replay_mismatch' } })
    t.match(errorOf(elsewhere), { code: 'replay_mismatch', message: /after 1 .* has 2/ })
    t.match(sandbox.gateway.usage().fault, { code: 'replay_mismatch', status: 404 })
    t.equal((await sandbox.ask({ messages: turns(1) })).status, 200, 'a mismatch takes no line')
    const usedUp = await sandbox.ask({ messages: turns(2) })
    t.match(usedUp, { status: 404, headers: { 'x-closedbook-reason': 'replay_exhausted' } })
    t.match(sandbox.gateway.usage(), {
      calls: 2,
      failedCalls: 2,
      fault: { code: 'replay_exhausted' },
    })
    t.strictSame(
      sandbox.audit
        .filter(({ kind }) => kind === 'decision')
        .map(({ action, reason }) => `${action} ${reason}`),
      [
        'allow allowed_gateway',
        'deny replay_mismatch',
        'allow allowed_gateway',
        'deny replay_exhausted',
      ],
    )
  },
)

void t.test('calls that end in another order are recorded in the order they began', async (t) => {
  let first = (): void => {}
  await using provider = await StandInProvider.open([
    (response) => {
      first = () => json(completion('first', usage(1, 0, 1)))(response, {})
    },
    json(completion('second', usage(2, 0, 2))),
  ])
  await using sandbox = await Sandbox.open({ baseUrl: provider.baseUrl })
  const slow = sandbox.ask()
  await until(() => provider.seen.length === 1)
  await sandbox.ask()
  first()
  await slow
  const recording = await sandbox.recording()
  t.match(recording, [
    { n: 0, response: { body: { choices: [{ message: { content: 'first' } }] } } },
    { n: 1, response: { body: { choices: [{ message: { content: 'second' } }] } } },
  ])
  t.strictSame(recording[0]?.request, { model: 'm-1', assistantTurns: 0, body: request() })
})

void t.test('once an exchange could not be written no call is let through', async (t) => {
  const good = json(completion('ok', usage(1, 0, 1)))
  await using provider = await StandInProvider.open([good, good])
  await using sandbox = await Sandbox.open({
    baseUrl: provider.baseUrl,
    exchangesFile: '/dev/full',
  })
  t.equal((await sandbox.ask()).status, 200)
  await until(() => sandbox.gateway.usage().calls === 1)
  t.match(await sandbox.ask(), {
    status: 500,
    headers: { 'x-closedbook-reason': 'internal_error' },
  })
  t.equal(provider.seen.length, 1)
  t.match(sandbox.gateway.usage(), { calls: 1, failedCalls: 1, fault: { code: 'gateway_error' } })
})
