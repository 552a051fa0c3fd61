/** `up`, `down` and `daemon` as a person meets them: no daemon, no engine, no room, no place, and when all is well. */
import { once } from 'node:events'
import { mkdir, readdir, readFile, writeFile } from 'node:fs/promises'
import net from 'node:net'
import path from 'node:path'
import t from 'tap'
import { imageTags } from '../../../images/build.ts'
import { Scratch } from '../../runner/support/scratch.ts'
import { TestDaemon, type CliResult } from '../../support/daemon.ts'
import { testEngine } from '../../support/engine.ts'
import { containersOf, endOf, openLeases, readRun, tally, until } from '../trials/setup.ts'

const engine = await testEngine()
t.teardown(() => engine.dispose())
/** Serves as a shell in which commands are typed; its daemon is not the one they are about. */
const shell = await TestDaemon.open(engine.socketPath, { minFreeBytes: 2 ** 52 })
t.teardown(() => shell[Symbol.asyncDispose]())
const scratch = await Scratch.make()
t.teardown(() => scratch[Symbol.asyncDispose]())
const image = imageTags['sglang-cpu']

const at = (
  stateDir: string,
  args: readonly string[],
  env: NodeJS.ProcessEnv = {},
): Promise<CliResult> => shell.cli(args, { env: { CLOSEDBOOK_STATE_DIR: stateDir, ...env } })

t.test('without a daemon every command that needs one says how to start it', async (t) => {
  const stateDir = path.join(scratch.path, 'none')
  const commands = [
    ['run', '--task', tally, '--harness', 'noop'],
    ['lease', 'list'],
    ['lease', 'open', '--image', image],
    ['lease', 'close', 'abcdefabcdef'],
    ['exec', 'abcdefabcdef', '--', 'true'],
    ['audit', 'abcdefabcdef'],
    ['gpus'],
    ['images'],
  ]
  for (const args of commands) {
    const { code, stdout, stderr } = await at(stateDir, args)
    t.equal(code, 69, args.join(' '))
    t.match(stderr, /^closedbook: no daemon answers (on|at) .*none\/daemon\.sock.*`closedbook up`/i)
    t.equal(stdout, '')
  }
  t.match(await at(stateDir, ['ps']), { code: 0, stderr: /no job in/ })
  t.match(await at(stateDir, ['down']), { code: 0, stderr: /`up` has nothing running here/ })
  await t.rejects(readdir(stateDir), { code: 'ENOENT' }, 'nothing is left behind')
})

t.test('up starts a daemon, again is no harm, and down stops it', async (t) => {
  const stateDir = path.join(scratch.path, 'up')
  const first = await at(stateDir, ['up', '--json'])
  t.equal(first.code, 0, first.stderr)
  const started = JSON.parse(first.stdout) as { pid: number }
  t.match(started, {
    status: 'ok',
    socket: path.join(stateDir, 'daemon.sock'),
    engineSocket: engine.socketPath,
    started: { engine: false, daemon: true },
  })
  const second = await at(stateDir, ['up', '--json'])
  t.match(JSON.parse(second.stdout), {
    pid: started.pid,
    started: { engine: false, daemon: false },
  })
  t.match(await at(stateDir, ['up']), {
    code: 0,
    stderr: /a daemon was already up: .*up\/daemon\.sock/,
  })

  const opened = await at(stateDir, ['lease', 'open', '--image', image, '--json'])
  t.match(JSON.parse(opened.stdout), { state: 'ready' })
  const busy = await at(stateDir, ['daemon'])
  t.match(busy, {
    code: 75,
    stderr: /a daemon already serves .*daemon\.sock; end it with `closedbook down`/,
  })
  const other = path.join(scratch.path, 'other.sock')
  t.match(await at(stateDir, ['daemon', '--socket', other]), {
    code: 75,
    stderr: /a daemon already works in .*up; end it/,
  })

  const doctor = await at(stateDir, ['doctor', '--json'])
  const { healthy, checks } = JSON.parse(doctor.stdout) as {
    healthy: boolean
    checks: { name: string; state: string; todo: string | null }[]
  }
  t.equal(healthy, true)
  t.equal(doctor.code, 0)
  for (const name of ['node', 'engine', 'cgroup', 'nft', 'ip', 'nsenter', 'disk', 'daemon', 'gpu'])
    t.ok(
      checks.some((check) => check.name === name && check.state !== 'fail'),
      name,
    )
  for (const { name, state, todo } of checks)
    t.equal(todo === null, state === 'ok', `${name} says what to do`)

  t.match(await at(stateDir, ['down', '--json']), {
    code: 0,
    stdout: '{"stopped":{"daemon":true,"engine":false,"store":false}}\n',
  })
  // of a process that has ended but that nobody took leave of yet, it is empty
  t.equal(
    await readFile(`/proc/${started.pid}/cmdline`, 'utf8').catch(() => ''),
    '',
    'it has ended',
  )
  t.strictSame(await openLeases(stateDir), [], 'its leases are closed')
  const instance = (await readFile(path.join(stateDir, 'instance'), 'utf8')).trim()
  t.strictSame(await engine.engine.listContainers({ 'closedbook.instance': instance }), [])
  t.notOk((await readdir(stateDir)).some((name) => /\.sock$|^up\.json$/.test(name)))
  t.match(await at(stateDir, ['lease', 'list']), { code: 69 })
})

