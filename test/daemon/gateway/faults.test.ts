import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import t from 'tap'
import {
  apiKey,
  type Behaviour,
  chunk,
  completion,
  events,
  json,
  namedEvents,
  namedSse,
  sse,
  StandInProvider,
  usage,
  usageChunk,
} from './provider.ts'
import { request, Sandbox } from './setup.ts'
import {
  blockDelta,
  message,
  messageEvents,
  response,
  responseEvents,
  type Event,
} from './shapes.ts'

const bodies = {
  '/v1/chat/completions': request(),
  '/v1/messages': { model: 'm-1', max_tokens: 64, messages: [{ role: 'user', content: 'hello' }] },
  '/v1/messages/count_tokens': { model: 'm-1', messages: [{ role: 'user', content: 'hello' }] },
  '/v1/responses': { model: 'm-1', input: 'hello' },
}
type Path = keyof typeof bodies

const kindOf = (path: Path) => (path.startsWith('/v1/messages') ? 'anthropic' : 'openai')

const error = (type: string, message = type) => ({ type: 'error', error: { type, message } })

/** Sends these bytes as a stream and leaves it open. */
const open =
  (text: string, every?: string): Behaviour =>
  (to) => {
    to.writeHead(200, { 'content-type': 'text/event-stream' })
    to.write(text)
    if (every === undefined) return
    const timer = setInterval(() => to.write(every), 20)
    to.on('close', () => clearInterval(timer))
  }

const failed = (fields: object): Event => ({
  type: 'response.failed',
  response: { ...response({ status: 'failed', output: [], usage: null }), error: fields },
})
const begunMessage = messageEvents().slice(0, 9)
const begunResponse = responseEvents().slice(0, 7)
const searched = { type: 'server_tool_use', id: 'srvtoolu_1', name: 'web_search', input: {} }
const searchCall = { type: 'web_search_call', id: 'ws_1', status: 'completed' }
const citation = {
  type: 'url_citation',
  url: 'https://198.51.100.7/',
  start_index: 0,
  end_index: 1,
}
const cited = {
  type: 'message',
  role: 'assistant',
  content: [{ type: 'output_text', text: 'x', annotations: [citation] }],
}
const chat = completion('x', usage(1, 0, 1))
const withMessage = (fields: object) => ({
  ...chat,
  choices: chat.choices.map((one) => ({ ...one, message: { ...one.message, ...fields } })),
})

