/** A small task with a repository of its own, and every kind of leak to hide in its image, with the finding that each earns. */
import { execFileSync } from 'node:child_process'
import { mkdir, readFile, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { buffer } from 'node:stream/consumers'
import { gzipSync } from 'node:zlib'
import tar from 'tar-stream'
import type { Scratch } from './scratch.ts'

const body = (name: string, count: number): string =>
  Array.from(
    { length: count },
    (_, n) =>
      `def test_${name}_number_${n}(ledger):\n    assert ledger.${name}(${n * 7}) == ${n * n + 3}\n\n`,
  ).join('\n')
const hidden = `"""Hidden checks of the ledger."""\n\n${body('balance_after_transfer', 6)}`
const regression = `"""What stays."""\n\n${body('opening_of_account', 6)}`
const solution = Array.from(
  { length: 12 },
  (_, n) => `echo 'rule ${n}: carry ${n * 13} over to the next page' >>ledger.txt`,
).join('\n')
/** Made up here, so that no file of ours holds one. */
export const token = ['ghp', 'Zk3vQ9wLr8TnB5xYc2MdH7sPf4JgA6uE1oR0'].join('_')
export const providerKey = ['sk-proj', 'Aq81Zx9LmW3kT7vBnR5cYd2HsPf6JgUe4oQ0'].join('-')

export const toml = `schema_version = "1.4"
[task]
name = "org/ledger"
[environment]
workdir = "/work/project"
[closedbook]
workdir = "/work/project"
area = "public-api"
source = { kind = "own", ref = "a test" }
[closedbook.functional]
command = "python3 -m pytest --junitxml={results} /tests/functional"
expected = ["functional.test_ledger::test_a"]
[closedbook.regression]
command = "python3 -m pytest --junitxml={results} /tests/regression"
expected = ["regression.test_ledger::test_b"]
`

export function git(directory: string, date: string, ...args: string[]): string {
  return execFileSync('git', ['-c', 'user.name=a', '-c', 'user.email=a@example.com', ...args], {
    cwd: directory,
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'ignore'],
    env: {
      PATH: process.env['PATH'],
      GIT_CONFIG_GLOBAL: '/dev/null',
      GIT_CONFIG_SYSTEM: '/dev/null',
      GIT_AUTHOR_DATE: date,
      GIT_COMMITTER_DATE: date,
    },
  }).trim()
}

export const then = '2026-01-01T00:00:00Z'
export const later = '2026-03-01T00:00:00Z'

export async function project(scratch: Scratch): Promise<string> {
  const directory = join(scratch.path, 'environment/project')
  await scratch.write('environment/project/ledger.py', 'def balance():\n    return 0\n')
  await scratch.write('environment/project/src/page.py', 'def page():\n    return "first page"\n')
  git(directory, then, 'init', '-q', '-b', 'main', '--template=')
  git(directory, then, 'add', '-A')
  git(directory, then, 'commit', '-q', '-m', 'base')
  git(directory, then, 'tag', 'v1.0')
  return directory
}

export async function ledgerTask(scratch: Scratch, dockerfile: string): Promise<string> {
  await scratch.write('task.toml', toml)
  await scratch.write(
    'instruction.md',
    'Write `src/book.py` in `/work/project`; it answers `/v1/balance`. See `/work/project/src/page.py`.\n',
  )
  await scratch.write('tests/functional/test_ledger.py', hidden)
  await scratch.write('tests/regression/test_ledger.py', regression)
  await scratch.write('solution/solve.sh', `#!/bin/sh\n${solution}\n`, 0o755)
  await scratch.write('environment/Dockerfile', dockerfile)
  return scratch.path
}

/** A commit on top of the base that nothing will name; the work tree stays as it was. */
function future(directory: string, subject: string, date = later): string {
  const tree = git(directory, date, 'rev-parse', 'HEAD^{tree}')
  return git(directory, date, 'commit-tree', tree, '-p', 'HEAD', '-m', subject)
}