t.test('an engine that does not answer is told with what to do', async (t) => {
  const stateDir = path.join(scratch.path, 'engineless')
  for (const dead of ['/no/such/docker.sock', await scratch.write('file.sock', '')]) {
    const engineless = await at(stateDir, ['daemon', '--engine-socket', dead])
    t.equal(engineless.code, 69)
    t.match(engineless.stderr, new RegExp(`No container engine answers at ${dead} .*start Docker`))
    const up = await at(stateDir, ['up'], { CLOSEDBOOK_ENGINE_SOCKET: dead })
    t.equal(up.code, 69)
    t.match(
      up.stderr,
      new RegExp(`no engine answers on ${dead}, which the environment names; start it`),
    )
  }
  const remote = await at(stateDir, ['up'], { CLOSEDBOOK_ENGINE_SOCKET: 'tcp://198.51.100.7:2375' })
  t.match(remote, { code: 78, stderr: /is not on this host; .*name a unix socket/ })
  t.match(await at(stateDir, ['down']), { code: 0, stderr: /nothing running/ })
})

t.test(
  'an engine that goes away under a daemon is told so, and all is well when it is back',
  async (t) => {
    const socketPath = path.join(scratch.path, 'engine.sock')
    const open = new Set<net.Socket>()
    const relay = net.createServer({ allowHalfOpen: true }, (socket) => {
      const upstream = net.connect({ path: engine.socketPath, allowHalfOpen: true })
      for (const one of [socket, upstream]) {
        open.add(one)
        one.on('error', () => {}).on('close', () => open.delete(one))
      }
      socket.pipe(upstream).pipe(socket)
    })
    await once(relay.listen(socketPath), 'listening')
    await using daemon = await TestDaemon.open(socketPath)
    const noop = ['run', '--task', tally, '--harness', 'noop']
    const opening = ['lease', 'open', '--image', image]

    const closed = once(relay, 'close')
    relay.close()
    for (const socket of open) socket.destroy()
    await closed
    for (const args of [opening, noop]) {
      const { code, stderr, stdout } = await daemon.cli(args)
      t.equal(code, 69, args.join(' '))
      t.match(stderr, /^closedbook: No container engine answers at .*engine\.sock .*start Docker/m)
      t.equal(stdout, '')
    }
    t.match(await daemon.cli(['lease', 'list', '--json']), { code: 0, stdout: '{"leases":[]}\n' })
    t.match((await daemon.cli(['ps'])).stderr, /no job in/)

    await once(relay.listen(socketPath), 'listening')
    t.teardown(() => {
      relay.close()
      for (const socket of open) socket.destroy()
    })
    const { code, stdout, stderr } = await daemon.cli([...opening, '--json'])
    t.equal(code, 0, stderr)
    const { lease } = JSON.parse(stdout) as { lease: string }
    t.match(await daemon.cli(['lease', 'close', lease]), { code: 0 })
    t.strictSame(await containersOf(daemon, engine.engine), [])
  },
)

