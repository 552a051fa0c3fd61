/** The rules over a task's files, one small task a row; what is right beside what is wrong. */
import { mkdir, readFile, rm, symlink } from 'node:fs/promises'
import { join } from 'node:path'
import t from 'tap'
import { initTask } from '../../../../runner/task/init/init.ts'
import { lintTask } from '../../../../runner/task/lint/lint.ts'
import { isUnpinned, unpinnedRequirements } from '../../../../runner/task/lint/python-packages.ts'
import { ruleNames } from '../../../../runner/task/lint/rules.ts'
import { secretInSetting, secretsIn } from '../../../../runner/task/lint/secrets.ts'
import { commandsOf, logicalLines } from '../../../../runner/task/lint/shell-text.ts'
import { lineOfKey } from '../../../../runner/task/toml-lines.ts'
import { linted as sample, mistakes, noMistakes } from '../../support/linted-tasks.ts'
import { failureOf, Scratch } from '../../support/scratch.ts'

const found = async (dir: string, extendSelect: string[] = []): Promise<string[]> =>
  (await lintTask(dir, { image: null, extendSelect })).findings.map(
    ({ rule, file, line, message }) =>
      `${rule} ${file}${line === null ? '' : `:${line}`} ${message}`,
  )

void t.test('each mistake is found, with its line', async (t) => {
  for (const [what, files, finding, extend] of mistakes) {
    await using scratch = await Scratch.make()
    const dir = await sample(scratch)
    for (const [path, text] of Object.entries(files)) await scratch.write(path, text)
    const all = await found(dir, extend)
    t.ok(
      all.some((one) => finding.test(one)),
      `${what}\n${all.join('\n')}`,
    )
  }
})

void t.test('what is right stays unsaid', async (t) => {
  for (const [what, files] of noMistakes) {
    await using scratch = await Scratch.make()
    const dir = await sample(scratch)
    for (const [path, text] of Object.entries(files)) await scratch.write(path, text)
    t.same(await found(dir), [], what)
  }
  await using scratch = await Scratch.make()
  const dir = join(scratch.path, 'New Task')
  await initTask(dir, { area: 'cache-systems', hardware: 'h100' })
  t.same(await found(dir), [], 'the template')
})

void t.test('missing files, links and special cases are named', async (t) => {
  await using scratch = await Scratch.make()
  const dir = join(scratch.path, 'empty')
  await mkdir(dir)
  t.match((await found(dir)).join('\n'), /task\.toml missing; `closedbook task init`/)
  await using other = await Scratch.make()
  await sample(other)
  await rm(join(other.path, 'solution'), { recursive: true })
  await mkdir(join(other.path, 'environment/data'))
  await symlink('/etc', join(other.path, 'environment/data/etc'))
  await other.write(
    'environment/compose.yaml',
    'services: { a: { volumes: ["./data/etc:/etc:ro"] } }\n',
  )
  const all = (await found(other.path)).join('\n')
  t.match(all, /missing-solution solution\/solve\.sh missing; without an oracle/)
  t.match(all, /compose-symlink-bind-mount environment\/compose\.yaml/)
  t.match(all, /(?:invalid-task-files|invalid-task-config|unsupported-feature) .*data\/etc/)
  t.match(await failureOf(() => lintTask(join(dir, 'nowhere'), { image: null })), {
    code: 'usage',
    message: /no such task directory/,
  })
})

void t.test('rules are chosen by name, and by file', async (t) => {
  await using scratch = await Scratch.make()
  const dir = await sample(scratch)
  await scratch.write('tests/check.sh', '#!/bin/sh\npip install pytest\n')
  const names = async (options: object): Promise<string[]> =>
    (await lintTask(dir, { image: null, ...options })).findings.map(({ rule }) => rule)
  t.same(await names({}), ['unpinned-python-dependency', 'verifier-runtime-install'])
  t.same(await names({ ignore: ['verifier-runtime-install:tests/*.sh'] }), [
    'unpinned-python-dependency',
  ])
  t.same(await names({ ignore: ['verifier-runtime-install:solution/*'] }), [
    'unpinned-python-dependency',
    'verifier-runtime-install',
  ])
  t.same(await names({ select: ['root-agent'] }), ['root-agent'])
  t.same(
    await names({ select: ['ALL'], ignore: ruleNames.filter((name) => name !== 'root-agent') }),
    ['root-agent'],
  )
  t.match(await failureOf(() => names({ select: ['nothing'] })), { code: 'usage' })
  const page = await readFile(new URL('../../../../docs/lint.md', import.meta.url), 'utf8')
  const rows = [...page.matchAll(/^\| `([a-z-]+)` +\|/gm)].map((match) => match[1] ?? '')
  t.same(rows.toSorted(), ruleNames.toSorted(), 'the page has every rule')
})

void t.test('the readers underneath', (t) => {
  t.same(
    [...logicalLines('a \\\n  b\n# c\ncat <<X\nd\nX\ne')],
    [
      { line: 1, text: 'a   b' },
      { line: 4, text: 'cat <<X' },
      { line: 7, text: 'e' },
    ],
    'lines are joined; comments and here-documents are left out',
  )
  t.same(
    commandsOf(`A=1 x "y z" 2>&1 | sh -c 'q; r' && exit # done`).map(({ words, separator }) => [
      ...words,
      separator,
    ]),
    [
      ['x', 'y z', '2>&1', '|'],
      ['sh', '-c', 'q; r', '&&'],
      ['exit', ''],
    ],
  )
  for (const [requirement, loose] of [
    ['a', true],
    ['a>=1', true],
    ['a==1.*', true],
    ['a==1.0', false],
    ['a[b]==1.0; python_version>"3"', false],
    ['git+https://x.example/y@main', true],
    [`git+https://x.example/y@${'a'.repeat(40)}`, false],
    ['./local', false],
    ['$PKG', false],
  ] as const)
    t.equal(isUnpinned(requirement), loose, requirement)
  t.same(unpinnedRequirements('# x\na==1\n-r other\nb~=2  # why\n'), [
    { line: 4, requirement: 'b~=2' },
  ])
  t.equal(
    lineOfKey('[a]\nx = """\n[b]\ny = 1\n"""\n[[c]]\nz = 1\n[[c]]\nz = 2\n', ['c', 1, 'z']),
    9,
  )
  t.equal(lineOfKey('[a]\nt = { u = 1 }\n', ['a', 't', 'u']), 2)
  t.equal(lineOfKey('[a]\n', ['a', 'gone']), 1, 'the nearest table')

  const key = ['-----BEGIN RSA PRIVATE', `KEY-----\n${'Ab3'.repeat(20)}\n`].join(' ')
  t.equal(secretsIn(key).length, 1)
  t.equal(secretsIn(`AKIA${'IOSFODNN7EXAMPLE'}`).length, 0, 'the example of the manuals')
  for (const [name, value, secret] of [
    ['HF_TOKEN', 'Zk3vQ9wLr8Tn', true],
    ['OPENAI_API_KEY', 'EMPTY', false],
    ['TOKENIZERS_PARALLELISM', 'false-ish-value', false],
    ['SECRET_FILE', '/run/secrets/x', false],
    ['PASSWORD', '${DB_PASSWORD}', false],
  ] as const)
    t.equal(secretInSetting(name, value), secret, name)
  t.end()
})
