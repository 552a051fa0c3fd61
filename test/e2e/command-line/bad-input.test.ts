/** What people get wrong is told in one message that names the place and what to do, before anything is built or opened. */
import { cp, rm } from 'node:fs/promises'
import path from 'node:path'
import t from 'tap'
import { listJobs } from '../../../runner/job/layout.ts'
import { Scratch } from '../../runner/support/scratch.ts'
import { TestDaemon } from '../../support/daemon.ts'
import { testEngine } from '../../support/engine.ts'
import { containersOf, openLeases, root, tally } from '../trials/setup.ts'

const engine = await testEngine()
t.teardown(() => engine.dispose())
const daemon = await TestDaemon.open(engine.socketPath)
t.teardown(() => daemon[Symbol.asyncDispose]())
const scratch = await Scratch.make()
t.teardown(() => scratch[Symbol.asyncDispose]())

/** The fixture task with another content of these files; null removes one. */
async function task(name: string, files: Readonly<Record<string, string | null>>): Promise<string> {
  const dir = path.join(scratch.path, name)
  await cp(tally, dir, { recursive: true })
  for (const [file, content] of Object.entries(files))
    if (content === null) await rm(path.join(dir, file))
    else await scratch.write(path.join(name, file), content)
  return dir
}

const toml = (image: string): string => `schema_version = "1.4"
[closedbook]
image = "${image}"
[closedbook.functional]
command = "true"
results = "reward"
`
const pinned = `name@sha256:${'a'.repeat(64)}`
const model = (upstream: object): string =>
  JSON.stringify({
    model: {
      name: 'some-model',
      upstream,
      price: { inputPerMillionUsd: 1, cachedInputPerMillionUsd: 1, outputPerMillionUsd: 1 },
    },
  })

const keyless = await scratch.write(
  'keyless.yaml',
  model({ kind: 'openai', baseUrl: 'https://model.example/v1', key: { env: 'NO_SUCH_KEY' } }),
)
const misspelt = await scratch.write('misspelt.yaml', '{harness: noop, limit: {steps: 3}}')
const misspeltJob = await scratch.write('job.yaml', `{tasks: [${tally}], configuration: [x.yaml]}`)
const job = await scratch.write(
  'good.yaml',
  `{tasks: [${tally}], configurations: [{harness: noop}]}`,
)
const replay = path.join(root, 'images/replay.yaml')
const sample = path.join(root, 'images/tasks/reasoning-tags')
/** Its image isn't there yet: a run that got so far would build it. */
const unbuilt = await task('unbuilt', { 'environment/src/new.txt': crypto.randomUUID() })
const noInstruction = await task('no-instruction', { 'instruction.md': null })
const badKey = await task('bad-key', {
  'task.toml': `${toml(pinned)}area = "x"\nhardwear = "cpu"\n`,
})
const missingImage = await task('missing-image', { 'task.toml': toml(pinned) })
const tagged = await task('tagged', { 'task.toml': toml('debian:trixie') })
const fromTag = await task('from-tag', { 'environment/Dockerfile': 'FROM debian:trixie\n' })
const gpuTask = await task('gpu', {
  'task.toml': toml(pinned).replace('[closedbook]', '[closedbook]\nhardware = "h100"'),
})