async function seedRepository(scratch: Scratch): Promise<void> {
  const directory = await project(scratch)
  const dot = join(directory, '.git')
  git(directory, later, 'tag', '-a', 'v2.0', '-m', 'release', future(directory, 'tagged future'))
  git(directory, later, 'update-ref', 'refs/heads/packed', future(directory, 'packed future'))
  git(
    directory,
    later,
    'update-ref',
    'refs/remotes/origin/main',
    future(directory, 'remote future'),
  )
  git(directory, later, 'pack-refs', '--all')
  await writeFile(join(directory, 'ledger.py'), 'def balance():\n    return "stashed answer"\n')
  git(directory, later, 'stash')
  git(directory, later, 'notes', 'add', '-m', 'how it was solved', 'HEAD')
  git(directory, later, 'replace', 'HEAD', future(directory, 'another history'))
  git(
    directory,
    later,
    'remote',
    'add',
    'origin',
    'https://build:Wq81kd92LsX0@git.example.net/ledger.git',
  )
  const gone = future(directory, 'rewound future')
  const log = join(dot, 'logs/HEAD')
  await writeFile(
    log,
    `${await readFile(log, 'utf8')}${gone} ${gone} a <a@example.com> 1 +0000\treset\n`,
  )
  await writeFile(
    join(dot, 'FETCH_HEAD'),
    `${future(directory, 'fetched future')}\t\tbranch 'main'\n`,
  )
  // The last in time, so that it is shown by name; packed, so that no loose object gives it away.
  future(directory, 'the dangling future', '2026-04-01T00:00:00Z')
  git(directory, later, 'worktree', 'add', '-q', join(scratch.path, 'gone'), 'HEAD')
  git(directory, later, 'hash-object', '-w', join(scratch.path, 'tests/functional/test_ledger.py'))
  git(directory, later, '-c', 'gc.auto=0', 'repack', '-q', '-a', '-d', '-k')
  await writeFile(join(directory, 'src/page.py'), 'def page():\n    return "edited"\n')
  await mkdir(join(dot, 'objects/info'), { recursive: true })
  await writeFile(join(dot, 'objects/info/alternates'), '/srv/mirror/objects\n')
  // The same history once more, where nobody looks.
  git(
    scratch.path,
    later,
    'clone',
    '-q',
    '--bare',
    '--no-hardlinks',
    directory,
    join(scratch.path, 'environment/mirror'),
  )
  await rm(join(scratch.path, 'gone'), { recursive: true })
}

/** A zip of one stored file: what a wheel is. */
function zip(name: string, text: string): Buffer {
  const data = Buffer.from(text)
  const local = Buffer.alloc(30)
  local.writeUInt32LE(0x04034b50)
  local.writeUInt32LE(data.length, 18)
  local.writeUInt32LE(data.length, 22)
  local.writeUInt16LE(name.length, 26)
  const central = Buffer.alloc(46)
  central.writeUInt32LE(0x02014b50)
  central.writeUInt32LE(data.length, 20)
  central.writeUInt32LE(data.length, 24)
  central.writeUInt16LE(name.length, 28)
  const end = Buffer.alloc(22)
  end.writeUInt32LE(0x06054b50)
  end.writeUInt16LE(1, 10)
  end.writeUInt32LE(30 + name.length + data.length, 16)
  return Buffer.concat([local, Buffer.from(name), data, central, Buffer.from(name), end])
}

async function tarball(name: string, text: string): Promise<Buffer> {
  const pack = tar.pack()
  pack.entry({ name }, text)
  pack.finalize()
  return gzipSync(await buffer(pack))
}

const names = [...hidden.matchAll(/def (\w+)/g)].map((match) => match[1] ?? '')

export async function seed(scratch: Scratch, base: string): Promise<string> {
  const dir = await ledgerTask(
    scratch,
    `FROM ${base}
COPY project /work/project
COPY mirror /opt/mirror.git
COPY site /usr/lib/python3/dist-packages
COPY answer /opt/notes
COPY lower /srv
RUN rm -r /srv/secret /srv/checks.txt
ENV HTTP_PROXY=http://198.51.100.7:3128 DEPLOY_TOKEN=Wq81kd92LsX0
COPY profile /etc/profile
COPY netrc /root/.netrc
COPY apt /etc/apt/apt.conf.d/proxy
`,
  )
  await seedRepository(scratch)
  const site = 'environment/site'
  await scratch.write(`${site}/ledger/test_ledger.py`, hidden)
  await scratch.write(`${site}/ledger/checks.py`, `# vendored\n${hidden.replace('Hidden', 'Some')}`)
  await scratch.write(
    `${site}/ledger/__pycache__/checks.cpython-313.pyc`,
    Buffer.from(
      `\xf3\0\0\0${names.map((name) => `\xda${String.fromCharCode(name.length)}${name}\0`).join('')}`,
      'latin1',
    ),
  )
  await scratch.write(`${site}/ledger-1.0.whl`, zip('ledger/inner.py', hidden))
  await scratch.write(
    'environment/answer/old.tar.gz',
    await tarball('deep/solve.sh', `#!/bin/sh\n${solution}\n`),
  )
  await scratch.write(
    'environment/answer/fix.patch',
    `--- a/solve.sh\n+++ b/solve.sh\n@@ -1 +1 @@\n${solution.replace(/^/gm, '+')}\n`,
  )
  await scratch.write(
    'environment/answer/old.tar.xz',
    Buffer.from('\xfd7zXZ\0 and so on', 'latin1'),
  )
  git(
    join(scratch.path, 'environment/mirror'),
    later,
    'bundle',
    'create',
    join(scratch.path, 'environment/answer/all.bundle'),
    '--branches',
  )
  await scratch.write('environment/lower/secret/key', `token: ${token}\n`)
  await scratch.write('environment/lower/checks.txt', regression)
  await scratch.write('environment/apt', 'Acquire::http::Proxy "http://198.51.100.7:3128";\n')
  await scratch.write('environment/profile', 'echo welcome\n')
  await scratch.write(
    'environment/netrc',
    'machine git.example.net login a password Wq81kd92LsX0\n',
  )
  await scratch.write(
    'instruction.md',
    'See `/work/project/doc/rules/book.md`; the notes are in `src/deep/er/x.py`.\n',
  )
  return dir
}

