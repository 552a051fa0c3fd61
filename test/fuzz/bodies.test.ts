/** Bodies: JSON of model requests and server-sent events. Nothing is read one way and sent on in another. */
import t from 'tap'
import { parseBody } from '../../daemon/gateway/request-body.ts'
import { sseDone, sseEvent, SseReader, type SseItem } from '../../daemon/gateway/sse.ts'
import { canonicalJson } from '../../policy/hash.ts'
import { decideCountRequest, decideMessagesRequest } from '../../policy/model-messages.ts'
import { decideModelRequest, type ModelRequestDecision } from '../../policy/model-request.ts'
import { decideResponsesRequest } from '../../policy/model-responses.ts'
import { Mutator } from './mutator.ts'

const spec = { model: 'm' }
const headers = { version: undefined, betas: [] }
const judges = {
  chat: (body: unknown) => decideModelRequest(spec, body),
  responses: (body: unknown) => decideResponsesRequest(spec, body),
  messages: (body: unknown) => decideMessagesRequest(spec, body, headers),
  count: (body: unknown) => decideCountRequest(spec, body, headers),
} satisfies Record<string, (body: unknown) => ModelRequestDecision>

const text = [{ role: 'user', content: 'x' }]
const tool = { type: 'function', function: { name: 'run', parameters: { type: 'object' } } }
const bodies: Readonly<Record<keyof typeof judges, readonly object[]>> = {
  chat: [
    { model: 'm', messages: text, stream: true, temperature: 0.5, tools: [tool] },
    {
      model: 'm',
      messages: [
        { role: 'system', content: 'x' },
        {
          role: 'assistant',
          content: null,
          tool_calls: [{ id: 'a', type: 'function', function: { name: 'run', arguments: '{}' } }],
        },
        { role: 'tool', tool_call_id: 'a', content: 'y' },
      ],
      max_completion_tokens: 9,
    },
  ],
  responses: [
    { model: 'm', input: 'x', max_output_tokens: 9 },
    {
      model: 'm',
      input: [{ role: 'user', content: [{ type: 'input_text', text: 'x' }] }],
      tools: [{ type: 'function', name: 'run', parameters: {} }],
    },
  ],
  messages: [
    { model: 'm', max_tokens: 9, messages: text, system: 'x' },
    {
      model: 'm',
      max_tokens: 9,
      messages: [{ role: 'user', content: [{ type: 'text', text: 'x' }] }],
      tools: [{ name: 'run', input_schema: { type: 'object' } }],
    },
  ],
  count: [{ model: 'm', messages: text }],
}

/** What must be refused wherever it stands. */
const poison: Readonly<Record<'top' | 'tool' | 'part', readonly object[]>> = {
  top: [
    { store: true },
    { background: true },
    { previous_response_id: 'x' },
    { conversation: 'x' },
    { web_search_options: {} },
    { mcp_servers: [] },
    { container: 'x' },
    { metadata: { a: 'b' } },
    { plugins: [{ id: 'web' }] },
    { model: 'another' },
    { models: ['another'] },
  ],
  tool: [
    { type: 'web_search' },
    { type: 'web_search_20250305', name: 'web_search' },
    { type: 'web_fetch_20250910', name: 'web_fetch' },
    { type: 'code_execution_20250522', name: 'code_execution' },
    { type: 'mcp', server_url: 'https://x.example' },
    { type: 'file_search' },
    { type: 'computer_use_preview' },
    { type: 'image_generation' },
  ],
  part: [
    { type: 'image_url', image_url: { url: 'https://x.example/x.png' } },
    { type: 'input_image', image_url: 'https://x.example/x.png' },
    { type: 'input_image', file_id: 'x' },
    { type: 'input_file', file_url: 'https://x.example/x.pdf' },
    { type: 'image', source: { type: 'url', url: 'https://x.example/x.png' } },
    { type: 'document', source: { type: 'file', file_id: 'x' } },
    { type: 'file', file: { file_id: 'x' } },
  ],
}

void t.test(
  'a body that is accepted is JSON, keeps its meaning, and is judged alike when sent on',
  (t) => {
    const random = new Mutator(21)
    const corpus = [
      ...Object.values(bodies).flat(),
      { model: 'm', messages: text, n: 9_007_199_254_740_992, seed: 1e22 },
      JSON.parse(
        '{"model":"m","__proto__":{"store":true},"constructor":{"prototype":{}}}',
      ) as object,
      [[[[[1]]]]],
      '\ud800\u2028',
    ].map((value) => Buffer.from(JSON.stringify(value)))
    const ends = { accepted: 0, refused: 0, allowed: 0 }
    for (let round = 0; round < 25_000; round += 1) {
      const bytes = random.spoil(corpus)
      const where = `round ${round}: ${bytes.toString('latin1')}`
      const result = parseBody(bytes)
      if (!result.ok) {
        ends.refused += 1
        continue
      }
      ends.accepted += 1
      const again = JSON.stringify(result.value)
      if (canonicalJson(JSON.parse(bytes.toString())) !== canonicalJson(JSON.parse(again)))
        throw new Error(`another meaning, ${where}`)
      for (const judge of Object.values(judges)) {
        const { action, reason, rule, message } = judge(result.value)
        if (reason.length === 0 || rule.length > 400 || message.length === 0) throw new Error(where)
        if (action !== judge(JSON.parse(again)).action)
          throw new Error(`judged otherwise, ${where}`)
        if (action === 'allow') ends.allowed += 1
      }
    }
    for (const [end, times] of Object.entries(ends)) t.ok(times > 100, `${end}: ${times}`)
    t.end()
  },
)

