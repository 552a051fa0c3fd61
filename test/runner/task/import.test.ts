/** Tasks made of other people's formats: the files they become, and that no-op fails and oracle passes on a real engine. */
import { execFileSync } from 'node:child_process'
import { readFile, rm } from 'node:fs/promises'
import { join } from 'node:path'
import t from 'tap'
import { readInstances } from '../../../runner/task/import/instances.ts'
import { junitId, patchedPaths } from '../../../runner/task/import/swe-bench.ts'
import { loadTask } from '../../../runner/task/load.ts'
import { TestDaemon } from '../../support/daemon.ts'
import { testEngine } from '../../support/engine.ts'
import { failureOf, Scratch } from '../support/scratch.ts'

void t.test('ids of pytest are named as its JUnit report names them', (t) => {
  for (const [id, expected] of [
    ['tests/test_a.py::test_b', 'tests.test_a::test_b'],
    ['tests/test_a.py::TestC::test_b[x::y/z.py]', 'tests.test_a.TestC::test_b[x::y/z.py]'],
    ['test_a.py::test_b', 'test_a::test_b'],
  ] as const)
    t.equal(junitId(id), expected)
  t.same(
    patchedPaths(
      '--- a/x.py\n+++ b/x.py\n@@\n--- /dev/null\n+++ b/new.py\n@@\n--- a/old.py\n+++ /dev/null\n',
    ),
    [
      { path: 'x.py', state: 'changed' },
      { path: 'new.py', state: 'added' },
      { path: 'old.py', state: 'deleted' },
    ],
  )
  t.end()
})

void t.test('what is no instance is refused with its place', async (t) => {
  await using scratch = await Scratch.make()
  const good = {
    instance_id: 'a__b-1',
    repo: 'a/b',
    base_commit: 'c'.repeat(40),
    patch: 'p',
    test_patch: 't',
    problem_statement: 's',
    FAIL_TO_PASS: '["x.py::y"]',
  }
  for (const [text, message] of [
    ['{"a": 1}\n{broken\n', /line 2 is not JSON/],
    ['[]', /holds no instance/],
    [
      JSON.stringify({ ...good, base_commit: 'main' }),
      /instance 1: base_commit: must be a full commit/,
    ],
    [JSON.stringify({ ...good, FAIL_TO_PASS: [] }), /a__b-1: FAIL_TO_PASS is empty/],
    [JSON.stringify({ ...good, instance_id: '../up' }), /instance_id: must be letters/],
  ] as const)
    t.match(await failureOf(async () => readInstances(await scratch.write('x.json', text))), {
      code: 'usage',
      message,
    })
  t.match(await readInstances(await scratch.write('x.json', `${JSON.stringify(good)}\n`)), [
    { FAIL_TO_PASS: ['x.py::y'], PASS_TO_PASS: { length: 0 } },
  ])
})

function git(directory: string, ...args: string[]): string {
  return execFileSync('git', ['-c', 'user.name=a', '-c', 'user.email=a@example.com', ...args], {
    cwd: directory,
    encoding: 'utf8',
    env: {
      PATH: process.env['PATH'],
      GIT_CONFIG_GLOBAL: '/dev/null',
      GIT_CONFIG_SYSTEM: '/dev/null',
    },
  })
}

/** The difference that a change of these files makes, as a patch; the tree is put back. */
async function patchOf(scratch: Scratch, files: Readonly<Record<string, string>>): Promise<string> {
  const repository = join(scratch.path, 'context/repo')
  for (const [path, text] of Object.entries(files))
    await scratch.write(`context/repo/${path}`, text)
  git(repository, 'add', '-A')
  const patch = git(repository, 'diff', '--cached', '--no-color')
  git(repository, 'reset', '-q', '--hard')
  git(repository, 'clean', '-qfd')
  return patch
}

const oldTests = `from ledger import total


def test_sums():
    assert total([1, 2]) == 3
`
const newTests = `from ledger import average, total


def test_sums():
    assert total([1, 2]) == 3


class TestAverage:
    def test_of_two(self):
        assert average([1, 2]) == 1.5
`

