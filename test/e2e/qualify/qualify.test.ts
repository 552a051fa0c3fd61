/** `qualify` and `review` through the real command line, over a sound task and one that is broken in every way it can be. */
import { readFile, readdir } from 'node:fs/promises'
import path from 'node:path'
import t from 'tap'
import { Scratch } from '../../runner/support/scratch.ts'
import { TestDaemon } from '../../support/daemon.ts'
import { testEngine } from '../../support/engine.ts'
import { start } from '../recovery/setup.ts'
import { leftOpen } from '../trials/command-harness.ts'
import { until } from '../trials/setup.ts'
import { copyTally } from './patient.ts'

const engine = await testEngine()
t.teardown(() => engine.dispose())

interface Finding {
  readonly code: string
  readonly severity: string
}

interface Line {
  readonly qualified: boolean
  readonly digest: string
  readonly findings: readonly {
    readonly code: string
    readonly severity: string
    readonly message: string
    readonly advice: string
    readonly tests: readonly string[]
  }[]
  readonly expected: { functional: readonly string[]; regression: readonly string[] }
  readonly evidence: string
}

const model = JSON.stringify({
  name: 'mini',
  harness: 'mini-swe-agent',
  model: {
    name: 'm',
    upstream: { kind: 'replay', recordings: 'recordings' },
    price: { inputPerMillionUsd: 1, cachedInputPerMillionUsd: 1, outputPerMillionUsd: 1 },
  },
})

