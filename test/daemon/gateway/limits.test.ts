import { once } from 'node:events'
import net from 'node:net'
import t from 'tap'
import { tokensOf } from '../../../daemon/gateway/chat-shape.ts'
import { costOf } from '../../../daemon/protocol/model-cost.ts'
import {
  type Behaviour,
  completion,
  events,
  json,
  StandInProvider,
  textChunks,
  usage,
  usageChunk,
} from './provider.ts'
import { price, request, Sandbox, until, type Received } from './setup.ts'

const statuses = (answers: readonly Received[]): number[] =>
  answers.map(({ status }) => status).toSorted((a, b) => a - b)

const errorOf = (received: Received) =>
  (JSON.parse(received.text) as { error: { message: string; type: string; code: string } }).error

void t.test('the metered cost is that of the summed usage, exactly, whatever the prices', (t) => {
  t.equal(
    costOf(
      { inputTokens: 3, cachedInputTokens: 0, outputTokens: 0 },
      { ...price, inputPerMillionUsd: 0.1 },
    ),
    3e-7,
  )
  t.equal(
    costOf(
      { inputTokens: 5, cachedInputTokens: 2, outputTokens: 7 },
      { inputPerMillionUsd: 1e-7, cachedInputPerMillionUsd: 1e21, outputPerMillionUsd: 2.5 },
    ),
    2_000_000_000_000_000,
  )
  const written = {
    inputTokens: 10,
    cachedInputTokens: 3,
    cacheWriteInputTokens: 5,
    outputTokens: 0,
  }
  t.equal(costOf(written, { ...price, cacheWriteInputPerMillionUsd: 2 }), 0.00001253)
  t.equal(costOf(written, price), 0.00000803, 'without a rate of its own it is input')
  const parts = Array.from({ length: 1000 }, (_, n) => {
    return {
      inputTokens: 900 + n * 37,
      cachedInputTokens: n * 13,
      outputTokens: 11 + n,
      reasoningTokens: n,
    }
  })
  const sum = parts.reduce((a, b) => {
    return {
      inputTokens: a.inputTokens + b.inputTokens,
      cachedInputTokens: a.cachedInputTokens + b.cachedInputTokens,
      outputTokens: a.outputTokens + b.outputTokens,
      reasoningTokens: 0,
    }
  })
  // 1.1, 0.11 and 4.4 per million in units of 1e-8 dollars: whole numbers, so exact in doubles as well.
  const units = parts.reduce(
    (total, { inputTokens, cachedInputTokens, outputTokens }) =>
      total + (inputTokens - cachedInputTokens) * 110 + cachedInputTokens * 11 + outputTokens * 440,
    0,
  )
  t.equal(costOf(sum, price), units / 1e8)
  t.end()
})

void t.test('usage that is missing or makes no sense is not read as zero', (t) => {
  const good = { prompt_tokens: 10, completion_tokens: 5 }
  const table: [unknown, string, object | null][] = [
    [
      good,
      'details may be absent',
      {
        inputTokens: 10,
        cachedInputTokens: 0,
        cacheWriteInputTokens: 0,
        outputTokens: 5,
        reasoningTokens: 0,
      },
    ],
    [{ ...good, prompt_tokens_details: null }, 'details may be null', { inputTokens: 10 }],
    [
      { ...good, prompt_tokens_details: { cached_tokens: 4, cache_write_tokens: 8 } },
      'what was read is not written as well',
      { cachedInputTokens: 4, cacheWriteInputTokens: 6 },
    ],
    [{ ...good, prompt_cache_hit_tokens: 4 }, "DeepSeek's name", { cachedInputTokens: 4 }],
    [
      { ...good, total_tokens: 18, completion_tokens_details: { reasoning_tokens: 3 } },
      'reasoning beside the completion, as the total tells',
      { outputTokens: 8, reasoningTokens: 3 },
    ],
    [
      { ...good, total_tokens: 15, completion_tokens_details: { reasoning_tokens: 3 } },
      'reasoning within the completion',
      { outputTokens: 5, reasoningTokens: 3 },
    ],
    [null, 'null', null],
    [{}, 'empty', null],
    [{ prompt_tokens: 10 }, 'no output', null],
    [{ ...good, completion_tokens: -1 }, 'negative', null],
    [{ ...good, completion_tokens: 1.5 }, 'not whole', null],
    [{ ...good, completion_tokens: '5' }, 'text', null],
    [{ ...good, prompt_tokens_details: { cached_tokens: 11 } }, 'more cached than there was', null],
  ]
  for (const [wire, why, expected] of table)
    if (expected === null) t.equal(tokensOf(wire), null, why)
    else t.match(tokensOf(wire), expected, why)
  t.end()
})