type Row = readonly [string, Path, Behaviour, string | null, string?]
/** What the provider does; the API; its behaviour; the fault; `stream` where it was asked for a stream. */
const rows: readonly Row[] = [
  ['too many', '/v1/messages', json(error('rate_limit_error'), 429), 'upstream_busy'],
  ['overloaded', '/v1/messages', json(error('overloaded_error'), 529), 'upstream_busy'],
  ['our key', '/v1/messages', json(error('authentication_error'), 401), 'upstream_auth'],
  ['our bill', '/v1/messages', json(error('billing_error'), 402), 'upstream_auth'],
  [
    'our credit, in words alone',
    '/v1/messages',
    json(error('invalid_request_error', 'Your credit balance is too low to access the API'), 400),
    'upstream_auth',
  ],
  ['the name', '/v1/messages', json(error('not_found_error'), 404), 'upstream_rejected'],
  ['its own fault', '/v1/messages', json(error('api_error'), 500), 'upstream_error'],
  ['a long prompt', '/v1/messages', json(error('invalid_request_error'), 400), null],
  [
    'overloaded in mid-stream',
    '/v1/messages',
    namedSse([...begunMessage, error('overloaded_error')]),
    'upstream_busy',
    'stream',
  ],
  [
    'no usage at the end',
    '/v1/messages',
    namedSse(messageEvents().filter(({ type }) => type !== 'message_delta')),
    'usage_missing',
    'stream',
  ],
  ['no usage', '/v1/messages', json(message({ usage: null })), 'usage_missing'],
  ['a stream that ends early', '/v1/messages', namedSse(begunMessage), 'upstream_broken', 'stream'],
  ['no message', '/v1/messages', json({ type: 'completion' }), 'upstream_invalid'],
  [
    'pings and no word',
    '/v1/messages',
    open(namedEvents(begunMessage), namedEvents([{ type: 'ping' }])),
    'upstream_timeout',
    'stream',
  ],
  [
    'comments and no word',
    '/v1/chat/completions',
    open(events([chunk({ content: 'x' })]), ': waiting\n\n'),
    'upstream_timeout',
    'stream',
  ],
  ['a count that fails', '/v1/messages/count_tokens', json({}, 503), 'upstream_error'],
  ['no count', '/v1/messages/count_tokens', json({ tokens: 1 }), 'upstream_invalid'],
  [
    'a response that failed',
    '/v1/responses',
    json(response({ status: 'failed', error: { code: 'server_error', message: 'oops' } })),
    'upstream_error',
  ],
  [
    'one that is not there yet',
    '/v1/responses',
    json(response({ status: 'queued' })),
    'upstream_invalid',
  ],
  ['no usage', '/v1/responses', json(response({ usage: null })), 'usage_missing'],
  [
    'too many in mid-stream',
    '/v1/responses',
    namedSse([...begunResponse, failed({ code: 'rate_limit_exceeded', message: 'slow' })]),
    'upstream_busy',
    'stream',
  ],
  [
    'an error event',
    '/v1/responses',
    namedSse([...begunResponse, { type: 'error', code: 'server_error', message: 'oops' }]),
    'upstream_error',
    'stream',
  ],
  [
    'a prompt that it refused',
    '/v1/responses',
    namedSse([...begunResponse, failed({ code: 'invalid_prompt', message: 'no' })]),
    null,
    'stream',
  ],
  [
    'a stream that ends early',
    '/v1/responses',
    namedSse(begunResponse),
    'upstream_broken',
    'stream',
  ],
  [
    'a tool of its own',
    '/v1/messages',
    json(message({ content: [searched] })),
    'upstream_grounded',
  ],
  [
    'a search in its bill',
    '/v1/messages',
    json(
      message({
        usage: { input_tokens: 1, output_tokens: 1, server_tool_use: { web_search_requests: 1 } },
      }),
    ),
    'upstream_grounded',
  ],
  [
    'a tool of its own, in mid-stream',
    '/v1/messages',
    namedSse([
      ...begunMessage,
      { type: 'content_block_start', index: 2, content_block: searched },
      ...messageEvents().slice(-2),
    ]),
    'upstream_grounded',
    'stream',
  ],
  [
    'a tool of its own',
    '/v1/responses',
    json(response({ output: [searchCall, cited] })),
    'upstream_grounded',
  ],
  ['a citation', '/v1/responses', json(response({ output: [cited] })), 'upstream_grounded'],
  [
    'a tool of its own, in mid-stream',
    '/v1/responses',
    namedSse([
      ...begunResponse,
      { type: 'response.web_search_call.searching', output_index: 3, item_id: 'ws_1' },
      ...responseEvents().slice(-1),
    ]),
    'upstream_grounded',
    'stream',
  ],
  [
    'a citation',
    '/v1/chat/completions',
    json(withMessage({ annotations: [citation] })),
    'upstream_grounded',
  ],
  [
    'sources',
    '/v1/chat/completions',
    json({ ...chat, citations: ['https://198.51.100.7/'] }),
    'upstream_grounded',
  ],
  [
    'a citation in mid-stream',
    '/v1/chat/completions',
    sse([chunk({ content: 'x' }), chunk({ annotations: [citation] }), usageChunk(usage(1, 0, 1))]),
    'upstream_grounded',
    'stream',
  ],
  [
    'no citations',
    '/v1/chat/completions',
    json({ ...withMessage({ annotations: [] }), citations: [] }),
    'ok',
  ],
]

const good: Readonly<Record<string, Behaviour>> = {
  anthropic: json(message()),
  openai: json(chat),
}

void t.test('what goes wrong is told from the agent in each API, and replayed so', async (t) => {
  for (const kind of ['anthropic', 'openai'] as const) {
    const own = rows.filter(([, path]) => kindOf(path) === kind)
    await using provider = await StandInProvider.open([
      ...own.flatMap(([, , behaviour]) => [good[kind] ?? behaviour, behaviour]),
    ])
    const spec = { upstreamTimeoutMs: 250 }
    await using live = await Sandbox.open({ baseUrl: provider.baseUrl, kind, spec })
    const run = async (sandbox: Sandbox) => {
      const faults: unknown[] = []
      for (const [what, path, , code, stream] of own) {
        const first = kind === 'openai' ? '/v1/chat/completions' : '/v1/messages'
        t.equal((await sandbox.send(first, { body: bodies[first] })).status, 200)
        t.equal(sandbox.gateway.usage().fault, null)
        const answer = await sandbox.send(path, {
          body: { ...bodies[path], ...(stream === undefined ? {} : { stream: true }) },
        })
        const { fault } = sandbox.gateway.usage()
        faults.push(fault)
        if (code === 'ok') t.equal(answer.status, 200, `${path}: ${what}`)
        else {
          t.equal(fault?.code ?? null, code, `${path}: ${what}`)
          t.match(answer.text, '"error":{', `${path}: ${what}`)
          t.notMatch(answer.text, /\[DONE\]|message_stop|response\.completed/)
        }
      }
      return faults
    }
    const faults = await run(live)
    t.equal(provider.seen.length, 2 * own.length)
    await using again = await Sandbox.open({ replay: await live.recording() })
    t.strictSame(await run(again), faults)
    t.strictSame(again.gateway.usage(), live.gateway.usage())
  }
})