void t.test('what JSON refuses is refused, and so is what is built to hurt', (t) => {
  const random = new Mutator(22)
  const corpus = ['{"a":[1,2,{"b":"c\\u0041"}]}', '[1e5,-0,0.1]', '"\\ud800"', '{"a":1,"a":2}'].map(
    (each) => Buffer.from(each),
  )
  for (let round = 0; round < 40_000; round += 1) {
    const bytes = random.spoil(corpus)
    let valid = true
    try {
      JSON.parse(new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes))
    } catch {
      valid = false
    }
    const { ok } = parseBody(bytes)
    if (ok && !valid) throw new Error(bytes.toString('latin1'))
  }
  const began = performance.now()
  for (const bad of [
    '['.repeat(1_000_000),
    `[${'0,'.repeat(600_000)}0]`,
    '{"a":'.repeat(200_000),
    '1e999',
    '12345678901234567890',
  ])
    t.notOk(parseBody(Buffer.from(bad)).ok, bad.slice(0, 20))
  t.ok(performance.now() - began < 2_000, 'without taking long over it')
  t.end()
})

void t.test('poison in a body that would be allowed is refused wherever it is put', (t) => {
  const random = new Mutator(23)
  for (const [api, list] of Object.entries(bodies))
    for (const body of list) t.equal(judges[api as keyof typeof judges](body).action, 'allow', api)
  for (let round = 0; round < 8_000; round += 1) {
    const api = random.pick(Object.keys(judges) as (keyof typeof judges)[])
    const body = structuredClone(random.pick(bodies[api])) as Record<string, unknown>
    const kind = random.pick(['top', 'tool', 'part'] as const)
    const bad = random.pick(poison[kind])
    if (kind === 'top') Object.assign(body, bad)
    else if (kind === 'tool') {
      const tools = Array.isArray(body['tools']) ? (body['tools'] as unknown[]) : []
      body['tools'] = tools.toSpliced(random.int(0, tools.length), 0, bad)
    } else {
      const field = api === 'responses' ? 'input' : 'messages'
      const said = Array.isArray(body[field]) ? (body[field] as unknown[]) : []
      const message = { role: 'user', content: [{ type: 'text', text: 'x' }, bad] }
      body[field] = said.toSpliced(random.int(0, said.length), 0, message)
    }
    const { action, reason } = judges[api](body)
    if (action !== 'deny') throw new Error(`${api}: ${JSON.stringify(body)}: ${reason}`)
  }
  t.pass()
  t.end()
})

const readAll = (chunks: readonly Buffer[]): SseItem[] => {
  const reader = new SseReader()
  return chunks.flatMap((chunk) => reader.read(chunk))
}

void t.test('events come out as they went in, however the stream is cut', (t) => {
  const random = new Mutator(24)
  for (let round = 0; round < 3_000; round += 1) {
    const payloads = Array.from({ length: random.int(1, 5) }, () => ({
      type: random.pick(['a.b', 'x', 'with space', 'new\nline']),
      text: random.text(random.int(0, 12)),
    }))
    const named = random.int(0, 1) === 1
    const stream = Buffer.from(payloads.map((each) => sseEvent(each, { named })).join('') + sseDone)
    const items = readAll(random.cut(stream, random.int(1, 8)))
    const data = items.flatMap((item) => (item.kind === 'data' ? [item.data] : []))
    const expected = [...payloads.map((each) => JSON.stringify(each)), '[DONE]']
    if (JSON.stringify(data) !== JSON.stringify(expected)) throw new Error(stream.toString())
  }
  t.pass()
  t.end()
})

void t.test('a spoilt stream of events is read alike however it is cut', (t) => {
  const random = new Mutator(25)
  const corpus = [
    'data: {"a":1}\n\n: ping\n\ndata: [DONE]\n\n',
    'event: x\r\ndata: one\r\ndata: two\r\n\r\n',
    'data:none\rdata: \r\r',
    '\ufeffdata: \u00e9\u2028\n\nid: 5\nretry: 1\ndata\n\n',
  ].map((each) => Buffer.from(each))
  let items = 0
  for (let round = 0; round < 30_000; round += 1) {
    const stream = random.spoil(corpus)
    const whole = readAll([stream])
    const cut = readAll(random.cut(stream, random.int(2, 6)))
    if (JSON.stringify(whole) !== JSON.stringify(cut))
      throw new Error(JSON.stringify(stream.toString('latin1')))
    items += whole.length
  }
  t.ok(items > 10_000, `${items} items`)
  t.end()
})
