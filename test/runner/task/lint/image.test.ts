/** Seeded leaks in a tiny image on the real engine: each is found by its own rule; the same image without them is clean. */
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import t from 'tap'
import { lintTask, type LintReport } from '../../../../runner/task/lint/lint.ts'
import { TestDaemon } from '../../../support/daemon.ts'
import { testEngine } from '../../../support/engine.ts'
import {
  git,
  later,
  ledgerTask,
  leaks,
  project,
  providerKey,
  seed,
  then,
  toml,
  token,
} from '../../support/leaky-image.ts'
import { Scratch } from '../../support/scratch.ts'

void t.test('leaks in an image', async (t) => {
  await using engine = await testEngine()
  await using daemon = await TestDaemon.open(engine.socketPath)
  const base = await engine.baseImage()
  const access = {
    client: daemon.client,
    stateDir: daemon.stateDir,
    say: () => {},
    signal: AbortSignal.timeout(240_000),
  }
  const built: string[] = []
  const lint = async (dir: string): Promise<LintReport> => {
    const report = await lintTask(dir, { image: access })
    if (report.image !== null) built.push(report.image)
    return report
  }

  await t.test('each seeded leak is found by its rule', async (t) => {
    await using scratch = await Scratch.make()
    const { findings, note } = await lint(await seed(scratch, base))
    t.equal(note, null)
    for (const [what, rule, file, message] of leaks)
      t.ok(
        findings.some(
          (one) => one.rule === rule && file.test(one.file) && message.test(one.message),
        ),
        `${what}: ${rule}`,
      )
    t.notOk(JSON.stringify(findings).includes(token.slice(0, 20)), 'no secret is shown whole')
  })

  await t.test('the same image without them is clean', async (t) => {
    await using scratch = await Scratch.make()
    const dir = await ledgerTask(scratch, `FROM ${base}\nCOPY project /work/project\n`)
    const directory = await project(scratch)
    t.same((await lint(dir)).findings, [])

    await t.test('and base_commit must be where HEAD is', async (t) => {
      const head = git(directory, then, 'rev-parse', 'HEAD')
      await scratch.write(
        'task.toml',
        toml.replace('[closedbook]', `[closedbook]\nbase_commit = "${head}"`),
      )
      t.same((await lint(dir)).findings, [])
      await writeFile(join(directory, 'ledger.py'), 'def balance():\n    return 1\n')
      git(directory, later, 'commit', '-q', '-a', '-m', 'what came after')
      const { findings } = await lint(dir)
      t.match(
        findings.find(({ rule }) => rule === 'git-head'),
        { message: new RegExp(`but task.toml names base_commit ${head}`) },
      )
      t.match(
        findings.find(({ rule }) => rule === 'git-future-ref'),
        { message: /branch main/ },
        'the branch itself is ahead of the base',
      )
    })
  })

  await t.test(
    'removed history and keys in build arguments are in the image all the same',
    async (t) => {
      await using scratch = await Scratch.make()
      const dir = await ledgerTask(
        scratch,
        `FROM ${base}
ARG API_KEY=${providerKey}
COPY project /work/project
RUN rm -r /work/project/.git
RUN true
`,
      )
      await project(scratch)
      const { findings } = await lint(dir)
      const rules = findings.map(({ rule, file }) => `${rule} ${file.replace(/:.*\//, ':')}`)
      t.ok(rules.includes('git-missing image:project'), rules.join())
      t.ok(rules.includes('git-removed-object image:.git'), rules.join())
      t.ok(findings.some(({ rule, file }) => rule === 'baked-secret' && file === 'image:history'))
      t.ok(
        findings.some(({ rule, line }) => rule === 'baked-secret' && line === 2),
        'and its line in the Dockerfile',
      )
    },
  )

  await t.test('the command line says it with its exit status', async (t) => {
    await using scratch = await Scratch.make()
    const dir = join(scratch.path, 'fresh')
    t.equal((await daemon.cli(['task', 'init', dir])).code, 0)
    const again = await daemon.cli(['task', 'init', dir])
    t.match(again, { code: 2, stderr: /is not empty/ })
    const clean = await daemon.cli(['task', 'lint', dir, '--no-image', '--json'])
    t.match(clean, { code: 0 })
    t.match(JSON.parse(clean.stdout), {
      tasks: [{ task: 'example/fresh', findings: { length: 0 } }],
    })
    t.match(
      await daemon.cli(['task', 'lint', dir, '--no-image', '--extend-select', 'root-agent']),
      {
        code: 1,
        stdout: /task\.toml:\d+ +warning root-agent: agent\.user/,
      },
    )
    t.match(await daemon.cli(['task', 'lint', dir, '--ignore', 'no-such-rule']), {
      code: 2,
      stderr: /there is no lint rule "no-such-rule"/,
    })
    const before = await daemon.json(['task', 'show', dir])
    t.match(before, {
      name: 'example/fresh',
      hardware: 'cpu',
      suites: { functional: { expected: { length: 4 } }, regression: { expected: { length: 2 } } },
      qualification: { state: 'unqualified' },
      reviews: { count: 0, current: null },
    })
    const qualified = await daemon.cli(['qualify', dir, '--repeats', '1'])
    t.equal(qualified.code, 0, qualified.stdout + qualified.stderr)
    t.match(await daemon.json(['task', 'show', dir]), { qualification: { state: 'qualified' } })
  })

  for (const id of new Set(built)) await engine.engine.removeImage(id)
})
