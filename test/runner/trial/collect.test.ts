import { Readable } from 'node:stream'
import t from 'tap'
import { applyPatch } from '../../../runner/trial/apply.ts'
import {
  collectPatch,
  defaultCollectLimits,
  type Collected,
} from '../../../runner/trial/collect.ts'
import { readPristine } from '../../../runner/trial/pristine.ts'
import type { Sandbox } from '../../../runner/trial/sandbox.ts'
import { trialEngine } from './engine-sandbox.ts'

const host = await trialEngine()
t.teardown(async () => {
  await pristineSandbox[Symbol.asyncDispose]()
  await host[Symbol.asyncDispose]()
})

/** A repository with everything that could get in the way: attributes, filters, hooks, local edits, built files. */
const image = await host.image(`
mkdir -p /work/src/deep /work/conf && cd /work
git init -q
printf 'one\\ntwo\\nthree\\n' >src/a.txt
printf 'crlf\\r\\nline\\r\\n' >src/crlf.txt
printf '\\0\\1\\2binary\\377' >src/data.bin
printf 'local = 1\\n' >conf/local.ini
ln -s src/a.txt link
ln -s src links-to-dir
printf '#!/bin/sh\\n' >run.sh && chmod +x run.sh
printf 'build/\\n*.pyc\\n.cache\\n' >.gitignore
printf '*.txt text eol=lf\\n*.ini filter=upper ident\\n' >.gitattributes
git -c user.name=a -c user.email=a@b add -A
git -c user.name=a -c user.email=a@b commit -qm base
printf 'local = 2\\n' >conf/local.ini
mkdir build && echo built >build/lib.so && echo note >untracked.md
git init -q nested && echo inner >nested/file
git config filter.upper.clean 'tr a-z A-Z' && git config filter.upper.smudge 'tr a-z A-Z'
git config core.autocrlf true
printf '#!/bin/sh\\ntouch /hook-ran\\n' >.git/hooks/post-checkout && chmod +x .git/hooks/*
`)

const pristineSandbox = await host.sandbox({ image })
const pristine = await readPristine({
  sandbox: pristineSandbox,
  workdir: '/work/src',
  mode: 'patch',
})

const collect = (agent: Sandbox, limits = defaultCollectLimits) =>
  collectPatch({ agent, pristine, limits, pristineSandbox: () => Promise.resolve(pristineSandbox) })

async function collected(agent: Sandbox): Promise<Collected> {
  const outcome = await collect(agent)
  if (!outcome.ok) throw new Error(outcome.failure.message)
  return outcome
}

const changesOf = (outcome: Collected): string[] =>
  outcome.changes.map(
    ({ path, status, mode }) => `${status} ${path}${mode === null ? '' : ` ${mode}`}`,
  )

const evilGit = `
git config core.fsmonitor 'touch /fsmonitor-ran' ; git config core.hooksPath /evil
git config diff.external 'true' ; git config core.attributesFile /evil
printf '* filter=evil diff=evil\\n' >>.git/info/attributes ; git config filter.evil.clean 'echo nothing'
printf '*\\n' >.git/info/exclude ; printf '*\\n' >~/.gitignore ; git config --global core.excludesFile ~/.gitignore
printf '#!/bin/sh\\nexit 0\\n' >/usr/local/bin/git ; chmod +x /usr/local/bin/git
`