void t.test('an instance becomes a task that no-op fails and oracle passes', async (t) => {
  await using engine = await testEngine()
  await using scratch = await Scratch.make()
  const repository = join(scratch.path, 'context/repo')
  await scratch.write('context/repo/ledger.py', 'def total(values):\n    return sum(values)\n')
  await scratch.write('context/repo/tests/test_ledger.py', oldTests)
  await scratch.write(
    'context/repo/tests/test_kept.py',
    'from ledger import total\n\n\ndef test_empty():\n    assert total([]) == 0\n',
  )
  await scratch.write(
    'context/repo/conftest.py',
    'import os\nimport sys\n\nsys.path.insert(0, os.path.dirname(__file__))\n',
  )
  git(repository, 'init', '-q', '-b', 'main', '--template=')
  git(repository, 'add', '-A')
  git(repository, 'commit', '-q', '-m', 'base')
  const instance = {
    instance_id: 'acme__ledger-7',
    repo: 'acme/ledger',
    base_commit: git(repository, 'rev-parse', 'HEAD').trim(),
    patch: await patchOf(scratch, {
      'ledger.py':
        'def total(values):\n    return sum(values)\n\n\ndef average(values):\n    return total(values) / len(values)\n',
    }),
    test_patch: await patchOf(scratch, {
      'tests/test_ledger.py': newTests,
      'tests/test_added.py':
        'from ledger import average\n\n\ndef test_of_one():\n    assert average([4]) == 4\n',
    }),
    problem_statement: 'There is no `average`.',
    version: '1.0',
    FAIL_TO_PASS: JSON.stringify([
      'tests/test_ledger.py::TestAverage::test_of_two',
      'tests/test_added.py::test_of_one',
    ]),
    PASS_TO_PASS: ['tests/test_kept.py::test_empty'],
  }
  const file = await scratch.write('instances.jsonl', `${JSON.stringify(instance)}\n`)
  // Built as a task's image would be, so that the tests' own engine has it by id.
  await scratch.write(
    'seed/task.toml',
    '[closedbook]\nworkdir = "/testbed"\n[closedbook.functional]\ncommand = "true"\n',
  )
  await scratch.write(
    'context/Dockerfile',
    'FROM closedbook/sglang-cpu:0.5.9\nRUN ln -sf /usr/bin/python3 /usr/local/bin/python\nCOPY repo /testbed\nWORKDIR /testbed\n',
  )
  await using daemon = await TestDaemon.open(engine.socketPath)
  const { buildTaskImage } = await import('../../../images/task-image.ts')
  const { id } = await buildTaskImage(join(scratch.path, 'context'), {
    engine: engine.engine,
    stateDir: daemon.stateDir,
  })
  const out = join(scratch.path, 'out')
  t.match(await daemon.cli(['task', 'import', file, '--out', out]), {
    code: 2,
    stderr: /give --image/,
  })
  const made = await daemon.json([
    'task',
    'import',
    file,
    '--out',
    out,
    '--image',
    id,
    '--area',
    'accounting',
    '--source',
    'maintainer:acme/ledger#7',
  ])
  const dir = join(out, 'acme__ledger-7')
  t.same(made, { tasks: [dir] })
  const task = await loadTask(dir)
  t.match(task, {
    name: 'acme/acme__ledger-7',
    area: 'accounting',
    workdir: '/testbed',
    baseCommit: instance.base_commit,
    source: { kind: 'maintainer', ref: 'acme/ledger#7' },
    suites: {
      functional: {
        expected: ['tests.test_ledger.TestAverage::test_of_two', 'tests.test_added::test_of_one'],
      },
      regression: { expected: ['tests.test_kept::test_empty'] },
    },
  })
  t.match(task.instruction, /There is no `average`/)
  const lint = await daemon.json(['task', 'lint', dir, '--no-image'])
  t.same((lint as { tasks: { findings: unknown[] }[] }).tasks[0]?.findings, [], 'it lints clean')
  const verdict = async (harness: string): Promise<unknown> => {
    const job = (await daemon.json(['run', '--task', dir, '--harness', harness])) as {
      trials: { result: string }[]
    }
    return JSON.parse(await readFile(job.trials[0]?.result ?? '', 'utf8'))
  }
  const [noop, oracle] = [await verdict('noop'), await verdict('oracle')]
  t.match(
    noop,
    {
      verdict: 'failed',
      blame: 'agent',
      suites: { functional: { passed: 0, planned: 2 }, regression: { passed: 1 } },
    },
    JSON.stringify((noop as { reason: unknown }).reason),
  )
  t.match(
    oracle,
    { verdict: 'passed', suites: { functional: { passed: 2 }, regression: { passed: 1 } } },
    JSON.stringify((oracle as { reason: unknown }).reason),
  )
  await engine.engine.removeImage(id)
})

void t.test('a Harbor task gets a section, and lint asks for what nobody can derive', async (t) => {
  await using scratch = await Scratch.make()
  const from = join(scratch.path, 'from')
  await scratch.write(
    'from/task.toml',
    'version = "1.0"\n# kept\n[metadata]\ncategory = "Data Processing"\n[environment]\nnetwork_mode = "no-network"\n',
  )
  await scratch.write('from/instruction.md', 'Do it.\n')
  await scratch.write(
    'from/environment/Dockerfile',
    'FROM closedbook/base:trixie\nWORKDIR /app\nWORKDIR data\n',
  )
  await scratch.write(
    'from/tests/test.sh',
    '#!/bin/bash\necho 1 >/logs/verifier/reward.txt\n',
    0o755,
  )
  await scratch.write('from/solution/solve.sh', '#!/bin/bash\ntrue\n', 0o755)
  const { importHarbor } = await import('../../../runner/task/import/harbor.ts')
  const { lintTask } = await import('../../../runner/task/lint/lint.ts')
  const to = join(scratch.path, 'to')
  await importHarbor(from, to, {})
  const task = await loadTask(to)
  t.match(task, {
    name: 'to',
    area: 'data-processing',
    workdir: '/app/data',
    verify: 'snapshot',
    suites: { functional: { command: 'bash /tests/test.sh', results: 'reward' }, regression: null },
  })
  t.match(await readFile(join(to, 'task.toml'), 'utf8'), /# kept/, 'what was there stays as it was')
  const { findings } = await lintTask(to, { image: null })
  t.same(findings.map(({ rule }) => rule).toSorted(), [
    'missing-expected-tests',
    'missing-regression-suite',
    'missing-task-facts',
    'no-canaries',
  ])
  t.match(await failureOf(() => importHarbor(from, to, {})), {
    code: 'usage',
    message: /is not empty/,
  })
  t.match(await failureOf(() => importHarbor(to, join(scratch.path, 'x'), {})), {
    message: /has a \[closedbook\] section already/,
  })
  await rm(join(from, 'task.toml'))
  t.match(await failureOf(() => importHarbor(from, join(scratch.path, 'x'), {})), {
    message: /has no task\.toml/,
  })
})