void t.test(
  'an answer made with a tool of the provider is withheld, and the audit says why',
  async (t) => {
    await using provider = await StandInProvider.open([json(message({ content: [searched] }))])
    const { baseUrl } = provider
    await using sandbox = await Sandbox.open({ baseUrl, kind: 'anthropic' })
    const answer = await sandbox.send('/v1/messages', { body: bodies['/v1/messages'] })
    t.match(answer, { status: 502, headers: { 'x-closedbook-reason': 'tool_denied' } })
    t.match(answer.text, /upstream_grounded: .*\(server_tool_use\)/)
    t.notMatch(answer.text, 'srvtoolu')
    t.match(sandbox.audit, [{ action: 'allow' }, { kind: 'close', reason: 'tool_denied' }])
  },
)

void t.test('the key is in no answer, no record, no audit and no event of any API', async (t) => {
  const escaped = `"${Array.from(Buffer.from(apiKey), (one) => `\\u00${one.toString(16)}`).join('')}"`
  const echo: Behaviour = (to) => {
    to.writeHead(400, { 'content-type': 'application/json', 'request-id': apiKey })
    to.end(`{"type":"error","error":{"type":"x","message":${escaped},"${apiKey}":1}}`)
  }
  const text = blockDelta(1, { type: 'text_delta', text: apiKey })
  const exchangesFile = join(t.testdir({}), 'exchanges.jsonl')
  const everything: unknown[] = []
  for (const kind of ['anthropic', 'openai'] as const) {
    const path = kind === 'anthropic' ? '/v1/messages' : '/v1/responses'
    await using provider = await StandInProvider.open([
      echo,
      (to) => to.writeHead(500).end(`oops ${apiKey}`),
      (to) => to.writeHead(302, { location: `http://198.51.100.7/${apiKey}` }).end(),
      json(kind === 'anthropic' ? message({ model: apiKey }) : response({ model: apiKey })),
      namedSse([...messageEvents().slice(0, 9), text, ...messageEvents().slice(9)]),
      namedSse(responseEvents({ type: 'error', code: apiKey, message: apiKey })),
      (to) => {
        to.writeHead(200, { 'content-type': 'text/event-stream' })
        to.end(`event: ${apiKey}\ndata: ${apiKey}\n\n`)
      },
      (to) => to.writeHead(200, { 'content-encoding': apiKey }).end(),
      (to) => to.socket?.destroy(),
    ])
    await using sandbox = await Sandbox.open({ baseUrl: provider.baseUrl, kind, exchangesFile })
    const answers = []
    for (let n = 0; n < 9; n += 1)
      answers.push(await sandbox.send(path, { body: { ...bodies[path], stream: n > 3 } }))
    answers.push(await sandbox.send(`/v1/files?key=${kind}`, { method: 'GET' }))
    t.equal(provider.seen.length, 9)
    await sandbox.gateway.shut()
    everything.push(answers, sandbox.audit, sandbox.calls, sandbox.gateway.usage())
    everything.push(sandbox.gateway, await readFile(exchangesFile, 'utf8'))
  }
  const found = JSON.stringify(everything)
  t.ok(found.length > 10_000)
  t.match(found, '[removed]')
  t.notMatch(found, apiKey)
  t.notMatch(found, escaped.slice(1, -1))
  t.notMatch(found, 'sk-live')
})

void t.test(
  'a word that stands in for a key is no secret, and a key that is none is refused',
  async (t) => {
    await using provider = await StandInProvider.open([
      (to, body) => json(completion(`EMPTY ${Object.keys(body).length}`, usage(1, 0, 1)))(to, body),
    ])
    const { baseUrl } = provider
    await using sandbox = await Sandbox.open({ baseUrl, apiKey: 'EMPTY' })
    t.match((await sandbox.ask()).text, '"EMPTY 2"')
    const secret = `${apiKey}\nx-other: 1`
    await t.rejects(Sandbox.open({ baseUrl, apiKey: secret }), { code: 'lease_refused' })
    const said = await Sandbox.open({ baseUrl, apiKey: secret }).catch(String)
    t.notMatch(said, 'sk-live')
    for (const url of ['http://user:pass@127.0.0.1/v1', 'http://127.0.0.1/v1?key=x'])
      await t.rejects(Sandbox.open({ baseUrl: url }), /may have no user, password, query/)
  },
)
