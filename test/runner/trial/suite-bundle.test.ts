import { execFileSync } from 'node:child_process'
import { mkdtemp, rm, symlink } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Readable } from 'node:stream'
import t from 'tap'
import type { ResultFormat } from '../../../runner/task/schema.ts'
import { collectArtifacts, placeArtifacts } from '../../../runner/trial/artifacts.ts'
import { prepareSuite, type PreparedSuite } from '../../../runner/trial/suite-bundle.ts'
import { pinPath } from '../../../runner/trial/suite-run.ts'
import { readTar } from '../../../runner/trial/tar-reader.ts'
import { trialEngine } from './engine-sandbox.ts'
import { writeTests } from './write-tests.ts'

const host = await trialEngine()
const scratch = await mkdtemp(join(tmpdir(), 'cb-bundle-'))
t.teardown(async () => {
  await rm(scratch, { recursive: true, force: true })
  await host[Symbol.asyncDispose]()
})

const testsDir = (files: Readonly<Record<string, string>>) => writeTests(scratch, files)
const tests = await testsDir({
  'functional/test_calc.py': 'def test_a():\n    assert True\n',
  'functional/test_import.py': 'def test_b():\n    assert True\n',
  'functional/helper.py': 'x = 1\n',
})

const contents = async (prepared: PreparedSuite): Promise<Map<string, string>> => {
  const found = new Map<string, string>()
  let path = ''
  for await (const item of readTar(Readable.from([prepared.bundleTar])))
    if (Buffer.isBuffer(item)) found.set(path, (found.get(path) ?? '') + item.toString())
    else found.set((path = item.path), '')
  return found
}

const prepare = (dir: string, command: string, results: ResultFormat = 'junit') =>
  prepareSuite({ testsDir: dir, suite: { name: 'functional', command, results } })

t.test('canaries run early and late, look like tests, differ each time, and fail', async (t) => {
  const names = new Set<string>()
  const programs: string[] = []
  for (let round = 0; round < 40; round++) {
    const prepared = await prepare(tests, 'pytest /tests/functional')
    const [early, late] = prepared.canaries
    t.ok(
      (early?.file ?? '') < 'functional/test_calc.py' && early?.file.startsWith('functional/test_'),
    )
    t.ok((late?.file ?? '') > 'functional/test_import.py')
    const files = await contents(prepared)
    for (const canary of prepared.canaries) {
      names.add(canary.test)
      const text = files.get(canary.file) ?? ''
      t.match(text, `def ${canary.test}():`)
      t.notMatch(text, /canary|closedbook/i)
      programs.push(
        `${text}\ntry:\n    ${canary.test}()\n    print("passed")\nexcept AssertionError:\n    print("failed")\n`,
      )
    }
  }
  t.ok(names.size > 70, `${names.size} names of 80`)
  await using sandbox = await host.sandbox()
  t.equal(
    await sandbox.sh(`python3 - <<'END'\n${programs.join('\n')}\nEND`),
    'failed\n'.repeat(programs.length),
  )
})

const places: readonly (readonly [
  string,
  Readonly<Record<string, string>>,
  string,
  ResultFormat,
  readonly string[],
])[] = [
  [
    'the directory that the command names',
    { 'a/test_m.py': '', 'functional/x.py': '' },
    'cd /work && pytest "/tests/a" -q',
    'junit',
    ['a/', 'a/'],
  ],
  [
    'the first and the last of several',
    { 'a/test_m.py': '', 'b/test_n.py': '' },
    'pytest /tests/a /tests/b',
    'junit',
    ['a/', 'b/'],
  ],
  ['the whole of tests/', { 'test_m.py': '' }, 'pytest /tests', 'junit', ['test_', 'test_']],
  [
    'a module that the command names',
    { 'test_m.py': 'def test_a():\n    pass' },
    'pytest /tests/test_m.py::test_a',
    'junit',
    ['test_m.py', 'test_m.py'],
  ],
  [
    'what a script of the tests names',
    { 'run.sh': 'pytest --junitxml=$1 /tests/deep/er\n', 'deep/er/test_m.py': '' },
    'bash /tests/run.sh {results}',
    'junit',
    ['deep/er/', 'deep/er/'],
  ],
  [
    'the inner directory where an option names the one around it',
    { 'functional/test_m.py': '', 'regression/test_n.py': '' },
    'pytest -c /dev/null --rootdir=/tests /tests/functional',
    'junit',
    ['functional/', 'functional/'],
  ],
  [
    "the suite's own directory where nothing is named",
    { 'functional/test_m.py': '' },
    'cd /tests/../tests/functional; python -m pytest',
    'junit',
    ['functional/', 'functional/'],
  ],
  ['nowhere for a reward', { 'test_m.py': '' }, 'pytest /tests', 'reward', []],
  ['nowhere for another runner', { 'm.sh': '' }, 'sh /tests/m.sh', 'tap', []],
]

