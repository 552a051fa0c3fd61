import { mkdir, symlink } from 'node:fs/promises'
import { join } from 'node:path'
import t from 'tap'
import { defaultStateDir } from '../../../daemon/protocol/state-dir.ts'
import { loadRunnerConfig } from '../../../runner/config.ts'
import { exitCode, exitCodeOf } from '../../../runner/exit-codes.ts'
import {
  canonicalJson,
  gatewayBudget,
  loadConfiguration,
  plainConfiguration,
  readKey,
  settingsOf,
} from '../../../runner/job/configuration.ts'
import { loadJobFile } from '../../../runner/job/job-file.ts'
import { recordingPath } from '../../../runner/job/recordings.ts'
import { Random } from '../support/random.ts'
import { Scratch, failureOf } from '../support/scratch.ts'

const price =
  'price: {inputPerMillionUsd: 1, cachedInputPerMillionUsd: 0.1, outputPerMillionUsd: 10}'
const model = `model:
  name: m
  upstream: {kind: openai, baseUrl: "http://127.0.0.1:1/v1", key: {env: TEST_KEY}}
  ${price}
`

void t.test(
  'a configuration is read with its defaults, and its paths are those of its file',
  async (t) => {
    await using scratch = await Scratch.make()
    await scratch.write('policies/open.yaml', 'version: 1\n')
    const path = await scratch.write(
      'configs/my-model.yaml',
      `model:
  name: m
  upstream: {kind: replay, recordings: ../recordings}
  ${price}
policy: ../policies/open.yaml
`,
    )
    t.match(await loadConfiguration(path), {
      name: 'my-model',
      harness: { kind: 'mini-swe-agent' },
      model: {
        upstream: { kind: 'replay', recordings: join(scratch.path, 'recordings') },
        parameters: {},
        timeoutSeconds: 600,
      },
      limits: { steps: 250, costUsd: 3, wallTimeSeconds: 3600, commandTimeoutSeconds: 180 },
      policy: { version: 1, connect: { allow: { length: 0 } } },
      digest: /^sha256:[0-9a-f]{64}$/,
    })
  },
)

void t.test('JSON is read as well as YAML', async (t) => {
  await using scratch = await Scratch.make()
  const path = await scratch.write(
    'c.json',
    JSON.stringify({ name: 'n', harness: 'noop', limits: { steps: 3 } }),
  )
  t.match(await loadConfiguration(path), {
    name: 'n',
    harness: { kind: 'noop' },
    model: null,
    limits: { steps: 3 },
  })
})