/** What the agent does in /work; the changes; what is named as ignored or skipped. */
type Row = [name: string, script: string, changes: string[], named?: string[]]
const rows: readonly Row[] = [
  ['nothing', 'true', []],
  [
    'touched times, ownership and other permission bits',
    'touch -d 2001-01-01 src/a.txt; chmod 600 src/crlf.txt; chmod 711 src',
    [],
  ],
  [
    'an edit, a deletion, a new file',
    'echo four >>src/a.txt; rm src/data.bin; echo new >src/new.py',
    ['modified src/a.txt 100644', 'deleted src/data.bin', 'added src/new.py 100644'],
  ],
  [
    'what git add and commit did, or a deleted .git',
    'echo x >src/c; git add -A; git -c user.name=a -c user.email=a@b commit -qm x; rm -rf .git',
    ['added src/c 100644'],
  ],
  [
    'a repository with other configuration, hooks, attributes and ignore rules, and another git',
    `${evilGit} echo y >>src/a.txt; echo z >src/z.txt; printf '*\\n' >src/.gitignore`,
    ['added src/.gitignore 100644', 'modified src/a.txt 100644', 'added src/z.txt 100644'],
  ],
  [
    'line ends and filters leave the bytes alone',
    "printf 'a\\r\\nb\\n' >src/crlf.txt; printf 'lower $Id$\\n' >conf/local.ini",
    ['modified conf/local.ini 100644', 'modified src/crlf.txt 100644'],
  ],
  [
    'binary and empty files, NUL and long lines',
    "head -c 300000 /dev/urandom >r.bin; : >empty; head -c 200000 /dev/zero | tr '\\0' x >long",
    ['added empty 100644', 'added long 100644', 'added r.bin 100644'],
  ],
  [
    'modes and links',
    'chmod +x src/a.txt; chmod -x run.sh; ln -sfn /etc/shadow link; ln -s "no where" dangling',
    [
      'added dangling 120000',
      'modified link 120000',
      'modified run.sh 100644',
      'modified src/a.txt 100755',
    ],
  ],
  [
    'hard links are files of their own',
    'ln src/a.txt src/hard; echo more >>src/hard; ln .git/config stolen',
    ['modified src/a.txt 100644', 'added src/hard 100644', 'added stolen 100644'],
  ],
  [
    'a file that became a directory, and the other way round',
    'rm src/a.txt; mkdir src/a.txt; echo x >src/a.txt/x; rm -r conf; echo y >conf; rm links-to-dir; mkdir links-to-dir; echo q >links-to-dir/q',
    [
      'added conf 100644',
      'deleted conf/local.ini',
      'deleted links-to-dir',
      'added links-to-dir/q 100644',
      'deleted src/a.txt',
      'added src/a.txt/x 100644',
    ],
  ],
  [
    'ignored files are left out and named, tracked or not',
    'echo 2 >>build/lib.so; echo o >build/o.o; mkdir x; echo c >x/m.pyc; echo d >.cache',
    [],
    ['build/lib.so', 'build/o.o', 'x/m.pyc', '.cache'],
  ],
  [
    'an ignored file in the way of the patch goes',
    'rm -r build; echo file >build',
    ['added build 100644', 'deleted build/lib.so'],
  ],
  [
    'untracked files of the image count as its own',
    'echo edit >>untracked.md; rm conf/local.ini; echo x >>nested/file',
    ['deleted conf/local.ini', 'modified nested/file 100644', 'modified untracked.md 100644'],
  ],
  [
    'a new repository inside is a directory of files',
    'git init -q inner; echo f >inner/f; (cd inner; git -c user.name=a -c user.email=a@b add f)',
    ['added inner/f 100644'],
  ],
  [
    'any name',
    `touch -- 'sp ace' ' lead' 'trail ' $'new\\nline' 'qu"ote' 'back\\slash' ':(glob)*' '-x' '*' '[a]' $'\\xff\\xfe' $'tab\\t' é '#x' '!x' $'ctrl\\x01' 'a => b' 'con:' 'git~1'; mkdir -p 'src /b'; echo 1 >'src /b/c '`,
    [
      'added  lead 100644',
      'added !x 100644',
      'added "\\377\\376" 100644',
      'added "back\\\\slash" 100644',
      'added "ctrl\\001" 100644',
      'added "new\\nline" 100644',
      'added "qu\\"ote" 100644',
      'added "tab\\t" 100644',
      'added #x 100644',
      'added * 100644',
      'added -x 100644',
      'added :(glob)* 100644',
      'added [a] 100644',
      'added a => b 100644',
      'added con: 100644',
      'added git~1 100644',
      'added sp ace 100644',
      'added src /b/c  100644',
      'added trail  100644',
      'added é 100644',
    ],
  ],
  [
    'pipes, sockets and names that git refuses are skipped and named',
    'mkfifo pipe; mkdir .GIT; echo x >.GIT/x; ln -s x .gitmodules; python3 -c "import socket; socket.socket(socket.AF_UNIX).bind(\'/work/sock\')"',
    [],
    ['.GIT/x', '.gitmodules', 'pipe'],
  ],
  [
    'more files than fit into one reading each',
    'mkdir many; for n in $(seq 200); do echo $n >many/$n; done; rm many/1',
    Array.from({ length: 199 }, (_, n) => `added many/${n + 2} 100644`).sort(),
  ],
  [
    'an unreadable file is read all the same',
    'echo secret >locked; echo x >>src/a.txt; chmod 000 locked src/a.txt',
    ['added locked 100644', 'modified src/a.txt 100644'],
  ],
]

