import { readFile } from 'node:fs/promises'
import t from 'tap'
import { explain } from '../../policy/explain.ts'
import { policyHash } from '../../policy/hash.ts'
import { nothingAllowed, policySchema } from '../../policy/policy.ts'

const commit = '0123456789abcdef0123456789abcdef01234567'
const policy = policySchema.parse({
  version: 1,
  connect: {
    allow: ['huggingface.co', '*.hf.co', 'docs.example.com', 'xn--mnchen-3ya.example'],
    deny: ['bad.hf.co', '*.evil.hf.co'],
    ports: [80, 443],
  },
  huggingface: {
    repos: [
      { repo: 'acme/tiny', revision: commit },
      { repo: 'acme/code', revision: 'main', files: ['*.py', 'sub/**'] },
    ],
  },
})

interface Row {
  readonly target: string
  readonly action: string
  readonly reason: string
  readonly why: string
}

/** One a line: the target as a JSON string, action, reason, why. */
const table = await readFile(new URL('../fixtures/policy/targets.tsv', import.meta.url), 'utf8')
const rows = table
  .split('\n')
  .filter((line) => line !== '')
  .map((line): Row => {
    const [target = '', action = '', reason = '', why = ''] = line.split('\t')
    return { target: JSON.parse(target) as string, action, reason, why }
  })

void t.test('every target of the table is decided as it says, for the reason that it says', (t) => {
  t.ok(rows.length >= 400, `${rows.length} rows`)
  t.equal(new Set(rows.map(({ target }) => target)).size, rows.length, 'none of them twice')
  for (const { target, action, reason, why } of rows) {
    const result = explain(policy, target)
    const seen = result.ok ? `${result.action} ${result.reason}` : result.message
    t.equal(seen, `${action} ${reason}`, `${JSON.stringify(target)}: ${why}`)
  }
  t.end()
})

void t.test('a policy that allows nothing allows none of them but its own doors', (t) => {
  for (const { target } of rows) {
    const result = explain(nothingAllowed, target)
    if (!result.ok || result.action === 'deny') continue
    t.match(result.reason, /^(noise|allowed_gateway)$/, target)
  }
  t.end()
})

void t.test('what the rule is, and what must hold beside, is told', (t) => {
  t.match(explain(policy, 'https://cdn.hf.co/x'), {
    request: 'CONNECT cdn.hf.co:443',
    rule: 'allow *.hf.co',
    message: null,
    then: [/ClientHello for cdn\.hf\.co/, /path/, /address of cdn\.hf\.co/],
  })
  t.match(explain(policy, 'x.evil.hf.co:443'), { rule: 'deny *.evil.hf.co', then: { length: 0 } })
  t.match(explain(policy, 'https://huggingface.co/acme/tiny'), { then: { 3: /hf GET/ } })
  t.match(explain(policy, 'hf GET /acme/code/resolve/main/run.py'), {
    rule: 'repo acme/code',
    then: ['main of acme/code is frozen to its commit when the lease opens'],
  })
  t.match(explain(policy, 'hf GET /acme/tiny/resolve/main/x.py'), {
    message: /may read/,
    then: { length: 0 },
  })
  t.match(explain(nothingAllowed, 'hf GET /acme/tiny/resolve/main/x.py'), {
    then: [/no gateway listens/],
  })
  t.match(explain(policy, 'http://127.0.0.1:8401/acme/tiny/resolve/main/a.json'), {
    request: 'hf GET /acme/tiny/resolve/main/a.json',
    reason: 'allowed_artifact',
  })
  t.end()
})

void t.test('a model request is decided by its body, as the gateway would', (t) => {
  const messages = [{ role: 'user', content: 'x' }]
  const bodies: readonly (readonly [path: string, body: unknown, reason: string, rule: string])[] =
    [
      ['/v1/chat/completions', { model: 'm', messages }, 'allowed_gateway', 'model'],
      [
        '/v1/chat/completions',
        { model: 'm', messages, tools: [{ type: 'web_search' }] },
        'tool_denied',
        'tools[0].type',
      ],
      ['/v1/chat/completions', { model: 'm', messages, store: true }, 'body_field_denied', 'store'],
      [
        '/v1/responses',
        { model: 'm', input: 'x', background: true },
        'body_field_denied',
        'background',
      ],
      ['/v1/messages', { model: 'm', messages }, 'body_invalid', 'max_tokens'],
      ['/v1/messages', { model: 'm', messages, max_tokens: 5 }, 'allowed_gateway', 'model'],
      ['/v1/messages/count_tokens', { model: 'm', messages }, 'allowed_gateway', 'model'],
      ['/v1/messages', null, 'body_invalid', 'body'],
      ['/v1/responses', { input: 'x' }, 'model_denied', 'model'],
    ]
  for (const [path, body, reason, rule] of bodies)
    t.match(explain(policy, `model POST ${path}`, { body }), { reason, rule }, reason)
  t.match(
    explain(policy, 'model POST /v1/responses', { body: { model: 'm', input: 'x' }, model: 'n' }),
    { action: 'deny', reason: 'model_denied' },
  )
  t.end()
})

void t.test('what is no request is told what one looks like', (t) => {
  for (const [text, message] of [
    ['', /write one of/],
    ['docs.example.com', /write "docs\.example\.com:443"/],
    ['DOCS.example.com.', /write "docs\.example\.com:443"/],
    ['hf GET', /write one of/],
    ['GET docs.example.com', /write one of/],
    ['a b c d e', /write one of/],
  ] as const)
    t.match(explain(policy, text), { ok: false, message }, JSON.stringify(text))
  t.end()
})

void t.test('a section that sets nothing changes no name; one that sets something does', (t) => {
  const bare = policyHash(nothingAllowed)
  for (const more of [{ limits: {} }, { audit: {} }, { audit: { onFull: 'stop' } }])
    t.equal(policyHash(policySchema.parse({ version: 1, ...more })), bare, JSON.stringify(more))
  const names = [
    { limits: { connections: 8 } },
    { limits: { connections: 9 } },
    { limits: { maxBytes: 8 } },
    { audit: { maxBytes: 100_000 } },
  ].map((more) => policyHash(policySchema.parse({ version: 1, ...more })))
  t.equal(new Set([bare, ...names]).size, names.length + 1)
  for (const wrong of [
    { limits: { connections: 0 } },
    { limits: { connections: 2000 } },
    { limits: { idleSeconds: 0.5 } },
    { limits: { max_bytes: 5 } },
    { audit: { maxBytes: 1000 } },
    { audit: { onFull: 'drop' } },
  ])
    t.notOk(policySchema.safeParse({ version: 1, ...wrong }).success, JSON.stringify(wrong))
  t.end()
})
