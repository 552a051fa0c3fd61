/** `closedbook policy` as a person runs it, without a daemon: what is right, what is wrong and how to write it. */
import { execFile } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import t from 'tap'
import { policyHash } from '../../../policy/hash.ts'
import { policySchema } from '../../../policy/policy.ts'
import { checkPolicyFile, readPolicyFile, type PolicyIssue } from '../../../runner/policy-file.ts'
import { failureOf, Scratch } from '../support/scratch.ts'

const scratch = await Scratch.make()
t.teardown(() => scratch[Symbol.asyncDispose]())
const program = fileURLToPath(new URL('../../../runner/bin/closedbook.mjs', import.meta.url))

interface Ran {
  readonly code: number
  readonly stdout: string
  readonly stderr: string
}

const cli = (...args: readonly string[]): Promise<Ran> =>
  new Promise((resolve) => {
    const env = { ...process.env, CLOSEDBOOK_STATE_DIR: scratch.path, NO_COLOR: '1' }
    execFile(
      process.execPath,
      ['--no-warnings', program, 'policy', ...args],
      { env },
      (error, stdout, stderr) =>
        resolve({ code: error === null ? 0 : Number(error.code), stdout, stderr }),
    )
  })

const commit = '0123456789abcdef0123456789abcdef01234567'
const document = {
  version: 1,
  connect: { allow: ['docs.example.com', '*.files.example.com'], deny: ['no.files.example.com'] },
  huggingface: { repos: [{ repo: 'acme/tiny', revision: commit }] },
  limits: { connections: 8, maxBytes: 1_000_000, idleSeconds: 30 },
  audit: { maxBytes: 1_000_000, onFull: 'stop' },
}
const json = await scratch.write('policy.json', JSON.stringify(document))
const yaml = await scratch.write(
  'policy.yaml',
  `# the same
audit: { maxBytes: 1000000 }
limits: { idleSeconds: 30, connections: 8, maxBytes: 1000000 }
huggingface:
  repos: [{ repo: acme/tiny, revision: "${commit}" }]
connect:
  deny: [no.files.example.com]
  allow: [docs.example.com, '*.files.example.com']
mode: closed-book
version: 1
`,
)

void t.test('a policy has one name, as YAML and as JSON, here and in the daemon', async (t) => {
  const hash = policyHash(policySchema.parse(document))
  t.equal(policyHash(await readPolicyFile(json)), hash)
  const [named, checked] = await Promise.all([cli('hash', yaml), cli('check', yaml, '--json')])
  t.match(named, { code: 0, stdout: `${hash}\n`, stderr: '' })
  t.strictSame(JSON.parse(checked.stdout), { valid: true, hash, notes: [] })
})

/** What a document says, and what is said of it: path and message. */
const wrong: readonly (readonly [text: string, ...issues: (readonly [string, RegExp])[]])[] = [
  ['{}', ['version', /must be 1/]],
  ['version: 2', ['version', /must be 1/]],
  ['version: "1"', ['version', /must be 1/]],
  ['{version: 1, mode: closed_book}', ['mode', /must be closed-book/]],
  ['{version: 1, conect: {}}', ['', /unknown key "conect": write "connect"/]],
  ['{version: 1, xyz: {}}', ['', /unknown key "xyz"; the keys here are version, mode, connect/]],
  ['{version: 1, hf: {}}', ['', /unknown key "hf": write "huggingface"/]],
  ['{version: 1, model: {}}', ['', /"model" is no part of a policy: a lease has/]],
  [
    "{version: 1, connect: {allow: [Docs.Example.com., 'https://x.example/a', 198.51.100.7, localhost]}}",
    ['connect.allow[0]', /write "docs\.example\.com"/],
    ['connect.allow[1]', /write "x\.example"/],
    ['connect.allow[2]', /IP address/],
    ['connect.allow[3]', /two labels/],
  ],
  ['{version: 1, connect: {deny: [.x.example]}}', ['connect.deny[0]', /write "\*\.x\.example"/]],
  ['{version: 1, connect: {allow: [*.x.example]}}', ['', /quotes: '\*\.example\.com'/]],
  ['{version: 1, connect: {ports: [22]}}', ['connect.ports[0]', /must be 80 or 443/]],
  ['{version: 1, connect: {Ports: [443]}}', ['connect', /write "ports"/]],
  ['{version: 1, limits: {max_bytes: 5}}', ['limits', /write "maxBytes"/]],
  ['{version: 1, limits: {idleSeconds: 0}}', ['limits.idleSeconds', /1 or more/]],
  ['{version: 1, audit: {on_full: stop}}', ['audit', /write "onFull"/]],
  ['{version: 1, audit: {onFull: drop}}', ['audit.onFull', /must be stop/]],
  [
    '{version: 1, huggingface: {repos: [{repo: huggingface.co/a/b, revision: ABCDEF0}]}}',
    ['huggingface.repos[0].repo', /write "a\/b"/],
    ['huggingface.repos[0].revision', /40 hex digits in lower case/],
  ],
  [
    '{version: 1, huggingface: {repos: [{repo: a/b, revision: main, files: [/x, "y/"]}]}}',
    ['huggingface.repos[0].files[0]', /write "x"/],
    ['huggingface.repos[0].files[1]', /write "y\/\*\*"/],
  ],
  ['{version: 1, version: 1}', ['', /not valid YAML or JSON: Map keys must be unique/]],
  ['{"version": 1,', ['', /not valid YAML or JSON/]],
]