void t.test(
  'a budget is checked before each call, and two calls at once cannot both overrun it',
  async (t) => {
    const table = [
      { budget: { calls: 2 }, words: '2 of 2 calls' },
      { budget: { outputTokens: 100 }, words: '100 of 100 outputTokens' },
      { budget: { totalTokens: 1500 }, words: '2100 of 1500 totalTokens' },
      { budget: { costUsd: 0.0014 }, words: '0.00264 of 0.0014 costUsd' },
    ]
    for (const { budget, words } of table) {
      const good = json(completion('ok', usage(1000, 0, 50)))
      await using provider = await StandInProvider.open([good, good, good, good])
      await using sandbox = await Sandbox.open({ baseUrl: provider.baseUrl, spec: { budget } })
      t.equal(sandbox.gateway.usage().budgetSpent, false)
      const answers = await Promise.all([
        sandbox.ask(),
        sandbox.ask(),
        sandbox.ask(),
        sandbox.ask(),
      ])
      t.strictSame(statuses(answers), [200, 200, 401, 401], words)
      const refused = answers.find(({ status }) => status === 401)
      t.match(refused?.headers['x-closedbook-reason'], 'budget_spent')
      t.match(errorOf(refused ?? answers[0]), { code: 'budget_spent', message: new RegExp(words) })
      t.equal(provider.seen.length, 2, 'a refused call costs nothing')
      t.match(sandbox.gateway.usage(), {
        calls: 2,
        refusedCalls: 2,
        budgetSpent: true,
        fault: null,
      })
    }
  },
)

void t.test('calls that say what they may take run side by side while that fits', async (t) => {
  const bytes = JSON.stringify(request({ max_tokens: 50 })).length
  const table = [
    { budget: { outputTokens: 149 }, why: 'of output, three limits of 50 do not fit' },
    { budget: { totalTokens: 3 * (bytes + 50) - 1 }, why: 'of all tokens, a byte is one at most' },
    // A byte of input costs the dearer of reading and writing the cache: 1.375; 50 of output 220.
    { budget: { costUsd: (3 * (bytes * 1.375 + 220) - 1) / 1e6 }, why: 'of dollars' },
    { budget: { calls: 2 }, why: 'of calls' },
  ]
  for (const { budget, why } of table) {
    const waiting: (() => void)[] = []
    const held: Behaviour = (response, body) =>
      void waiting.push(() => json(completion('ok', usage(10, 0, 5)))(response, body))
    await using provider = await StandInProvider.open([held, held, held, held])
    await using sandbox = await Sandbox.open({ baseUrl: provider.baseUrl, spec: { budget } })
    const first = [sandbox.ask({ max_tokens: 50 }), sandbox.ask({ max_tokens: 50 })]
    await until(() => provider.seen.length === 2)
    const third = sandbox.ask({ max_tokens: 50 })
    const fourth = sandbox.ask()
    await sandbox.caughtUp()
    t.equal(provider.seen.length, 2, why)
    waiting[0]?.()
    waiting[1]?.()
    await Promise.all(first)
    if ('calls' in budget) {
      t.strictSame(statuses([await third, await fourth]), [401, 401], why)
      continue
    }
    // Their answers took less than they might have: the third starts, the fourth, which names no limit, waits.
    await until(() => provider.seen.length === 3)
    await sandbox.caughtUp()
    t.equal(provider.seen.length, 3, why)
    waiting[2]?.()
    await until(() => provider.seen.length === 4)
    waiting[3]?.()
    t.strictSame(statuses([await third, await fourth]), [200, 200], why)
  }
})