for (const [name, script, changes, named = []] of rows)
  t.test(`collects and applies exactly: ${name}`, async (t) => {
    await using agent = await host.sandbox({ image })
    await agent.sh(`cd /work\n${script}`)
    const outcome = await collected(agent)
    t.same(changesOf(outcome).sort(), [...changes].sort())
    t.same(
      [...outcome.ignored, ...outcome.skipped.map(({ path }) => path)].sort(),
      named.toSorted(),
    )
    t.equal(outcome.empty, changes.length === 0)
    t.equal(outcome.patch.length === 0, changes.length === 0)
    await using verifier = await host.sandbox({ image })
    t.same(await applyPatch({ sandbox: verifier, ...outcome, git: pristine.git }), { ok: true })
    const again = await collected(verifier)
    t.equal(again.treeId, outcome.treeId, 'the verifier has the tree that was collected')
    t.ok(again.patch.equals(outcome.patch), 'and gives the same patch')
    await verifier.sh('[ ! -e /hook-ran ] && [ ! -e /fsmonitor-ran ]')
  })

t.test('nothing is left behind in the pristine container', async (t) => {
  t.equal(await pristineSandbox.sh('ls -A /tmp /var/tmp | grep -v :'), '\n')
  const state = 'cd /work; git status --short; ls -lR'
  await using fresh = await host.sandbox({ image })
  t.equal(await pristineSandbox.sh(state), await fresh.sh(state))
})

/** What the agent does, the code of its failure. */
const failures: readonly (readonly [string, string, string])[] = [
  ['the tree is gone', 'cd /; rm -rf /work', 'workdir_missing'],
  ['the tree is a file', 'cd /; rm -rf /work; echo x >/work', 'workdir_replaced'],
  [
    'the tree is a link to another',
    'cd /; mv /work /elsewhere; ln -s /elsewhere /work',
    'workdir_replaced',
  ],
  [
    'the tree is a link to itself',
    'cd /; rm -rf /work; ln -s work /work',
    'workdir_replaced workdir_unreadable',
  ],
  ['the tree is a pipe', 'cd /; rm -rf /work; mkfifo /work', 'workdir_replaced'],
  ['a sparse file of a terabyte', 'truncate -s 1T huge', 'tree_too_large'],
  ['too many files', 'mkdir m; cd m; seq 2100 | xargs touch', 'tree_too_large'],
  [
    'changed files beyond what a patch may hold',
    'head -c 3000000 /dev/urandom >src/big',
    'patch_too_large',
  ],
]

for (const [name, script, code] of failures)
  t.test(`is the agent's failure: ${name}`, async (t) => {
    await using agent = await host.sandbox({ image })
    await agent.sh(`cd /work\n${script}`)
    const outcome = await collect(agent, {
      addedEntries: 2000,
      addedBytes: 64 * 1024 ** 2,
      changedBytes: 2 * 1024 ** 2,
    })
    t.ok(!outcome.ok && code.split(' ').includes(outcome.failure.code), JSON.stringify(outcome))
    if (!outcome.ok) t.notMatch(outcome.failure.message, /merged|overlay/, 'no path of the host')
  })

t.test('a sandbox that is gone is a fault of infrastructure', async (t) => {
  const agent = await host.sandbox({ image })
  await agent[Symbol.asyncDispose]()
  await t.rejects(collect(agent), { blame: 'infra', code: 'container_gone' })
})

t.test('a transfer that breaks off is a fault of infrastructure, at either reading', async (t) => {
  await using agent = await host.sandbox({ image })
  await agent.sh(
    'cd /work; head -c 200000 /dev/urandom >src/new; for n in $(seq 40); do echo $n >src/$n; done',
  )
  for (const breakAt of [1, 2]) {
    let reading = 0
    const cut: Sandbox = {
      lease: agent.lease,
      exec: (start, io) => agent.exec(start, io),
      writeArchive: (path, tar) => agent.writeArchive(path, tar),
      readArchive: async (path, options) => {
        reading += 1
        const { kind, tar } = await agent.readArchive(path, options)
        if (breakAt === 2 && reading === 1) return { kind, tar }
        let left = 100_000
        const short = async function* () {
          for await (const chunk of tar as AsyncIterable<Buffer>) {
            yield chunk.subarray(0, left)
            left -= chunk.length
            if (left <= 0) return
          }
        }
        return { kind, tar: Readable.from(short()) }
      },
    }
    await t.rejects(collect(cut), { blame: 'infra', code: 'transfer_failed' })
  }
})