void t.test('what is wrong is told by its place, with the right spelling', async (t) => {
  for (const [text, ...expected] of wrong) {
    const file = await scratch.write('wrong.yaml', text)
    const result = await checkPolicyFile(file)
    const issues: readonly PolicyIssue[] = result.ok ? [] : result.issues
    for (const [path, message] of expected)
      t.match(
        issues.filter((issue) => issue.path === path).map((issue) => issue.message),
        [message],
        text,
      )
    t.match(await failureOf(() => readPolicyFile(file)), { code: 'config_invalid' }, text)
  }
})

void t.test(
  'a wrong policy ends the command with status 78, for people and for programs',
  async (t) => {
    const file = await scratch.write('bad.yaml', '{version: 1, limits: {lifetime: 5}, mod: x}')
    const [plain, machine, missing] = await Promise.all([
      cli('check', file),
      cli('check', file, '--json'),
      cli('hash', '/nowhere/policy.yaml'),
    ])
    t.match(plain, { code: 78, stdout: '' })
    t.strictSame(
      plain.stderr
        .split('\n')
        .slice(0, 2)
        .map((line) => line.slice(file.length + 2)),
      [
        'limits: unknown key "lifetime": write "lifetimeSeconds"',
        'unknown key "mod": write "mode"',
      ],
    )
    t.match(JSON.parse(machine.stdout), { valid: false, issues: { length: 2 } })
    t.equal(machine.code, 78)
    t.match(missing, { code: 78, stderr: /no such file/ })
    const list = await scratch.write('list.yaml', '[1]')
    t.match(await failureOf(() => checkPolicyFile(list)), { message: /mapping of keys/ })
  },
)

void t.test('what is right and worth a second look is said', async (t) => {
  const file = await scratch.write(
    'notes.yaml',
    `version: 1
connect: { allow: [a.example, a.example, b.example, huggingface.co], deny: [b.example], ports: [80] }
huggingface: { repos: [{ repo: a/b, revision: main }] }
`,
  )
  const { code, stdout } = await cli('check', file)
  t.equal(code, 0)
  for (const note of [
    /a\.example stands in connect\.allow twice/,
    /b\.example is allowed and denied: it is denied/,
    /no TLS gets out/,
    /tunnel to the Hub \(huggingface\.co\)/,
    /a\/b: "main" moves/,
  ])
    t.match(stdout, note)
})

void t.test(
  'a request is explained, in words and for programs, whatever comes of it',
  async (t) => {
    const body = await scratch.write(
      'body.json',
      '{"model":"m","messages":[{"role":"user","content":"x"}],"tools":[{"type":"web_search"}]}',
    )
    const [open, shut, model, hub, nonsense, broken] = await Promise.all([
      cli('explain', yaml, 'https://a.files.example.com/x'),
      cli('explain', yaml, 'no.files.example.com:443', '--json'),
      cli('explain', json, 'model POST /v1/chat/completions', body, '--json'),
      cli('explain', json, 'hf', 'GET', '/acme/tiny/resolve/main/x.py'),
      cli('explain', json, 'docs.example.com'),
      cli('explain', json, 'model', 'POST', '/v1/messages', '/nowhere.json'),
    ])
    t.match(open, {
      code: 0,
      stdout:
        /^allow {2}allowed_host\nrequest {2}CONNECT a\.files\.example\.com:443\nrule {5}allow \*\.files\.example\.com\nthen {5}the tunnel must begin/,
    })
    t.equal(shut.code, 0)
    t.strictSame(JSON.parse(shut.stdout), {
      request: 'CONNECT no.files.example.com:443',
      action: 'deny',
      reason: 'denied_host',
      rule: 'deny no.files.example.com',
      message: null,
      then: [],
      policy: policyHash(policySchema.parse(document)),
    })
    t.match(JSON.parse(model.stdout), { reason: 'tool_denied', rule: 'tools[0].type' })
    t.match(hub.stdout, /^deny {2}file_not_allowed\n[^]*in words x\.py is not among the files/)
    t.match(nonsense, { code: 2, stderr: /write "docs\.example\.com:443"/ })
    t.match(broken, { code: 2, stderr: /cannot read the body/ })
  },
)