t.test('a sound task qualifies, is included, and is stale once it changes', async (t) => {
  await using daemon = await TestDaemon.open(engine.socketPath)
  await using scratch = await Scratch.make()
  const dir = path.join(scratch.path, 'tally')
  await copyTally(dir)
  const config = await scratch.write('mini.yaml', model)
  await scratch.write('recordings/tally/1.jsonl', '')
  const run = ['run', '--task', dir, '--config', config]

  const early = await daemon.cli(run)
  t.equal(early.code, 65)
  t.match(early.stderr, /fixture\/tally was never qualified/)
  const hasty = await daemon.cli(['review', dir, '--include', '--by', 'Ada', '--reason', 'nice'])
  t.equal(hasty.code, 65)
  t.match(hasty.stderr, /can't be included: it was never qualified/)

  const page = path.join(scratch.path, 'report.html')
  const asked = ['qualify', dir, '--repeats', '2', '--html', page, '--host-name', 'reference']
  const killed = start(daemon, asked)
  const evidence = path.join(daemon.stateDir, 'evidence')
  const recorded = async () => {
    const files = await readdir(evidence, { recursive: true }).catch(() => [])
    return files.filter((file) => /^[^/]+\/trials\/[^/]+\/result\.json$/.test(file)).toSorted()
  }
  const first = await until('a trial is recorded', async () => {
    const files = await recorded()
    return files.length > 0 ? files : null
  })
  killed.child.kill('SIGKILL')
  await killed.ended
  const qualified = await daemon.cli(asked)
  t.equal(qualified.code, 0, qualified.stderr)
  t.match(qualified.stderr, /going on with qualify-\S+, which was interrupted/)
  t.strictSame(await leftOpen(daemon), [], 'the sandboxes of the killed one are closed')
  const all = await recorded()
  t.equal(all.length, 4, 'two agents, two repeats, one set')
  t.ok(
    first.every((file) => all.includes(file)),
    'what was recorded stands',
  )
  t.match(
    qualified.stdout,
    /^qualified {2}fixture\/tally\n3 functional and 2 regression tests, 2 repeats each/,
  )
  t.match(qualified.stdout, /oracle +│ +2 │ passed +│ 3\/3 +│ 2\/2/)
  t.match(await readFile(page, 'utf8'), /fixture\/tally: <span class="good">qualified/)
  const file = path.join(dir, 'closedbook/qualification.json')
  const document = JSON.parse(await readFile(file, 'utf8'))
  t.match(document, {
    schema: 'closedbook.qualification/1',
    qualified: true,
    repeats: 2,
    host: { name: 'reference' },
  })
  const codes = document.findings.map(({ code, severity }: Finding) => `${severity} ${code}`)
  t.ok(codes.includes('warning few_repeats'))
  t.strictSame(
    codes.filter((code: string) => code.startsWith('error')),
    [],
  )
  t.equal(document.expected.functional.length, 3)
  t.ok(document.times.oracle.suites.functional.max > 0)
  t.match(document.limits, [
    { key: 'closedbook.functional.timeout_sec' },
    {},
    { key: 'agent.timeout_sec' },
  ])
  for (const { trial, result } of document.trials) {
    t.match(result, /^sha256:/)
    const own = path.join(
      daemon.stateDir,
      'evidence',
      document.evidence,
      'trials',
      trial,
      'result.json',
    )
    t.match(JSON.parse(await readFile(own, 'utf8')), { trial }, 'each result is in the evidence')
  }

  const decided = await daemon.cli(['review', dir, '--include', '--by', 'Ada', '--reason', 'clear'])
  t.equal(decided.code, 0, decided.stderr)
  t.match(await daemon.json(['review', dir]), {
    state: 'qualified',
    current: 'include',
    reviews: [{ by: 'Ada' }],
  })
  t.match((await daemon.cli(['review', dir])).stdout, /include +│ Ada +│ clear +│ yes/)

  await scratch.write('tally/tests/functional/test_tally.py', '# emptied\n')
  const stale = await daemon.cli(run)
  t.equal(stale.code, 65)
  t.match(
    stale.stderr,
    /was qualified before it changed: tests \(tests\/functional\/test_tally\.py\)/,
  )
  t.match(
    await daemon.json(['review', dir]),
    { state: 'stale', current: null },
    'the decision holds no more',
  )
  const late = await daemon.cli([
    'review',
    dir,
    '--include',
    '--by',
    'Ada',
    '--reason',
    'still nice',
  ])
  t.match(late.stderr, /changed since it was qualified/)
  t.equal(
    (await daemon.cli(['review', dir, '--include'])).code,
    2,
    'a decision needs a name and a reason',
  )
})

t.test('a broken task is refused, with each test that is at fault', async (t) => {
  await using daemon = await TestDaemon.open(engine.socketPath)
  await using scratch = await Scratch.make()
  const dir = path.join(scratch.path, 'broken')
  await copyTally(dir)
  // Without the ids that the task lists, so that those of the runs count.
  const toml = await readFile(path.join(dir, 'task.toml'), 'utf8')
  const bare = toml.replace(/^expected = \[\n[^\]]*\]\n/gm, '')
  const check = `[environment.healthcheck]\ncommand = "echo up >/workspace/tally/booted"\n`
  await scratch.write('broken/task.toml', `${bare}\n${check}`)
  await scratch.write(
    'broken/tests/functional/test_more.py',
    `import random

import pytest
import tally


def test_needs_no_work():
    assert tally.words("a") == ["a"]


def test_asks_too_much():
    assert tally.tally("a") == [("b", 2)]


@pytest.mark.parametrize("number", range(24))
def test_by_luck(number):
    assert hasattr(tally, "tally") and random.random() < 0.5
`,
  )
  await scratch.write(
    'broken/tests/regression/test_late.py',
    'import tally\n\n\ndef test_not_yet():\n    assert tally.tally("a")\n',
  )
  const cli = await daemon.cli(['qualify', dir, '--repeats', '2', '--concurrency', '2', '--json'])
  t.equal(cli.code, 1)
  const { qualified, findings } = JSON.parse(cli.stdout) as Line
  t.equal(qualified, false)
  const of = (code: string): readonly string[] =>
    findings.find((one) => one.code === code && one.severity === 'error')?.tests ?? []
  const wrote = findings.find(({ code }) => code === 'noop_changes')
  t.match(wrote, { severity: 'error', message: /booted/, advice: /let it write elsewhere/ })
  t.strictSame(of('noop_passes'), ['functional.test_more::test_needs_no_work'])
  t.strictSame(of('noop_breaks'), ['regression.test_late::test_not_yet'])
  t.ok(of('oracle_fails').includes('functional.test_more::test_asks_too_much'))
  t.ok(of('flaky').length > 0, 'of 24 coins thrown twice one falls differently')
  for (const id of of('flaky')) t.match(id, /test_by_luck\[\d+\]$/)
  const shown = await daemon.cli([
    'run',
    '--task',
    dir,
    '--config',
    await scratch.write('mini.yaml', model),
  ])
  t.match(shown.stderr, /did not qualify|no recording/)
})
