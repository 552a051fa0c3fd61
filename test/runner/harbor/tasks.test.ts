/**
 * Five tasks that were written from nothing but Harbor's documented format, run as they are: no-op fails, oracle passes,
 * and what we write for Harbor's tools fits the JSON schemas of its own models (test/peers/harbor/validate.py made them).
 */
import { createHash } from 'node:crypto'
import { cp, readdir, readFile, writeFile } from 'node:fs/promises'
import path from 'node:path'
import t, { type Test } from 'tap'
import { z } from 'zod'
import { resultSchema } from '../../../runner/result.ts'
import { tally } from '../../e2e/trials/setup.ts'
import { TestDaemon } from '../../support/daemon.ts'
import { testEngine } from '../../support/engine.ts'
import { Scratch } from '../support/scratch.ts'
import { harborTask, tryTask, type TriedTask } from './trials.ts'

const engine = await testEngine()
const daemon = await TestDaemon.open(engine.socketPath)
t.teardown(async () => {
  await daemon[Symbol.asyncDispose]()
  await engine[Symbol.asyncDispose]()
})

const closed = { harbor: { network: 'closed-book' as const, hostEnv: [] } }

const readJson = async (file: string): Promise<unknown> => JSON.parse(await readFile(file, 'utf8'))
const schemaOf = async (name: string): Promise<z.ZodType> => {
  const file = new URL(`../../fixtures/harbor-schemas/${name}.schema.json`, import.meta.url)
  return z.fromJSONSchema(JSON.parse(await readFile(file, 'utf8')) as z.core.JSONSchema.JSONSchema)
}
const models = { result: await schemaOf('trial-result'), trajectory: await schemaOf('trajectory') }

const problems = (model: z.ZodType, value: unknown) => model.safeParse(value).error?.issues ?? []

/** The files for Harbor's tools, each as its schema has it; the trial's result, as ours has it. */
async function checkFiles(t: Test, { directory, result }: TriedTask, name: string) {
  t.doesNotThrow(() => resultSchema.parse(result), `${name}: our own result is as promised`)
  const harbor = await readJson(path.join(directory, 'harbor/result.json'))
  t.strictSame(problems(models.result, harbor), [], `${name}: result.json`)
  const trajectory = await readJson(path.join(directory, 'harbor/trajectory.json')).catch(
    () => null,
  )
  if (trajectory !== null)
    t.strictSame(problems(models.trajectory, trajectory), [], `${name}: trajectory.json`)
  return { harbor, trajectory }
}

const verdictOf = ({ result: { verdict, blame, reason } }: TriedTask): string =>
  `${verdict} ${blame} ${reason.code}: ${reason.message}`

/** Name; what no-op and oracle get as rewards; what else their results say. */
const fixtures: readonly (readonly [string, object, object, object])[] = [
  ['shared-root', { reward: 0 }, { reward: 1 }, {}],
  ['non-root', { reward: 0 }, { reward: 1 }, {}],
  [
    'separate',
    { reward: 0 },
    { reward: 1 },
    {
      network: { asked: 'public', hosts: [], given: 'closed-book' },
      notes: [
        'the collect hook "exit 4" failed: it ended with {"code":4}',
        'the declared artifact /work/never-made was not there',
      ],
    },
  ],
  [
    'bundled',
    { reward: 0 },
    { reward: 1 },
    { network: { asked: 'allowlist', hosts: ['packages.example.org'], given: 'closed-book' } },
  ],
  ['rewards', { accuracy: 0, length: 0, clean: 1 }, { accuracy: 1, length: 1, clean: 1 }, {}],
]