t.test('a full disk opens nothing and says how much is needed', async (t) => {
  const opened = await shell.cli(['lease', 'open', '--image', image])
  t.equal(opened.code, 73)
  t.match(opened.stderr, /has \d+ MiB free and a lease needs \d+; free some room/)
  const ran = await shell.cli(['run', '--task', tally, '--harness', 'noop', '--json'])
  t.equal(ran.code, 1, 'the trial is not scored')
  const { results } = await readRun(shell, ran)
  t.match(results.map(endOf), [/^void operator disk_full: .*free some room/])
  t.equal(results[0]?.executions.length, 1, 'another would end the same way')
  const two = await shell.cli([
    ...['run', '--task', tally, '--harness', 'noop', '--runs', '2'],
    ...['--concurrency', '1', '--json'],
  ])
  t.equal(two.code, 73)
  t.match(
    two.stderr,
    /no further trial is begun on this host .*free some room.*resume j\S+ --retry-/,
  )
  const { stdout } = await shell.cli(['ps', 'latest', '--json'])
  const { trials } = JSON.parse(stdout) as { trials: { status: string }[] }
  t.strictSame(trials.map(({ status }) => status).toSorted(), ['pending', 'recorded'])
  t.strictSame(await openLeases(shell.stateDir), [])
  t.strictSame(await containersOf(shell, engine.engine), [])
})

t.test('a place that can not be written or read is named', async (t) => {
  const file = await scratch.write('a-file', '')
  const corrupt = path.join(scratch.path, 'corrupt')
  await mkdir(path.join(corrupt, 'leases', 'open'), { recursive: true })
  await writeFile(path.join(corrupt, 'leases', 'open', 'abcdefabcdef.json'), '{"torn')
  const wrong = await scratch.write('daemon.yaml', '{capacity: {lease: 3}}')
  const rows: readonly (readonly [
    what: string,
    stateDir: string,
    args: string[],
    code: number,
    said: RegExp,
  ])[] = [
    [
      'state under a file',
      `${file}/state`,
      ['daemon'],
      78,
      /cannot make the state directory .*a-file\/state.*set stateDir to a place that can be written/,
    ],
    ['state that is a file', file, ['daemon'], 78, /cannot make the state directory .*a-file/],
    [
      'state where nobody can write',
      '/proc/closedbook',
      ['daemon'],
      78,
      /cannot make the state directory \/proc\/closedbook/,
    ],
    ['up there', '/proc/closedbook', ['up'], 73, /can't write \/proc\/closedbook/],
    [
      'a torn journal',
      corrupt,
      ['daemon'],
      65,
      /abcdefabcdef\.json .*move it away and start the daemon again/,
    ],
    [
      'a torn journal, by up',
      corrupt,
      ['up'],
      69,
      /the daemon did not start; .*abcdefabcdef\.json .*move it away/s,
    ],
    [
      'a wrong configuration',
      path.join(scratch.path, 'wrong'),
      ['daemon', '--config', wrong],
      78,
      /daemon\.yaml\) is wrong: .*"lease"/,
    ],
    [
      'a wrong configuration, by up',
      path.join(scratch.path, 'wrong'),
      ['up', '--daemon-config', wrong],
      78,
      /did not start; .*"lease"/s,
    ],
    [
      'no such configuration',
      path.join(scratch.path, 'wrong'),
      ['daemon', '--config', '/no/such'],
      78,
      /cannot read the configuration \/no\/such/,
    ],
    [
      'a socket where nobody can write',
      path.join(scratch.path, 'busy'),
      ['daemon', '--socket', `${file}/x.sock`],
      75,
      /cannot listen on .*a-file\/x\.sock/,
    ],
    [
      'a path too long for a socket',
      path.join(scratch.path, 'l'.repeat(100)),
      ['daemon'],
      78,
      /a unix socket path may have 100 characters/,
    ],
    [
      'jobs under a file',
      shell.stateDir,
      ['run', '--task', tally, '--harness', 'noop', '--jobs-dir', `${file}/jobs`],
      73,
      /can't write .*a-file\/jobs/,
    ],
    [
      'a job where nobody can write',
      shell.stateDir,
      ['run', '--task', tally, '--harness', 'noop', '--out', '/proc/closedbook'],
      73,
      /can't write \/proc\/closedbook/,
    ],
    [
      'unknown setting of the runner',
      shell.stateDir,
      ['ps', '--runner-config', wrong],
      78,
      /daemon\.yaml: .*"capacity"/,
    ],
  ]
  for (const [what, stateDir, args, code, said] of rows) {
    const result = await at(stateDir, args)
    t.equal(result.code, code, `${what}: status`)
    t.match(result.stdout + result.stderr, said, `${what}: message`)
    t.notMatch(result.stderr, /a bug of ours|\n\s+at /, `${what}: and no stack`)
  }
  await until('none of them left a daemon', async () => {
    const running = await Promise.all(
      (await readdir('/proc'))
        .filter((name) => /^\d+$/.test(name))
        .map((pid) => readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '')),
    )
    return !running.some((line) => line.includes(scratch.path) && line.includes('main.ts'))
  })
})
