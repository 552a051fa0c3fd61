/** The providers' own Python clients, unmodified, against the gateway, with a stand-in provider behind it. */
import { readFile } from 'node:fs/promises'
import t from 'tap'
import {
  type Behaviour,
  completion,
  json,
  namedSse,
  sse,
  StandInProvider,
  textChunks,
  usage,
  usageChunk,
} from '../../daemon/gateway/provider.ts'
import { Sandbox } from '../../daemon/gateway/setup.ts'
import {
  message,
  messageEvents,
  response as answer,
  responseEvents,
} from '../../daemon/gateway/shapes.ts'
import { pythonPackage, runPython } from '../../support/python-packages.ts'

const error = (type: string) => ({
  type: 'error',
  error: { type, message: 'try later', code: type },
})
const busy = { 'retry-after': '0' }

const openai: Behaviour = (response, body) => {
  const said = JSON.stringify(body)
  const overChat = body['messages'] !== undefined
  const respond = (behaviour: Behaviour): void => behaviour(response, body)
  if (said.includes('"busy"')) respond(json(error('rate_limit_exceeded'), 429, busy))
  else if (said.includes('"broken"'))
    respond(
      overChat
        ? sse([...textChunks('half').slice(0, 3), error('server_error')])
        : namedSse([...responseEvents().slice(0, 7), { ...error('server_error') }]),
    )
  else if (overChat)
    respond(
      body['stream'] === true
        ? sse([...textChunks('Let me look.'), usageChunk(usage(100, 60, 30))])
        : json(completion('Let me look.', usage(100, 60, 30), 'ls -la')),
    )
  else respond(body['stream'] === true ? namedSse(responseEvents()) : json(answer()))
}

const claude: Behaviour = (response, body) => {
  const said = JSON.stringify(body)
  const respond = (behaviour: Behaviour): void => behaviour(response, body)
  if (body['max_tokens'] === undefined) respond(json({ input_tokens: 2095 }))
  else if (said.includes('"busy"')) respond(json(error('overloaded_error'), 529, busy))
  else if (said.includes('"broken"'))
    respond(namedSse([...messageEvents().slice(0, 9), error('overloaded_error')]))
  else respond(body['stream'] === true ? namedSse(messageEvents()) : json(message()))
}

const many = (behaviour: Behaviour): Behaviour[] => Array.from({ length: 40 }, () => behaviour)

/** Runs a client's program against a gateway, and another one whose budget is spent. */
async function run(kind: 'openai' | 'anthropic', version: string) {
  await using undo = new AsyncDisposableStack()
  const provider = undo.use(await StandInProvider.open(many(kind === 'openai' ? openai : claude)))
  const { baseUrl } = provider
  const sandbox = undo.use(await Sandbox.open({ baseUrl, kind }))
  const spent = undo.use(await Sandbox.open({ baseUrl, kind, spec: { budget: { calls: 1 } } }))
  const [first, body] =
    kind === 'openai'
      ? ['/v1/chat/completions', { messages: [{ role: 'user', content: 'hello' }] }]
      : ['/v1/messages', { max_tokens: 1, messages: [{ role: 'user', content: 'hello' }] }]
  await spent.send(first, { body: { model: 'm-1', ...body } })
  const program = await readFile(new URL(`${kind}.py`, import.meta.url), 'utf8')
  const at = ({ port }: Sandbox) => `http://127.0.0.1:${port}${kind === 'openai' ? '/v1' : ''}`
  const seen = await runPython(await pythonPackage(kind, version), program, [
    at(sandbox),
    at(spent),
  ])
  const asked = (text: string): number =>
    provider.seen.filter(({ body: sent }) => JSON.stringify(sent).includes(`"${text}"`)).length
  return { seen, asked, usage: sandbox.gateway.usage(), audit: sandbox.audit }
}

void t.test(
  'the openai client asks, streams, calls tools and gives up where it should',
  async (t) => {
    const { seen, asked, usage: used, audit } = await run('openai', '3.57.0')
    const refused = (code: string) => ['NotFoundError', 404, code, null]
    t.strictSame(seen, {
      models: ['m-1', 'm-1'],
      chat: ['Let me look.', '{"command":"ls -la"}', 100],
      'chat turn': 'Let me look.',
      'chat stream': ['Let me look.', 30],
      responses: ['Let me look.', ['reasoning', 'message', 'function_call'], 200],
      'responses turn': 'Let me look.',
      'responses stream': ['response.created', 'response.completed', 'Let me look.'],
      'responses helper': ['Let me look.', 'Let me look.'],
      search: refused('tool_denied'),
      'search option': refused('body_field_denied'),
      stored: refused('body_field_denied'),
      fetched: ['PermissionDeniedError', 403, 'path_denied', null],
      model: refused('model_denied'),
      file: ['PermissionDeniedError', 403, 'path_denied', null],
      busy: ['RateLimitError', 429, 'rate_limit_exceeded', '0'],
      broken: ['APIError', 'server_error'],
      'broken responses': ['APIError', 'server_error'],
      spent: ['AuthenticationError', 401, 'budget_spent', null],
    })
    t.equal(asked('busy'), 2, 'the client obeys Retry-After and asks once more')
    t.match(used, { calls: 7, refusedCalls: 4, failedCalls: 4, inputTokens: 1100 })
    t.equal(audit.filter(({ action }) => action === 'deny').length, 6)
  },
)

void t.test(
  'the anthropic client asks, streams, calls tools and gives up where it should',
  async (t) => {
    const { seen, asked, usage: used, audit } = await run('anthropic', '2.14.0')
    const refused = (code: string) => ['NotFoundError', code, null]
    t.strictSame(seen, {
      models: ['m-1', 'm-1'],
      messages: [['thinking', 'text', 'tool_use'], { command: 'ls -la', timeout: 3 }, 60],
      'messages turn': 'tool_use',
      stream: 'message_stop',
      'stream helper': ['Let me look.', { command: 'ls -la', timeout: 3 }, 30],
      count: 2095,
      beta: 'tool_use',
      'other beta': refused('body_field_denied'),
      search: refused('tool_denied'),
      fetched: refused('remote_url_denied'),
      batch: ['PermissionDeniedError', 'path_denied', null],
      busy: ['OverloadedError', 'overloaded_error', '0'],
      broken: ['APIStatusError', 'overloaded_error', null],
      spent: ['AuthenticationError', 'budget_spent', null],
    })
    t.equal(asked('busy'), 2, 'the client obeys Retry-After and asks once more')
    t.match(used, { calls: 5, refusedCalls: 3, failedCalls: 3, inputTokens: 1000 })
    t.equal(audit.filter(({ action }) => action === 'deny').length, 4)
  },
)