for (const [name, files, command, results, expected] of places)
  t.test(`canaries go to ${name}`, async (t) => {
    const prepared = await prepare(await testsDir(files), command, results)
    const own = expected.length === 0 ? 0 : prepared.canaries.length
    t.ok(prepared.canaries.length >= expected.length && own === prepared.canaries.length)
    for (const [index, start] of expected.entries())
      t.ok(prepared.canaries[index]?.file.startsWith(start), start)
    t.equal(prepared.note === null, expected.length > 0)
    t.ok([...(await contents(prepared)).keys()].includes('.guard/sitecustomize.py'))
  })

for (const command of [
  'pytest -x /tests',
  'pytest --maxfail=1 /tests',
  'pytest /tests --exitfirst',
  'PYTEST_ADDOPTS="-x" pytest /tests',
])
  t.test(`refuses a suite that would stop at a canary: ${command}`, async (t) => {
    await t.rejects(prepare(tests, command), { code: 'task_invalid', blame: 'task' })
  })

t.test('refuses the same in the configuration, and files that are none', async (t) => {
  const configured = await testsDir({
    'pytest.ini': '[pytest]\naddopts = -q -x\n',
    'test_a.py': '',
  })
  await t.rejects(prepare(configured, 'pytest /tests'), { code: 'task_invalid', blame: 'task' })
  const special = await testsDir({ 'test_a.py': '' })
  execFileSync('mkfifo', [join(special, 'pipe')])
  await t.rejects(prepare(special, 'pytest /tests'), { code: 'task_invalid', blame: 'task' })
})

t.test('a bundle holds nothing of the host: no owner, no time, no cache', async (t) => {
  const dir = await testsDir({ 'test_a.py': 'x = 1\n', '__pycache__/test_a.pyc': 'x' })
  await symlink('test_a.py', join(dir, 'link.py'))
  let seed = 0
  const random = (limit: number): number => (seed = (seed * 1103515245 + 12345) % 2 ** 31) % limit
  const make = () => {
    seed = 42
    return prepareSuite({
      testsDir: dir,
      random,
      suite: { name: 'functional', command: 'pytest /tests', results: 'junit' },
    })
  }
  const first = await make()
  t.equal((await make()).sha256, first.sha256, 'the same draws give the same bytes')
  t.notOk([...(await contents(first)).keys()].some((path) => path.includes('__pycache__')))
})

t.test('PATH loses what is relative and what the patch touched', async (t) => {
  const path = '/work/.venv/bin:/usr/bin::.:bin:/work/tools/:/bin'
  t.equal(pinPath(path, '/work', ['tools/pytest']), '/work/.venv/bin:/usr/bin:/bin')
  t.equal(pinPath(path, '/work', ['.venv/bin/pytest']), '/usr/bin:/work/tools/:/bin')
  t.equal(pinPath(path, '/work', ['src/x']), '/work/.venv/bin:/usr/bin:/work/tools/:/bin')
  t.match(pinPath('.', '/work', []), /^\/usr\/local\/sbin:/)
  t.match(pinPath(undefined, '/work', []), /^\/usr\/local\/sbin:/)
})

t.test('declared artifacts travel cleaned, and a missing one is said', async (t) => {
  await using agent = await host.sandbox()
  await using verifier = await host.sandbox()
  await agent.sh(`
mkdir -p /out/sub/deep /other && cd /out && echo one >one && chmod 4755 one && ln one sub/hard && ln -s ../one sub/link
mkfifo sub/pipe && echo skip >sub/deep/x.log && echo $'n' >$'odd\\n\\xff' && echo single >/other/file`)
  const outcome = await collectArtifacts({
    agent,
    directory: scratch,
    artifacts: [
      { source: '/out', exclude: ['*.log'] },
      { source: '/other/file', exclude: [] },
      { source: '/not/there', exclude: [] },
      { source: '/out/one/below', exclude: [] },
    ],
  })
  if (!outcome.ok) throw new Error(outcome.failure.message)
  t.same(outcome.missing, ['/not/there', '/out/one/below'])
  t.same(outcome.skipped, [{ path: '/out/sub/pipe', why: 'a fifo' }])
  await placeArtifacts({ sandbox: verifier, artifacts: outcome.artifacts })
  t.equal(
    await verifier.sh(
      `cd /out; stat -c %a one; cat sub/hard sub/link $'odd\\n\\xff' /other/file; find . -name '*.log' -o -type p`,
    ),
    '755\none\none\nn\nsingle\n',
  )
  const small = await collectArtifacts({
    agent,
    directory: scratch,
    artifacts: [{ source: '/usr/bin', exclude: [] }],
    maxBytes: 1000,
  })
  t.match(small, { ok: false, failure: { code: 'artifact_too_large' } })
})