t.test('the base is read only while git runs: an archive keeps all else waiting', async (t) => {
  await using agent = await host.sandbox({ image })
  await agent.sh('cd /work; echo four >>src/a.txt')
  const seen: string[] = []
  const sandbox: Sandbox = {
    lease: pristineSandbox.lease,
    exec: (start, io = {}) => {
      const onStdout = (bytes: Buffer): void => {
        seen.push('said')
        io.onStdout?.(bytes)
      }
      return pristineSandbox.exec(start, { ...io, onStdout })
    },
    readArchive: (path, options) => {
      seen.push(`read ${path}`)
      return pristineSandbox.readArchive(path, options)
    },
    writeArchive: (path, tar, options) => pristineSandbox.writeArchive(path, tar, options),
  }
  const from = { agent, pristine, pristineSandbox: () => Promise.resolve(sandbox) }
  t.match(await collectPatch(from), { ok: true, empty: false })
  t.strictSame(seen.slice(0, 2), ['said', 'read /work/src/a.txt'])

  const broken = { ...pristine, git: '/bin/false' }
  await t.rejects(collectPatch({ ...from, pristine: broken }), { code: 'collect_failed' })
})

t.test(
  'the image must have the directory, git, a repository and the commit that the task names',
  async (t) => {
    await using bare = await host.sandbox()
    const read = (workdir: string, baseCommit?: string, sandbox: Sandbox = bare) =>
      readPristine({
        sandbox,
        workdir,
        mode: 'patch',
        ...(baseCommit === undefined ? {} : { baseCommit }),
      })
    const task = { blame: 'task', code: 'collect_failed' }
    await t.rejects(read('/nowhere'), { ...task, message: /no directory \/nowhere/ })
    await t.rejects(read('/etc'), { ...task, message: /not in a git repository/ })
    await t.rejects(read('/work', '0'.repeat(40), pristineSandbox), {
      ...task,
      message: /base_commit/,
    })
    t.equal((await read('/work', pristine.head ?? '', pristineSandbox)).head, pristine.head)
    await bare.sh('mkdir /e; cd /e; git init -q')
    await t.rejects(read('/e'), { ...task, message: /has no commit/ })
    await bare.sh('mv /usr/bin/git /usr/bin/tig')
    await t.rejects(read('/etc'), { ...task, message: /no git/ })
  },
)

t.test('a snapshot needs no repository, and knows no ignore rules', async (t) => {
  const plain = await host.image(
    'mkdir /app; echo 1 >/app/keep; echo 2 >/app/edit; printf "*\\n" >/app/.gitignore',
  )
  await using base = await host.sandbox({ image: plain })
  await using agent = await host.sandbox({ image: plain })
  await using verifier = await host.sandbox({ image: plain })
  const before = await readPristine({ sandbox: base, workdir: '/app', mode: 'snapshot' })
  await agent.sh('cd /app; echo 3 >>edit; mkdir out; echo o >out/new')
  const outcome = await collectPatch({
    agent,
    pristine: before,
    pristineSandbox: () => Promise.resolve(base),
  })
  if (!outcome.ok) throw new Error(outcome.failure.message)
  t.same(changesOf(outcome), ['modified edit 100644', 'added out/new 100644'])
  t.same(await applyPatch({ sandbox: verifier, ...outcome, git: before.git }), { ok: true })
  t.equal(await verifier.sh('cd /app; cat edit out/new'), '2\n3\no\n')
})

t.test('a patch is applied exactly or not at all', async (t) => {
  await using agent = await host.sandbox({ image })
  await agent.sh('cd /work; echo four >>src/a.txt; echo new >src/new')
  const outcome = await collected(agent)
  await using verifier = await host.sandbox({ image })
  await verifier.sh('cd /work; echo in the way >src/new')
  const refused = await applyPatch({ sandbox: verifier, ...outcome, git: pristine.git })
  t.match(refused, { ok: false, failure: { code: 'patch_unusable' } })
  await verifier.sh('cd /work; rm src/new; [ "$(wc -l <src/a.txt)" = 3 ]')
  const changes = outcome.changes.map((change) => ({ ...change, blob: '0'.repeat(40) }))
  await t.rejects(applyPatch({ sandbox: verifier, ...outcome, changes, git: pristine.git }), {
    code: 'verify_failed',
    blame: 'infra',
  })
})