/** What was hidden; the rule, where, and what is said. */
export const leaks: readonly (readonly [string, string, RegExp, RegExp])[] = [
  ['a future tag', 'git-future-ref', /project\/\.git/, /tag v2\.0/],
  ['a branch in packed-refs', 'git-future-ref', /project\/\.git/, /branch packed \(packed-refs\)/],
  ['a remote branch', 'git-future-ref', /project\/\.git/, /remote branch origin\/main/],
  ['a packed dangling commit', 'git-unreachable-object', /project\/\.git/, /"the dangling future"/],
  ['a stash', 'git-stash', /project\/\.git/, /stash/],
  ['notes', 'git-notes', /project\/\.git/, /notes commits/],
  ['a replace ref', 'git-replace', /project\/\.git/, /replace ref/],
  ['a reflog entry', 'git-reflog', /project\/\.git/, /logs\/HEAD/],
  ['FETCH_HEAD', 'git-pseudo-ref', /project\/\.git/, /FETCH_HEAD/],
  ['a worktree', 'git-worktree', /project\/\.git/, /worktree gone/],
  ['alternates', 'git-alternates', /project\/\.git/, /\/srv\/mirror\/objects/],
  ['a remote', 'git-remote', /project\/\.git/, /origin \(https:\/\/…@git\.example\.net/],
  ['an edited file', 'git-dirty', /work\/project/, /src\/page\.py/],
  [
    'a blob with the test',
    'git-answer-object',
    /project\/\.git/,
    /tests\/functional\/test_ledger\.py/,
  ],
  ['a bare clone elsewhere', 'git-future-ref', /opt\/mirror\.git/, /v2\.0/],
  [
    'a test under site-packages',
    'test-in-image',
    /dist-packages\/ledger\/test_ledger\.py/,
    /a copy of tests\/functional/,
  ],
  [
    'an edited copy of a test',
    'test-in-image',
    /ledger\/checks\.py/,
    /telling places of tests\/functional/,
  ],
  ['a compiled test', 'test-in-image', /checks\.cpython-313\.pyc/, /is compiled from/],
  [
    'a test in a wheel',
    'test-in-image',
    /ledger-1\.0\.whl!\/ledger\/inner\.py/,
    /tests\/functional/,
  ],
  [
    'a test that a later layer removed',
    'test-in-image',
    /srv\/checks\.txt/,
    /a later layer removed it/,
  ],
  ['the solution as a patch', 'solution-in-image', /notes\/fix\.patch/, /solve\.sh/],
  ['a git bundle', 'git-other-repository', /notes\/all\.bundle/, /bundle/],
  ['an archive that nobody opens', 'not-inspected', /notes\/old\.tar\.xz/, /packed by xz/],
  [
    'the solution in a tarball',
    'solution-in-image',
    /old\.tar\.gz!+\/deep\/solve\.sh/,
    /solve\.sh/,
  ],
  [
    'a token that a later layer removed',
    'baked-secret',
    /srv\/secret\/key/,
    /GitHub token.*later layer removed/,
  ],
  ['a password of a remote', 'baked-secret', /project\/\.git\/config/, /password in a URL/],
  ['a netrc', 'baked-secret', /root\/\.netrc/, /netrc/],
  ['a secret in the environment', 'baked-secret', /env/, /DEPLOY_TOKEN/],
  ['a proxy in the environment', 'baked-proxy', /env/, /HTTP_PROXY/],
  ['a proxy of apt', 'baked-proxy', /apt\.conf\.d\/proxy/, /proxy of the build host/],
  ['a shell that greets', 'noisy-shell', /bash/, /"welcome"/],
  ['a path that is not there', 'instruction-path', /instruction\.md/, /doc\/rules\/book\.md/],
  [
    'a relative path that is not there',
    'instruction-path',
    /instruction\.md/,
    /src\/deep\/er\/x\.py/,
  ],
]