void t.test('a failed call leaves its turn within the budget to the next one', async (t) => {
  await using provider = await StandInProvider.open([
    json({ error: { message: 'boom' } }, 500),
    json(completion('ok', usage(1, 0, 1))),
  ])
  await using sandbox = await Sandbox.open({
    baseUrl: provider.baseUrl,
    spec: { budget: { calls: 1 } },
  })
  const answers = await Promise.all([sandbox.ask(), sandbox.ask(), sandbox.ask()])
  t.strictSame(statuses(answers), [200, 401, 500])
  t.match(sandbox.gateway.usage(), { calls: 1, failedCalls: 1, refusedCalls: 1 })
})

void t.test(
  'a client that hangs up is billed all the same, and one that waits leaves the queue',
  async (t) => {
    let finish = (): void => {}
    await using provider = await StandInProvider.open([
      (response) => {
        response.writeHead(200, { 'content-type': 'text/event-stream' })
        response.write(events(textChunks('a long answer')))
        finish = () => response.end(`${events([usageChunk(usage(7, 0, 9))])}data: [DONE]\n\n`)
      },
      json(completion('next', usage(1, 0, 1))),
    ])
    await using sandbox = await Sandbox.open({
      baseUrl: provider.baseUrl,
      spec: { budget: { totalTokens: 1_000_000 } },
    })
    const stream = await sandbox.begin('/v1/chat/completions', { body: request({ stream: true }) })
    await once(stream, 'data')
    const impatient = net.connect(sandbox.port, '127.0.0.1')
    const waiting = JSON.stringify(request())
    const written = Promise.withResolvers<void>()
    impatient.write(
      `POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: ${waiting.length}\r\n\r\n${waiting}`,
      () => written.resolve(),
    )
    await written.promise
    await sandbox.caughtUp()
    stream.destroy()
    impatient.destroy()
    await sandbox.caughtUp()
    finish()
    await until(() => sandbox.gateway.usage().calls === 1)
    t.match(sandbox.gateway.usage(), { inputTokens: 7, outputTokens: 9, fault: null })
    t.equal((await sandbox.ask()).status, 200)
    t.equal(provider.seen.length, 2, 'the call that nobody waits for is not made')
  },
)

void t.test(
  'what is not the API is refused by path, and only the one model is listed',
  async (t) => {
    await using sandbox = await Sandbox.open({ replay: [] })
    const get = (path: string) => sandbox.send(path, { method: 'GET' })
    t.match(await get('/closedbook/ping'), { status: 200, text: '{"gateway":"open"}' })
    t.match(JSON.parse((await get('/v1/models')).text), { object: 'list', data: [{ id: 'm-1' }] })
    const denied: [string, string][] = [
      ['POST', '/v1/responses/resp_1/cancel'],
      ['GET', '/v1/responses/resp_1'],
      ['POST', '/v1/messages/batches'],
      ['POST', '/v1/messages?beta=false'],
      ['POST', '/v1/containers'],
      ['POST', '/v1/vector_stores'],
      ['GET', '/v1/realtime'],
      ['POST', '/v1/conversations'],
      ['POST', '/v1/files'],
      ['POST', '/v1/embeddings'],
      ['GET', '/v1/chat/completions'],
      ['POST', '/v1/chat/completions?x=1'],
      ['POST', '/v1/chat/completions/'],
      ['POST', '//v1/chat/completions'],
      ['POST', '/v1/../v1/chat/completions'],
      ['GET', 'http://203.0.113.7/v1/models'],
      ['DELETE', '/v1/models'],
    ]
    for (const [method, path] of denied) {
      const answer = await sandbox.send(path, { method, body: method === 'POST' ? request() : '' })
      t.match(
        answer,
        { status: 403, headers: { 'x-closedbook-reason': 'path_denied' } },
        `${method} ${path}`,
      )
      t.equal(errorOf(answer).code, 'path_denied')
    }
    t.equal(sandbox.audit.filter(({ reason }) => reason === 'path_denied').length, denied.length)
    t.equal(sandbox.audit.length, denied.length + 2)
  },
)