const bad: readonly (readonly [string, string, RegExp])[] = [
  [
    'an unknown key',
    'harness: noop\nlimit: {steps: 3}',
    /c\.yaml: unknown key "limit"; remove it or correct/,
  ],
  ['an unknown key within', 'harness: noop\nlimits: {step: 3}', /unknown key "step" in limits/],
  ['a limit of zero', 'harness: noop\nlimits: {steps: 0}', /limits\.steps: /],
  ['a limit that is text', 'harness: noop\nlimits: {steps: "many"}', /limits\.steps: .*number/],
  [
    'an unknown harness',
    'harness: codex',
    /c\.yaml: harness "codex" is unknown; use mini-swe-agent, .*noop, oracle, script:FILE or command:FILE/,
  ],
  [
    'a provider that there is not',
    'harness: mini-swe-agent\nmodel: {name: m, upstream: {kind: gemini}}',
    /model\.upstream\.kind: must be openai or anthropic or replay/,
  ],
  ['a script without a file', 'harness: "script:"', /names no file; use .*script:FILE/],
  [
    'a harness of a file without a model',
    'harness: "command:x"',
    /model: missing; harness .* needs one/,
  ],
  [
    'a script that is not there',
    'harness: "script:none.sh"',
    /none\.sh: can't read the script of the harness/,
  ],
  ['no model', 'name: a', /model: missing; harness mini-swe-agent needs one/],
  ['no price', model.replace(price, ''), /model\.price: /],
  [
    'a price without the cached rate',
    model.replace('cachedInputPerMillionUsd: 0.1, ', ''),
    /model\.price\.cachedInputPerMillionUsd: /,
  ],
  [
    'a key written down',
    model.replace('{env: TEST_KEY}', '"sk-secret"'),
    /model\.upstream\.key: .*name the key by \{env: VARIABLE\} or \{file: PATH\}/,
  ],
  [
    'a parameter that the harness sets',
    `${model}  parameters: {temperature: 0, stream: true}\n`,
    /model\.parameters\.stream: set by the harness; remove it/,
  ],
  ['another kind of upstream', model.replace('openai', 'magic'), /model\.upstream\.kind: /],
  [
    'an endpoint that is no URL',
    model.replace('http://127.0.0.1:1/v1', 'localhost'),
    /model\.upstream\.baseUrl: /,
  ],
  [
    'a policy with an unknown key',
    'harness: noop\npolicy: {version: 1, allow: ["a.example"]}',
    /unknown key "allow" in policy/,
  ],
  [
    'a policy that is not there',
    'harness: noop\npolicy: none.yaml',
    /none\.yaml: can't read the policy: no such file; check the path/,
  ],
  ['a name with blanks', 'harness: noop\nname: "a b"', /name: letters, digits/],
  ['a key given twice', 'harness: noop\nharness: oracle', /not valid YAML or JSON: .*unique/],
  ['no mapping', '- a\n', /is a mapping of keys to values/],
  ['an unknown tag', 'harness: !!js/function "x"', /not valid YAML or JSON/],
  [
    'a bomb',
    'a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: [*b,*b,*b,*b,*b,*b,*b,*b,*b]\n',
    /not valid YAML or JSON: .*alias/,
  ],
]