const noop = ['--harness', 'noop']
const rows: readonly (readonly [what: string, args: string[], code: number, said: RegExp])[] = [
  [
    'no instruction',
    ['run', '--task', noInstruction, ...noop],
    65,
    /instruction\.md: missing; write/,
  ],
  [
    'no such task',
    ['run', '--task', '/no/such', ...noop],
    65,
    /\/no\/such: no such task directory.*give the directory/,
  ],
  [
    'a file as a task',
    ['run', '--task', misspelt, ...noop],
    65,
    /not a directory; give the directory/,
  ],
  ['unknown key in a task', ['run', '--task', badKey, ...noop], 65, /task\.toml: .*"hardwear"/],
  [
    'an image that is not here',
    ['run', '--task', missingImage, ...noop],
    65,
    /no image name@sha256:a+\. Pull or build it/,
  ],
  [
    'an image by tag',
    ['run', '--task', tagged, ...noop],
    65,
    /"debian:trixie" is not pinned; write it as "debian:trixie@sha256/,
  ],
  [
    'a Dockerfile from a tag',
    ['run', '--task', fromTag, ...noop],
    65,
    /environment\/Dockerfile: debian:trixie is not pinned; write/,
  ],
  ['a GPU that this host lacks', ['run', '--task', gpuTask, ...noop], 65, /h100/],
  [
    'unknown key in a configuration',
    ['run', '--task', unbuilt, '--config', misspelt],
    78,
    /misspelt\.yaml: .*"limit"/,
  ],
  ['unknown key in a job file', ['run', misspeltJob], 78, /job\.yaml: .*"configuration"/],
  [
    'no such configuration',
    ['run', '--task', unbuilt, '--config', '/no/such.yaml'],
    78,
    /\/no\/such\.yaml: can't read the configuration: no such file; check/,
  ],
  [
    'a key variable that is not set',
    ['run', '--task', unbuilt, '--config', keyless],
    78,
    /NO_SUCH_KEY is not set; export it/,
  ],
  [
    'fewer recordings than runs',
    ['run', '--task', sample, '--config', replay, '--runs', '4'],
    78,
    /no recording for run 4 of .*Ask for fewer runs/,
  ],
  ['a harness that is none', ['run', '--task', unbuilt, '--harness', 'magic'], 78, /magic/],
  [
    'a script that is not there',
    ['run', '--task', unbuilt, '--harness', 'script:/no/such.sh'],
    78,
    /\/no\/such\.sh: can't read the script/,
  ],
  [
    'a model harness without a model',
    ['run', '--task', unbuilt, '--harness', 'mini-swe-agent'],
    78,
    /model: missing/,
  ],
  ['a job file and --task', ['run', job, '--task', tally], 2, /give either a job file or --task/],
  ['nothing to run', ['run'], 2, /say what to run: --task DIR, or a job file/],
  ['nothing that runs it', ['run', '--task', tally], 2, /--config FILE .* or --harness/],
  [
    'no runs',
    ['run', '--task', tally, ...noop, '--runs', '0'],
    2,
    /"0" is not a whole number above zero/,
  ],
  ['an unknown option', ['run', '--taks', tally], 2, /unknown option '--taks'.*--help/s],
  ['an unknown command', ['rum'], 2, /unknown command 'rum'.*run/s],
  ['an unknown job', ['ps', 'nosuch'], 65, /no job.*/],
  ['a job to resume that is none', ['resume', 'nosuch'], 65, /no job/],
  ['a report of a job that is none', ['report', '/no/such'], 65, /\/no\/such/],
  ['an unknown trial', ['logs', 'nosuch'], 65, /no trial in .*closedbook ps/],
  ['an audit of nothing', ['audit', 'nosuch'], 2, /no lease or trial "nosuch"/],
  ['no image for a lease', ['lease', 'open'], 2, /--image/],
  [
    'a lease that is not open',
    ['exec', 'abcdefabcdef', '--', 'true'],
    2,
    /no open lease abcdefabcdef; .*lease list/,
  ],
  ['no command', ['exec', 'abcdefabcdef'], 2, /missing required argument 'argv'/],
  [
    'a time limit that is no number',
    ['exec', '--timeout', 'soon', 'abcdefabcdef', '--', 'true'],
    2,
    /soon/,
  ],
  [
    'a variable without a value',
    ['exec', '--env', 'NAME', 'abcdefabcdef', '--', 'true'],
    2,
    /NAME/,
  ],
]

t.test('each mistake has its message and its status', async (t) => {
  const queue = [...rows]
  const worker = async (): Promise<void> => {
    for (let row = queue.shift(); row !== undefined; row = queue.shift()) {
      const [what, args, code, said] = row
      const result = await daemon.cli(args)
      t.equal(result.code, code, `${what}: status`)
      t.match(result.stderr, said, `${what}: message`)
      t.notMatch(result.stderr, /building image|a bug of ours|\n\s+at /, `${what}: and no more`)
      t.equal(result.stdout, '', `${what}: nothing on stdout`)
    }
  }
  await Promise.all([worker(), worker(), worker()])
})

t.test('nothing is left behind', async (t) => {
  t.strictSame(await listJobs(path.join(daemon.stateDir, 'jobs')), [])
  t.strictSame(await openLeases(daemon.stateDir), [])
  t.strictSame(await containersOf(daemon, engine.engine), [])
})

t.test('a job whose task changed is not resumed, and says what changed', async (t) => {
  const changing = await task('changing', {})
  t.equal((await daemon.cli(['run', '--task', changing, ...noop])).code, 0)
  await scratch.write('changing/instruction.md', 'Something else.\n')
  const resumed = await daemon.cli(['resume'])
  t.equal(resumed.code, 65)
  t.match(
    resumed.stderr,
    /can't go on: the digest of task\s+fixture\/tally was .* start a new job/s,
  )
})