for (const [name, none, full, says] of fixtures)
  void t.test(
    `${name}: no-op fails, oracle passes, and Harbor's tools can read both`,
    async (t) => {
      const dir = harborTask(name)
      const [noop, oracle] = await Promise.all([
        tryTask(daemon, dir, { harness: 'noop' }, closed),
        tryTask(daemon, dir, { harness: 'oracle' }, closed),
      ])
      t.match(verdictOf(noop), /^failed agent tests_failed/)
      t.match(verdictOf(oracle), /^passed null tests_passed/)
      t.strictSame([noop.result.rewards, oracle.result.rewards], [none, full])
      t.match(oracle.result, says)
      t.equal(
        oracle.result.network === undefined,
        !('network' in says),
        'no word of a network that nobody asked for',
      )
      const files = [await checkFiles(t, noop, 'noop'), await checkFiles(t, oracle, 'oracle')]
      t.match(files[0]?.harbor, {
        verifier_result: { rewards: none },
        agent_info: { name: 'nop' },
        reward_valid: true,
      })
      t.match(files[1], {
        harbor: {
          verifier_result: { rewards: full },
          verifier_environment_mode:
            name === 'separate' || name === 'bundled' ? 'separate' : 'shared',
          exception_info: null,
        },
        trajectory: { schema_version: 'ATIF-v1.8', agent: { name: 'oracle' } },
      })
    },
  )

void t.test(
  'rewards between nothing and all are kept, and a job may say what passes',
  async (t) => {
    await using scratch = await Scratch.make()
    await scratch.write('half.sh', 'printf "1\\n4\\n0\\n0\\n" >squares.csv\n')
    const half = (pass?: object) =>
      tryTask(
        daemon,
        harborTask('rewards'),
        { harness: 'script:half.sh', ...(pass !== undefined && { pass }) },
        { ...closed, baseDir: scratch.path },
      )
    const [plain, easy] = await Promise.all([half(), half({ accuracy: '>=0.5', length: '==1' })])
    const kept = { accuracy: 0.5, length: 1, clean: 1 }
    t.match(verdictOf(plain), /^failed agent tests_failed: functional 2 of 3/)
    t.match(verdictOf(easy), /^passed null tests_passed: functional 2 of 2/)
    for (const one of [plain, easy]) {
      t.strictSame(one.result.rewards, kept)
      t.match((await checkFiles(t, one, 'half')).harbor, { verifier_result: { rewards: kept } })
    }
    t.match(easy.result.configuration.settings, { pass: { accuracy: '>=0.5', length: '==1' } })
    t.match(
      plain.result.tests.find(({ id }) => id === 'accuracy'),
      { outcome: 'failed', message: 'reward 0.5' },
    )
  },
)

void t.test('an agent brings no tests, no reward and no process to its grading', async (t) => {
  await using scratch = await Scratch.make()
  await scratch.write(
    'cheat.sh',
    `mkdir -p /tests /logs/verifier /solution
printf '#!/bin/bash\necho 1 >/logs/verifier/reward.txt\n' >/tests/test.sh
chmod +x /tests/test.sh
echo 1 >/logs/verifier/reward.txt
echo '{"reward": 1}' >/logs/verifier/reward.json
setsid sh -c 'while :; do echo 1 >/logs/verifier/reward.txt; done' >/dev/null 2>&1 &
cp /app/greetings.txt /app/seen
`,
  )
  const tried = await tryTask(
    daemon,
    harborTask('shared-root'),
    { harness: 'script:cheat.sh' },
    { ...closed, baseDir: scratch.path },
  )
  t.match(verdictOf(tried), /^failed agent tests_failed: functional 0 of 1/)
  t.strictSame(tried.result.rewards, { reward: 0 })
  const taken = await readJson(path.join(tried.directory, 'collect.json'))
  t.match(
    taken,
    { ok: true, entries: 2, deleted: { length: 0 } },
    'its file, and the directory that it is in',
  )
})

let copies = 0

