import { chmod, cp, symlink, utimes, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import t from 'tap'
import { RunnerError } from '../../../runner/errors.ts'
import { requireHardware } from '../../../runner/task/hardware.ts'
import { loadTask, withoutCanary } from '../../../runner/task/load.ts'
import { Random } from '../support/random.ts'
import { Scratch, failureOf } from '../support/scratch.ts'
import { badTasks, image, sample, toml } from '../support/tasks.ts'

void t.test('a task is read with its defaults filled in', async (t) => {
  await using scratch = await Scratch.make()
  const task = await loadTask(await sample(scratch))
  t.match(task, {
    name: 'org/sample',
    area: 'public-api',
    hardware: 'cpu',
    workdir: '/workspace',
    baseCommit: null,
    verify: 'patch',
    instruction: 'Do the work.\n',
    image: { kind: 'dockerfile', context: join(task.dir, 'environment') },
    suites: {
      functional: { command: 'pytest /tests/functional', results: 'junit', timeoutSeconds: 600 },
      regression: { command: 'pytest /tests/regression', timeoutSeconds: 30 },
    },
    solution: { script: 'solve.sh' },
    agent: { timeoutSeconds: null },
  })
  for (const digest of [task.digest, task.testsDigest, task.instructionDigest])
    t.match(digest, /^sha256:[0-9a-f]{64}$/)
})

void t.test('a Harbor task without our section is read as Harbor runs it', async (t) => {
  await using scratch = await Scratch.make()
  const text = `version = "1.0"
unknown_to_us = 3
[metadata]
anything = ["goes"]
[environment]
memory = "2G"
storage = "512M"
env = { A = "1", B = "\${HOST:-fallback}" }
[verifier]
timeout_sec = 90.0
`
  const task = await loadTask(await sample(scratch, text), {
    harbor: { network: 'closed-book', hostEnv: [] },
  })
  t.match(task, {
    verify: 'snapshot',
    snapshotOf: 'container',
    network: { asked: 'public', hosts: { length: 0 } },
    suites: { functional: { results: 'reward', timeoutSeconds: 90 }, regression: null },
    environment: {
      env: { A: '1', B: 'fallback' },
      resources: { memoryBytes: 2 * 1024 ** 3, diskBytes: 512 * 1024 ** 2 },
    },
  })
  t.match(task.notes.join(), /no \[closedbook\] section/)
})

const commit = 'b'.repeat(40)
void t.test('everything of our section that the format knows is read', async (t) => {
  await using scratch = await Scratch.make()
  const dir = await sample(
    scratch,
    `artifacts = ["/out"]
[closedbook]
hardware = "h100"
image = "${image}"
workdir = "/w"
base_commit = "${commit}"
verify = "artifacts"
source = { kind = "own", ref = "r" }
capabilities = ["CHOWN"]
pids = 64
shm_mb = 8
[[closedbook.huggingface]]
repo = "Owner/Name"
revision = "${commit}"
files = ["*.json"]
[closedbook.functional]
command = "x"
results = "tap"
expected_file = "expected.txt"
`,
  )
  await scratch.write('expected.txt', '# ids\na::b\n\n c::d \n')
  t.match(await loadTask(dir), {
    hardware: 'h100',
    image: { kind: 'reference', reference: image },
    baseCommit: commit,
    verify: 'artifacts',
    artifacts: [{ source: '/out', exclude: { length: 0 } }],
    source: { kind: 'own', ref: 'r' },
    huggingface: [{ repo: 'Owner/Name', revision: commit, files: ['*.json'] }],
    suites: { functional: { results: 'tap', expected: ['a::b', 'c::d'] }, regression: null },
    environment: { capabilities: ['CHOWN'], resources: { pids: 64, shmBytes: 8 * 1024 ** 2 } },
  })
})

void t.test('what is wrong with a task is said with file, key and fix', async (t) => {
  for (const [what, bend, message, code = 'task_invalid'] of badTasks) {
    await using scratch = await Scratch.make()
    const dir = await sample(scratch)
    await bend(dir, scratch)
    const error = await failureOf(() => loadTask(dir))
    t.match(error.message, message, what)
    t.match(error, { code, blame: 'task' }, what)
    t.ok(error.message.includes(dir), `${what}: the path is in the message`)
  }
})

void t.test('a directory that is not there, or is a file, is said', async (t) => {
  await using scratch = await Scratch.make()
  const file = await scratch.write('x', '')
  t.match(await failureOf(() => loadTask(join(scratch.path, 'none'))), {
    message: /no such task directory \(ENOENT\); give the directory that holds task\.toml/,
  })
  t.match((await failureOf(() => loadTask(file))).message, /not a directory/)
})

void t.test('every unsupported feature is named at once', async (t) => {
  await using scratch = await Scratch.make()
  const dir = await sample(
    scratch,
    toml.replace('[environment]', '[environment]\nos = "windows"\ngpus = 8'),
  )
  const error = await failureOf(() => loadTask(dir))
  t.match(error.message, /environment\.os[^]*environment\.gpus/)
})

void t.test('an h100 task is refused on a host without one', async (t) => {
  await using scratch = await Scratch.make()
  const dir = await sample(scratch, toml.replace('[closedbook]', '[closedbook]\nhardware = "h100"'))
  const task = await loadTask(dir)
  const gpu = (name: string) => ({ uuid: 'GPU-1', name, memoryBytes: 1 })
  t.throws(() => requireHardware(task, { name: 'small', gpus: [] }), {
    message: /needs an H100 .* host small has no GPU; run it on a host with an H100/,
    blame: 'operator',
  })
  t.throws(() => requireHardware(task, { name: 'old', gpus: [gpu('NVIDIA A100')] }), RunnerError)
  t.doesNotThrow(() => requireHardware(task, { name: 'big', gpus: [gpu('NVIDIA H100 80GB HBM3')] }))
  t.doesNotThrow(() => requireHardware({ ...task, hardware: 'cpu' }, { name: 'small', gpus: [] }))
})

void t.test('leading canary lines are not part of the instruction', (t) => {
  const rows: readonly (readonly [string, string])[] = [
    ['<!-- benchmark canary GUID 123 -->\n\nDo it.\n', 'Do it.\n'],
    ['# BENCHMARK DATA, canary: 1\n# another canary\nDo it.', 'Do it.'],
    ['# Title\nDo it.', '# Title\nDo it.'],
    ['Do it.\n<!-- canary -->', 'Do it.\n<!-- canary -->'],
    ['Watch the canary deployment.\n', 'Watch the canary deployment.\n'],
    ['\ufeffDo it.', 'Do it.'],
  ]
  for (const [text, expected] of rows) t.equal(withoutCanary(text), expected)
  t.end()
})

void t.test('the digest follows content and mode, and neither time, owner nor place', async (t) => {
  await using scratch = await Scratch.make()
  await using other = await Scratch.make()
  const dir = await sample(scratch)
  const first = await loadTask(dir)
  const copy = join(other.path, 'copy')
  await cp(dir, copy, { recursive: true })
  await utimes(join(copy, 'task.toml'), 1, 1)
  await chmod(join(copy, 'task.toml'), 0o600)
  const same = await loadTask(copy)
  t.strictSame([same.digest, same.testsDigest], [first.digest, first.testsDigest])

  const random = new Random(7)
  let lastTests = first.testsDigest
  const seen = new Set([first.digest])
  const files = [
    'task.toml',
    'instruction.md',
    'environment/Dockerfile',
    'tests/functional/test_a.py',
    'solution/solve.sh',
  ]
  for (let round = 0; round < 30; round++) {
    const file = random.pick(files)
    await writeFile(join(copy, file), `\n# ${round}\n`, { flag: 'a' })
    const { digest, testsDigest } = await loadTask(copy)
    t.notOk(seen.has(digest), `a change of ${file} changes the digest`)
    t.equal(testsDigest === lastTests, !file.startsWith('tests/'), `tests digest after ${file}`)
    lastTests = testsDigest
    seen.add(digest)
  }
  const before = await loadTask(copy)
  await chmod(join(copy, 'tests/test.sh'), 0o644)
  const after = await loadTask(copy)
  t.not(after.testsDigest, before.testsDigest, 'whether a file can be run counts')
  await symlink('test.sh', join(copy, 'tests/again'))
  t.not((await loadTask(copy)).testsDigest, after.testsDigest, 'a link counts')
})
