/** Tasks in plain Harbor form: what is read, what is refused and where it says so. No engine. */
import { mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import t from 'tap'
import { qualificationFile } from '../../../runner/qualify/document.ts'
import { loadTask } from '../../../runner/task/load.ts'
import { harborTask } from '../harbor/trials.ts'
import { Scratch, failureOf } from '../support/scratch.ts'

const closed = { harbor: { network: 'closed-book' as const, hostEnv: [] } }
const base = 'schema_version = "1.4"\n[environment]\nnetwork_mode = "no-network"\n'

async function harbor(scratch: Scratch, toml = base, files: Record<string, string> = {}) {
  const all = {
    'task.toml': toml,
    'instruction.md': 'Do it.\n',
    'environment/Dockerfile': 'FROM python:3.13\n',
    'tests/test.sh': '#!/bin/bash\necho 1 >/logs/verifier/reward.txt\n',
    ...files,
  }
  for (const [name, text] of Object.entries(all)) await scratch.write(name, text)
  return scratch.path
}

/** What; task.toml; other files; the place and the reason in the message. */
const refused: readonly (readonly [string, string, Record<string, string>, RegExp])[] = [
  ['several steps', `${base}[[steps]]\nname = "a"\n`, {}, /task\.toml:4: steps: .*several steps/],
  [
    'compose',
    base,
    { 'environment/docker-compose.yaml': '# two\nname: x\nservices:\n  main: {}\n' },
    /environment\/docker-compose\.yaml:3: compose: .*several containers/,
  ],
  [
    'compose of the verifier',
    base,
    { 'tests/docker-compose.yaml': 'services: {}\n' },
    /tests\/docker-compose\.yaml:1: compose/,
  ],
  ['Windows', `${base}os = "windows"\n`, {}, /task\.toml:4: environment\.os: "windows"/],
  [
    'a TPU, in an inline table',
    '[environment]\nallow_internet = false\ntpu = { type = "v5", topology = "1x1" }\n',
    {},
    /task\.toml:3: environment\.tpu: /,
  ],
  [
    'MCP servers, in tables of their own',
    `${base}\n[[environment.mcp_servers]]\nname = "x"\n`,
    {},
    /task\.toml:5: environment\.mcp_servers: /,
  ],
  ['skills', `${base}skills_dir = "s"\n`, {}, /task\.toml:4: environment\.skills_dir: /],
  ['two GPUs', `${base}gpus = 2\n`, {}, /task\.toml:4: environment\.gpus: 2 GPUs/],
  [
    'two GPUs of the verifier',
    `${base}[verifier.environment]\ngpus = 2\n`,
    {},
    /task\.toml:5: verifier\.environment\.gpus: 2 GPUs/,
  ],
  [
    'a shared verifier with an environment',
    `${base}[verifier]\nenvironment_mode = "shared"\n[verifier.environment]\ncpus = 1\n`,
    {},
    /task\.toml:6: verifier\.environment: a shared verifier has no environment/,
  ],
  [
    'a hook in another service',
    `${base}[[verifier.collect]]\ncommand = "x"\nservice = "db"\n`,
    {},
    /task\.toml:6: verifier\.collect\.0\.service: there is no service "db"/,
  ],
  [
    'an artifact of another service',
    `artifacts = [\n  { source = "/a", service = "db" },\n]\n${base}`,
    {},
    /task\.toml:1: artifacts\.0\.service: there is no service "db"/,
  ],
  ['a prior trajectory', base, { 'trajectory.json': '{}' }, /trajectory\.json:1: trajectory: /],
  [
    'the public network, said',
    '[environment]\n\nnetwork_mode = "public"\n',
    {},
    /task\.toml:3: environment\.network_mode: asks for the public network.*--closed-book-network/,
  ],
  [
    'the public network, by saying nothing',
    '[environment]\ncpus = 1\n',
    {},
    /task\.toml:1: environment\.network_mode: says nothing, which is the public network/,
  ],
  [
    'the public network for the agent alone',
    `${base}[agent]\nnetwork_mode = "public"\n`,
    {},
    /task\.toml:5: agent\.network_mode: asks for the public/,
  ],
  [
    'hosts of its own',
    '[environment]\nnetwork_mode = "allowlist"\nallowed_hosts = ["a.example.org"]\n',
    {},
    /task\.toml:2: environment\.network_mode: asks for hosts of its own \(a\.example\.org\)/,
  ],
  [
    'tests that install',
    base,
    { 'tests/test.sh': '#!/bin/bash\n# apt-get install nothing\n\napt-get update -y\n' },
    /tests\/test\.sh:4: apt: hidden tests run without a network.*apt-get update -y/,
  ],
  [
    'tests that install from a script beside theirs',
    base,
    { 'tests/lib/setup.sh': 'pip install pytest\n' },
    /tests\/lib\/setup\.sh:1: pip install: /,
  ],
]

void t.test(
  'what a single sealed container cannot do is refused with file, line and reason',
  async (t) => {
    for (const [what, toml, files, message] of refused) {
      await using scratch = await Scratch.make()
      const error = await failureOf(async () => loadTask(await harbor(scratch, toml, files)))
      t.match(error.message, message, what)
      t.match(error, { code: 'task_unsupported', blame: 'task' }, what)
    }
  },
)

void t.test('a task asks for no network, or the operator says that it runs without', async (t) => {
  const rows: readonly (readonly [string, string, object | null])[] = [
    ['none asked', base, null],
    ['none, in the old way', 'version = "1.0"\n[environment]\nallow_internet = false\n', null],
    ['a verifier without', `${base}[verifier]\nnetwork_mode = "no-network"\n`, null],
    ['nothing said', '[environment]\n', { asked: 'public', hosts: [] }],
    [
      'hosts',
      '[environment]\nallowed_hosts = ["b.example.org"]\n',
      { asked: 'allowlist', hosts: ['b.example.org'] },
    ],
  ]
  for (const [what, toml, network] of rows) {
    await using scratch = await Scratch.make()
    const task = await loadTask(await harbor(scratch, toml), network === null ? {} : closed)
    t.strictSame(task.network, network, what)
    t.equal(/because the operator said so/.test(task.notes.join()), network !== null, what)
  }
})

void t.test('a variable of the host gets in by the operator’s word alone', async (t) => {
  const toml = `${base}env = { A = "\${A_VAR}", B = "\${B_VAR:-b}", C = "x\${A_VAR}", D = "\${D_VAR:-}" }\n`
  const env = { A_VAR: 'host a', B_VAR: 'host b' }
  const rows: readonly (readonly [string, readonly string[], object | RegExp])[] = [
    [
      'nothing allowed',
      [],
      /task\.toml: environment\.env\.A: .*never gets by itself.*--host-env A_VAR/,
    ],
    ['one allowed', ['A_VAR'], { A: 'host a', B: 'b', C: 'x${A_VAR}', D: '' }],
    ['the host’s wins over a default', ['A_VAR', 'B_VAR'], { A: 'host a', B: 'host b' }],
    ['an allowed one that isn’t set has its default', ['A_VAR', 'D_VAR'], { D: '' }],
  ]
  for (const [what, hostEnv, expected] of rows) {
    await using scratch = await Scratch.make()
    const dir = await harbor(scratch, toml)
    const options = { harbor: { hostEnv: [...hostEnv] }, env }
    if (expected instanceof RegExp)
      t.match((await failureOf(() => loadTask(dir, options))).message, expected, what)
    else {
      const task = await loadTask(dir, options)
      t.match(task.environment.env, expected, what)
      t.match(task.hostValues, { A_VAR: 'host a' }, 'what it was given is known')
      t.same(Object.keys(task.hostValues), hostEnv.toSorted())
    }
    t.match(
      await failureOf(() => loadTask(dir, { ...options, harbor: { hostEnv: ['A_VAR'] }, env: {} })),
      { code: 'config_invalid', blame: 'operator', message: /A_VAR is not set on this host/ },
    )
  }
})

void t.test('the five fixtures are read as they are', async (t) => {
  const of = (name: string) => loadTask(harborTask(name), closed)
  const docker = ['CHOWN', 'DAC_OVERRIDE', 'FOWNER', 'FSETID', 'KILL', 'SETGID', 'SETUID']
  t.match(await of('shared-root'), {
    name: 'shared-root',
    harbor: true,
    verify: 'snapshot',
    snapshotOf: 'container',
    network: null,
    image: { kind: 'dockerfile', tags: true },
    environment: { capabilities: docker, resources: { memoryBytes: 1024 ** 3 } },
    suites: { functional: { command: '/tests/test.sh', results: 'reward', manner: 'harbor' } },
    verifier: { place: null },
  })
  t.match(await of('non-root'), {
    workdir: '/srv/ledger',
    healthcheck: { intervalMs: 200, timeoutMs: 5000, startPeriodMs: 2000, retries: 20 },
    agent: { user: 'clerk' },
    verifier: { user: 'auditor', env: { EXPECTED: '42.50' }, place: null },
    environment: { env: { CURRENCY: 'EUR' } },
  })
  t.match(await of('separate'), {
    verify: 'artifacts',
    artifacts: [
      { source: '/logs/artifacts', optional: true },
      { source: '/work/out', exclude: { length: 0 } },
      { source: 'notes.md', exclude: ['*.tmp'] },
      { source: '/work/never-made' },
    ],
    collectHooks: [
      { timeoutMs: 10_000, user: null },
      { command: 'exit 4', timeoutMs: 60_000 },
    ],
    verifier: { place: { image: null, bundled: false, workdir: '/work' } },
  })
  const bundled = await of('bundled')
  t.match(bundled, {
    verify: 'artifacts',
    network: { asked: 'allowlist', hosts: ['packages.example.org'] },
    verifier: {
      place: {
        image: { kind: 'dockerfile', context: join(bundled.dir, 'tests') },
        bundled: true,
        workdir: '/grading',
        env: { GRADER: 'own' },
        resources: { memoryBytes: 512 * 1024 ** 2 },
      },
    },
  })
  const rewards = await of('rewards')
  t.match(rewards, {
    image: {
      kind: 'reference',
      reference: 'closedbook/base:trixie',
      loose: { folder: join(rewards.dir, 'environment'), workdir: '/data/points' },
    },
    instruction: /^`\/data\/points` holds/,
    notes: [/no \[closedbook\]/, /closedbook\/base:trixie is named by a tag/],
  })
  t.strictSame([...rewards.leftOut.tests].toSorted(), ['.harborignore', 'drafts', 'test.sh.bak'])
  t.strictSame([...rewards.leftOut.solution].toSorted(), ['.harborignore', 'notes.md'])
})

void t.test('a script that its ignore file leaves out is an error of the task', async (t) => {
  await using scratch = await Scratch.make()
  const dir = await harbor(scratch, base, { 'tests/.harborignore': '*\n' })
  t.match(await failureOf(() => loadTask(dir)), {
    code: 'task_invalid',
    message: /tests\/\.harborignore: leaves out test\.sh.*!test\.sh/,
  })
  await scratch.write('tests/.harborignore', '*\n!test.sh\n')
  t.ok((await loadTask(dir)).leftOut.tests.has('.harborignore'))
})

void t.test('an artifact may not stand where the tests or their results do', async (t) => {
  const separate = `${base}[verifier]\nenvironment_mode = "separate"\n`
  for (const source of ['/tests', '/tests/a', '/logs/verifier', '//logs//verifier/x', '/']) {
    await using scratch = await Scratch.make()
    const toml = `artifacts = ["/app", "${source}"]\n${separate}`
    const error = await failureOf(async () => loadTask(await harbor(scratch, toml)))
    t.match(error.message, /artifacts: .*is where the hidden tests and their results lie/, source)
  }
  await using scratch = await Scratch.make()
  const toml = `artifacts = ["/testsuite", "/logs/mine"]\n${separate}`
  t.equal((await loadTask(await harbor(scratch, toml))).artifacts.length, 3)
})

void t.test(
  'evidence about a task is no part of it, and tells which tests must be reported',
  async (t) => {
    await using scratch = await Scratch.make()
    const dir = await harbor(scratch)
    const before = await loadTask(dir)
    const digests = {
      task: before.digest,
      tests: before.testsDigest,
      instruction: before.instructionDigest,
      image: `sha256:${'1'.repeat(64)}`,
      recipe: null,
    }
    const document = {
      schema: 'closedbook.qualification/1',
      task: before.name,
      qualified: true,
      startedAt: '2026-01-01T00:00:00.000Z',
      endedAt: '2026-01-01T00:01:00.000Z',
      closedbookVersion: '0',
      hardware: 'cpu',
      host: { name: 'h', engine: 'e', kernel: 'k', cpus: 2, gpus: [] },
      repeats: 1,
      concurrency: 1,
      digests,
      files: {},
      findings: [],
      expected: { functional: ['accuracy', 'reward'], regression: [] },
      tests: [],
      times: { noop: null, oracle: null },
      limits: [],
      trials: [],
      evidence: 'x',
    }
    await mkdir(join(dir, 'closedbook'))
    const write = (value: object) => writeFile(qualificationFile(dir), JSON.stringify(value))
    await write(document)
    const after = await loadTask(dir)
    t.strictSame([after.digest, after.testsDigest], [before.digest, before.testsDigest])
    t.strictSame(after.suites.functional.expected, ['accuracy', 'reward'])
    const stale = { ...document, digests: { ...digests, task: digests.image } }
    for (const [why, other] of [
      ['of another task', stale],
      ['that failed', { ...document, qualified: false }],
    ] as const) {
      await write(other)
      t.equal((await loadTask(dir)).suites.functional.expected, null, `a qualification ${why}`)
    }
    await scratch.write('tests/closedbook/helper.py', 'x = 1\n')
    t.not(
      (await loadTask(dir)).testsDigest,
      before.testsDigest,
      'a folder of that name elsewhere counts',
    )
  },
)