/** A copy of a fixture with one file changed. */
async function bent(scratch: Scratch, name: string, file: string, from: string, to: string) {
  const dir = path.join(scratch.path, `${name}-${(copies += 1)}`)
  await cp(harborTask(name), dir, { recursive: true })
  const text = await readFile(path.join(dir, file), 'utf8')
  if (!text.includes(from)) throw new Error(`${file} of ${name} has no ${from}`)
  await writeFile(path.join(dir, file), text.replace(from, to))
  return dir
}

void t.test('what the task is to blame for is void, and Harbor is told why', async (t) => {
  await using scratch = await Scratch.make()
  const rows: readonly (readonly [string, string, string, string, string, RegExp])[] = [
    [
      'a container that never becomes healthy',
      'non-root',
      'task.toml',
      'command = "test -s /run/ledger/ready"\ninterval_sec = 0.2',
      'command = "sleep 60"\ninterval_sec = 0.1',
      /^void task task_invalid: the health check .* failed 2 times .* did not end within 0\.3 s/,
    ],
    [
      'a script that writes no reward, with nothing changed',
      'shared-root',
      'tests/test.sh',
      'echo $score >/logs/verifier/reward.txt',
      'true',
      /^void task verifier_broken: .*neither reward\.txt nor reward\.json/,
    ],
    [
      'two rewards that disagree',
      'shared-root',
      'tests/test.sh',
      'echo $score >/logs/verifier/reward.txt',
      `echo '{"reward": 1}' >/logs/verifier/reward.json; echo 0 >/logs/verifier/reward.txt`,
      /^void task verifier_broken: .*reward\.json says \{"reward":1\} and reward\.txt 0/,
    ],
  ]
  const tried = await Promise.all(
    rows.map(async ([, name, file, from, to], index) => {
      const dir = await bent(scratch, name, file, from, to)
      if (index === 0) {
        const text = await readFile(path.join(dir, file), 'utf8')
        const quick = text
          .replace('timeout_sec = 5.0', 'timeout_sec = 0.3')
          .replace('start_period_sec = 2.0', 'start_period_sec = 0.2')
          .replace('retries = 20', 'retries = 2')
        await writeFile(path.join(dir, file), quick)
      }
      return tryTask(daemon, dir, { harness: 'noop' }, closed)
    }),
  )
  for (const [index, one] of tried.entries()) {
    const [why = '', , , , , end = /./] = rows[index] ?? []
    t.match(verdictOf(one), end, why)
    const { harbor } = await checkFiles(t, one, why)
    t.match(
      harbor,
      {
        verifier_result: null,
        reward_valid: false,
        exception_info: { exception_type: /^Closedbook[A-Z]/ },
      },
      why,
    )
  }
})

void t.test('a value of the host is in the sandbox, and in no file of ours', async (t) => {
  await using scratch = await Scratch.make()
  const value = 'hunter2-but-longer'
  await scratch.write('shows.sh', 'printf %s "$CURRENCY" | sha256sum; test -n "$CURRENCY"\n')
  const tried = await tryTask(
    daemon,
    harborTask('non-root'),
    { harness: 'script:shows.sh' },
    {
      ...{ baseDir: scratch.path, env: { FIXTURE_CURRENCY: value, FIXTURE_EXPECTED: `${value}2` } },
      harbor: { network: 'closed-book', hostEnv: ['FIXTURE_CURRENCY', 'FIXTURE_EXPECTED'] },
    },
  )
  t.match(verdictOf(tried), /^failed agent tests_failed/)
  t.same(tried.result.hostEnv, ['FIXTURE_CURRENCY', 'FIXTURE_EXPECTED'], 'the result names them')
  const log = await readFile(path.join(tried.directory, 'harness.log'), 'utf8')
  t.match(log, createHash('sha256').update(value).digest('hex'))
  const dir = path.join(scratch.path, 'tally')
  await cp(tally, dir, { recursive: true })
  const toml = await readFile(path.join(dir, 'task.toml'), 'utf8')
  const env = '[verifier.env]\nA = "${A_HOST}"\nname = "n $x"\n[solution.env]\nB = "${A_HOST}"\n'
  await writeFile(path.join(dir, 'task.toml'), toml.replace('[closedbook]', `${env}[closedbook]`))
  const test = path.join(dir, 'tests/functional/test_tally.py')
  const hash = createHash('sha256').update(value).digest('hex')
  const asks = `import hashlib, os\nassert hashlib.sha256(os.environ["A"].encode()).hexdigest() == "${hash}"\nassert os.environ["name"] == "n $x" and not [n for n in os.environ if n.lower().startswith("closedbook_v")]\n`
  await writeFile(test, asks + (await readFile(test, 'utf8')))
  const graded = await tryTask(
    daemon,
    dir,
    { harness: 'oracle' },
    { env: { A_HOST: value }, harbor: { hostEnv: ['A_HOST'] } },
  )
  t.match(verdictOf(graded), /^passed/, 'hidden tests have it as well')
  const holding: string[] = []
  for (const entry of await readdir(daemon.stateDir, { recursive: true, withFileTypes: true })) {
    const file = path.join(entry.parentPath, entry.name)
    if (entry.isFile() && (await readFile(file, 'utf8').catch(() => '')).includes(value))
      holding.push(path.relative(daemon.stateDir, file))
  }
  t.same(holding, [])
})