void t.test('what is wrong with a configuration ends with status 78 and says where', async (t) => {
  for (const [what, text, message] of bad) {
    await using scratch = await Scratch.make()
    const path = await scratch.write('c.yaml', text)
    const error = await failureOf(() => loadConfiguration(path))
    t.match(error.message, message, what)
    t.equal(exitCodeOf(error), exitCode.config, what)
    t.notMatch(error.message, /sk-secret/, `${what}: no key in the message`)
  }
  const error = await failureOf(() => loadConfiguration('/nonexistent/c.yaml'))
  t.match(error.message, /can't read the configuration: no such file; check the path/)
})

void t.test('a digest follows what can change an outcome and nothing else', async (t) => {
  await using scratch = await Scratch.make()
  const digestOf = async (text: string): Promise<string> =>
    (await loadConfiguration(await scratch.write('c.yaml', text))).digest
  const first = await digestOf(model)
  t.equal(await digestOf(`# a comment\nlimits: {}\n${model}`), first, 'spelled otherwise')
  t.equal(await digestOf(model.replace('TEST_KEY', 'OTHER_KEY')), first, 'where the key is')
  t.not(await digestOf(model.replace('/v1', '/v2')), first, 'the endpoint')
  t.not(await digestOf(`${model}limits: {steps: 249}\n`), first, 'a limit')
  t.not(await digestOf(`${model}  parameters: {seed: 1}\n`), first, 'a parameter')
  await scratch.write('s.sh', 'echo a')
  const script = await digestOf('harness: script:s.sh')
  await scratch.write('s.sh', 'echo b')
  t.not(await digestOf('harness: script:s.sh'), script, "the script's content")
})

void t.test('a harness without a model needs no file', async (t) => {
  await using scratch = await Scratch.make()
  await scratch.write('a.sh', 'true')
  t.match(await plainConfiguration('noop', scratch.path), { name: 'noop', model: null })
  t.match(await plainConfiguration('script:a.sh', scratch.path), {
    name: 'script',
    harness: { kind: 'script', file: join(scratch.path, 'a.sh') },
  })
})

void t.test('the harness of a file can be replaced', async (t) => {
  await using scratch = await Scratch.make()
  const path = await scratch.write('c.yaml', model)
  t.match(await loadConfiguration(path, { harness: 'oracle' }), { harness: { kind: 'oracle' } })
})

void t.test('a key comes from where it is named and is in no settings', async (t) => {
  await using scratch = await Scratch.make()
  const file = await scratch.write('key', ' from-file\n')
  t.equal(await readKey({ env: 'TEST_KEY' }, { TEST_KEY: 'from-env ' }), 'from-env')
  t.equal(await readKey({ file }), 'from-file')
  t.match(
    (await failureOf(() => readKey({ env: 'TEST_KEY' }, {}))).message,
    /TEST_KEY is not set; export it/,
  )
  t.match(
    (await failureOf(() => readKey({ file: join(scratch.path, 'none') }))).message,
    /can't read the key file/,
  )
  await scratch.write('key', '\n')
  t.match((await failureOf(() => readKey({ file }))).message, /key file is empty/)
  const configuration = await loadConfiguration(await scratch.write('c.yaml', model))
  t.match(settingsOf(configuration), {
    model: { upstream: { key: { env: 'TEST_KEY' } } },
    limits: { steps: 250 },
  })
})

void t.test('the gateway enforces the budget that is set, else the limits', async (t) => {
  await using scratch = await Scratch.make()
  const load = async (text: string) => {
    const { model: settings, limits } = await loadConfiguration(await scratch.write('c.yaml', text))
    return settings === null ? null : gatewayBudget(settings, limits)
  }
  t.match(await load(`${model}limits: {steps: 5, costUsd: 2}\n`), { calls: 15, costUsd: 2.2 })
  t.match(await load(`${model}  budget: {calls: 7, outputTokens: 9}\n`), {
    calls: 7,
    outputTokens: 9,
  })
})

void t.test('canonical JSON does not depend on the order of keys', (t) => {
  const random = new Random(11)
  for (let round = 0; round < 50; round++) {
    const entries = Array.from(
      { length: random.int(1, 8) },
      () => [random.text(4), random.int(0, 9)] as const,
    )
    const object = Object.fromEntries(entries)
    const turned = Object.fromEntries(Object.entries(object).reverse())
    t.equal(canonicalJson({ a: [turned] }), canonicalJson({ a: [object] }))
    t.strictSame(JSON.parse(canonicalJson(object)), object)
  }
  t.end()
})

void t.test("the runner's settings: file, then environment, then flags", async (t) => {
  await using scratch = await Scratch.make()
  const file = await scratch.write('runner.yaml', 'stateDir: /from-file\nrequestTimeoutMs: 5\n')
  t.match(await loadRunnerConfig({ file }, {}), {
    stateDir: '/from-file',
    socket: '/from-file/daemon.sock',
    jobsDir: '/from-file/jobs',
    requestTimeoutMs: 5,
  })
  const env = {
    CLOSEDBOOK_CONFIG: file,
    CLOSEDBOOK_STATE_DIR: '/from-env',
    CLOSEDBOOK_REQUEST_TIMEOUT_MS: '6',
  }
  t.match(await loadRunnerConfig({}, env), { stateDir: '/from-env', requestTimeoutMs: 6 })
  t.match(await loadRunnerConfig({ stateDir: '/from-flag', jobsDir: undefined }, env), {
    stateDir: '/from-flag',
    jobsDir: '/from-flag/jobs',
  })
  t.equal(defaultStateDir({}, 0), '/var/lib/closedbook')
  t.equal(defaultStateDir({ XDG_STATE_HOME: '/x' }, 1000), '/x/closedbook')
  t.equal(defaultStateDir({ HOME: '/h' }, 1000), '/h/.local/state/closedbook')
})

void t.test('a bad setting of the runner ends with status 78 and says where', async (t) => {
  await using scratch = await Scratch.make()
  const file = await scratch.write('runner.yaml', 'jobDir: /x\n')
  const rows = [
    [() => loadRunnerConfig({ file }, {}), /runner\.yaml: unknown key "jobDir"/],
    [() => loadRunnerConfig({}, { CLOSEDBOOK_REQUEST_TIMEOUT_MS: 'soon' }), /requestTimeoutMs: /],
    [() => loadRunnerConfig({ file: '/nonexistent' }, {}), /can't read the runner configuration/],
  ] as const
  for (const [make, message] of rows) {
    const error = await failureOf(make)
    t.match(error.message, message)
    t.equal(exitCodeOf(error), exitCode.config)
  }
})

void t.test('a job file is tasks times configurations times runs', async (t) => {
  await using scratch = await Scratch.make()
  for (const name of ['b', 'a', 'not-a-task'])
    await mkdir(join(scratch.path, 'tasks', name), { recursive: true })
  for (const name of ['a', 'b']) await scratch.write(`tasks/${name}/task.toml`, '')
  await symlink('a', join(scratch.path, 'tasks/again'))
  await scratch.write('noop.yaml', 'harness: noop')
  const path = await scratch.write(
    'job.yaml',
    `tasks: ["tasks/[ab]", tasks/a]
configurations: [noop.yaml, {name: mine, harness: oracle}]
runs: 2
concurrency: 4
out: ./results
trajectory: {atif: "1.7"}
`,
  )
  t.match(await loadJobFile(path), {
    name: 'job',
    taskDirs: [join(scratch.path, 'tasks/a'), join(scratch.path, 'tasks/b')],
    configurations: [{ name: 'noop' }, { name: 'mine' }],
    runs: 2,
    concurrency: { trials: 4 },
    out: join(scratch.path, 'results'),
    trajectory: { atif: '1.7' },
  })
})

void t.test('what is wrong with a job file is said', async (t) => {
  const rows: readonly (readonly [string, RegExp])[] = [
    [
      'tasks: [tasks/*]\nconfigurations: [{harness: noop}]',
      /tasks: "tasks\/\*" names no directory with a task\.toml/,
    ],
    ['tasks: []\nconfigurations: [{harness: noop}]', /tasks: /],
    ['tasks: [a]\nconfigurations: [none.yaml]', /none\.yaml: can't read the configuration/],
    [
      'tasks: [a]\nconfigurations: [{harness: noop, stepz: 1}]',
      /configurations\[0\]: unknown key "stepz"/,
    ],
    ['tasks: [a]\nconfigurations: [{harness: noop}]\nrun: 3', /unknown key "run"/],
    ['tasks: [a]\nconfigurations: [{harness: noop}]\nruns: 0', /runs: /],
    [
      'tasks: [a]\nconfigurations: [{harness: noop}]\ntrajectory: {atif: "1.6"}',
      /trajectory\.atif: /,
    ],
  ]
  for (const [text, message] of rows) {
    await using scratch = await Scratch.make()
    const error = await failureOf(async () => loadJobFile(await scratch.write('job.yaml', text)))
    t.match(error.message, message)
    t.equal(exitCodeOf(error), exitCode.config)
  }
})

void t.test('a recording is found by the full name of its task or the last part', async (t) => {
  await using scratch = await Scratch.make()
  const short = await scratch.write('sample/1.jsonl', '')
  t.equal(await recordingPath(scratch.path, 'org/sample', 1), short)
  const full = await scratch.write('org/sample/1.jsonl', '')
  t.equal(await recordingPath(scratch.path, 'org/sample', 1), full)
  const error = await failureOf(() => recordingPath(scratch.path, 'org/sample', 2))
  t.match(
    error.message,
    /no recording for run 2 of org\/sample; looked for .*Ask for fewer runs, or record one/,
  )
})