void t.test(
  'hostile bodies are refused before they cost anything, and the gateway lives on',
  async (t) => {
    const answer = {
      v: 1,
      n: 0,
      api: 'openai.chat',
      latencyMs: 0,
      response: { status: 200, headers: {}, body: completion('alive', usage(1, 0, 1)) },
    } as const
    await using sandbox = await Sandbox.open({ replay: [answer] })
    const open = '{"model":"m-1","messages":[{"role":"user","content":"x"}],'
    const table: [string, string | Buffer, string][] = [
      ['nothing', '', 'body_invalid: the body is not valid JSON'],
      ['not JSON', 'model=m-1', 'body_invalid: the body is not valid JSON'],
      ['an array', '[]', 'body_invalid: the body must be a JSON object, not an array'],
      [
        'invalid UTF-8',
        Buffer.from([0x7b, 0x22, 0xff, 0x22]),
        'body_invalid: the body is not valid UTF-8',
      ],
      ['a byte order mark', `\ufeff${open}"n":1}`, 'body_invalid: the body is not valid JSON'],
      ['a raw NUL', `${open}"user":"\0"}`, 'body_invalid: the body is not valid JSON'],
      ['deep arrays', '['.repeat(1_000_000), 'body_invalid: the body is nested deeper than 100'],
      ['deep objects', '{"a":'.repeat(100_000), 'body_invalid: the body is nested deeper than 100'],
      [
        'many values',
        `${open}"stop":[${'0,'.repeat(600_000)}0]}`,
        'body_invalid: the body has more than 500000 values',
      ],
      [
        'an infinite number',
        `${open}"seed":1e999}`,
        'body_invalid: the body holds a number beyond 2^53',
      ],
      [
        'a number that would be altered',
        `${open}"seed":12345678901234567890}`,
        'body_invalid: the body holds a number beyond 2^53',
      ],
      [
        'a hidden second model',
        `{"model":"m-1",${open.slice(1)}"model":"other"}`,
        'model_denied: only the model "m-1" may be asked',
      ],
      [
        'a key of Object.prototype',
        `${open}"__proto__":{"store":true}}`,
        'body_field_denied: __proto__ is not among the fields that are passed on',
      ],
      [
        'too many bytes',
        Buffer.alloc(33 * 1024 * 1024, 0x20),
        'limit_bytes: a body may have 33554432 bytes, all bodies at once 67108864',
      ],
    ]
    for (const [what, body, message] of table) {
      const refused = await sandbox.send('/v1/chat/completions', { body })
      t.equal(refused.status, 404, what)
      t.equal(errorOf(refused).message, `closedbook: ${message}`, what)
    }
    const zipped = { body: JSON.stringify(request()), headers: { 'content-encoding': 'gzip' } }
    t.equal(
      (await sandbox.send('/v1/chat/completions', zipped)).headers['x-closedbook-reason'],
      'body_invalid',
    )
    for (const bytes of [
      '\x16\x03\x01\x02\x00',
      'CONNECT a.test:443 HTTP/1.1\r\nHost: a.test\r\n\r\n',
    ]) {
      const socket = net.connect(sandbox.port, '127.0.0.1').on('error', () => {})
      socket.write(bytes)
      let text = ''
      socket.on('data', (part: Buffer) => (text += part.toString()))
      await once(socket, 'close')
      t.match(text, /^HTTP\/1\.1 400 .*bad_request/s)
    }
    t.match(sandbox.gateway.usage(), { calls: 0, failedCalls: 0, refusedCalls: table.length + 1 })
    t.equal((await sandbox.ask()).status, 200)
  },
)

void t.test('a model that searches the web opens no gateway', async (t) => {
  const spec = { model: 'gpt-4o-search-preview' }
  await t.rejects(Sandbox.open({ baseUrl: 'http://127.0.0.1:1/v1', spec }), {
    code: 'lease_refused',
  })
})