void t.test('what an entrypoint writes before the agent is not the agent’s work', async (t) => {
  await using scratch = await Scratch.make()
  await scratch.write('idle.sh', 'true\n')
  await scratch.write('works.sh', 'echo more >/tmp/made\n')
  await scratch.write('spoils.sh', 'echo down >/run/ledger/ready\n')
  const broken = ['non-root', 'tests/test.sh', 'fi >/logs/verifier/reward.txt', 'fi'] as const
  const dir = await bent(scratch, ...broken)
  // the sandbox's user may write where its service did
  const file = path.join(dir, 'task.toml')
  await writeFile(file, (await readFile(file, 'utf8')).replace('user = "clerk"', 'user = "root"'))
  const rows = [
    ['noop', /^void task verifier_broken: .*nothing was changed/, false],
    ['script:idle.sh', /^void task verifier_broken: .*nothing was changed/, false],
    ['script:works.sh', /^failed agent verifier_broken/, true],
    ['script:spoils.sh', /^failed agent verifier_broken/, true],
  ] as const
  const tried = await Promise.all(
    rows.map(([harness]) =>
      tryTask(daemon, dir, { harness }, { ...closed, baseDir: scratch.path }),
    ),
  )
  for (const [index, [harness, end, changed]] of rows.entries()) {
    const one = tried[index]
    if (one === undefined) throw new Error('as many as rows')
    t.match(verdictOf(one), end, harness)
    t.match(await readJson(path.join(one.directory, 'collect.json')), { ok: true, changed })
  }
})

void t.test(
  'the command line asks for the operator’s word, and the result says that it was given',
  async (t) => {
    const run = ['run', '--task', harborTask('bundled'), '--harness', 'oracle']
    const refused = await daemon.cli([...run, '--json'])
    t.equal(refused.code, 65)
    t.match(
      refused.stderr,
      /bundled\/task\.toml:9: environment\.network_mode: asks for hosts of its own \(packages\.example\.org\)/,
    )
    const line = await daemon.json([...run, '--closed-book-network'])
    const { trials } = z
      .object({ trials: z.array(z.object({ verdict: z.string(), result: z.string() })) })
      .parse(line)
    t.equal(trials[0]?.verdict, 'passed')
    t.match(await readJson(trials[0]?.result ?? ''), {
      network: { asked: 'allowlist', given: 'closed-book' },
      rewards: { reward: 1 },
    })
  },
)

void t.test('the schemas do refuse what the models would', (t) => {
  t.not(problems(models.trajectory, { steps: [] }).length, 0)
  t.not(problems(models.result, { task_name: 'x' }).length, 0)
  t.end()
})
