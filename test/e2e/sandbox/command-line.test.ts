/** A sealed sandbox by hand: `closedbook lease`, `exec` and `audit`, as a person or a script uses them. */
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import t from 'tap'
import { imageTags } from '../../../images/build.ts'
import type { AuditEvent } from '../../../policy/audit-event.ts'
import type { CliOptions, CliResult } from '../../support/daemon.ts'
import { SandboxWorld, until } from './setup.ts'

const world = await SandboxWorld.open()
t.teardown(() => world[Symbol.asyncDispose]())
const { daemon } = world
const image = imageTags['sglang-cpu']
const cli = (...args: string[]): Promise<CliResult> => daemon.cli(args)
const opened = (await daemon.json(['lease', 'open', '--image', image])) as {
  lease: string
  state: string
}
const { lease } = opened
const exec = (
  argv: readonly string[],
  options: CliOptions & { flags?: readonly string[] } = {},
): Promise<CliResult> =>
  daemon.cli(['exec', ...(options.flags ?? []), lease, '--', ...argv], options)

void t.test('open prints the lease and its state, and list shows it', async (t) => {
  t.strictSame(Object.keys(opened), ['lease', 'state'])
  t.equal(opened.state, 'ready')
  const listed = (await daemon.json(['lease', 'list'])) as { leases: { lease: string }[] }
  t.strictSame(
    listed.leases.map((each) => each.lease),
    [lease],
  )
  t.match(await cli('lease', 'list'), { code: 0, stdout: new RegExp(`${lease} +ready`) })
})

void t.test("a command's bytes and status pass through", async (t) => {
  const rows: readonly (readonly [
    what: string,
    argv: string[],
    code: number,
    stdout: string,
    stderr: RegExp,
  ])[] = [
    ['output and errors apart', ['sh', '-c', 'echo out; echo err >&2'], 0, 'out\n', /^err\n$/],
    ['a status', ['sh', '-c', 'exit 42'], 42, '', /^$/],
    ['a status that engines use themselves', ['sh', '-c', 'exit 126'], 126, '', /^$/],
    ['a signal', ['sh', '-c', 'kill -TERM $$'], 143, '', /^$/],
    ['SIGKILL', ['sh', '-c', 'kill -9 $$'], 137, '', /^$/],
    [
      'arguments as they are',
      ['printf', '%s|', 'a b', '$HOME', '*', '--json', ''],
      0,
      'a b|$HOME|*|--json||',
      /^$/,
    ],
    ['output without a line end', ['printf', 'x'], 0, 'x', /^$/],
    ['nothing at all', ['true'], 0, '', /^$/],
  ]
  const results = await Promise.all(rows.map(([, argv]) => exec(argv)))
  for (const [n, [what, , code, stdout, stderr]] of rows.entries()) {
    const result = results[n]
    t.match(result, { code, stdout, stderr }, what)
    t.equal(result?.stdout, stdout, what)
  }
})

void t.test('standard input passes through to its end', async (t) => {
  const input = 'line\n'.repeat(200_000)
  const result = await exec(['sh', '-c', 'wc -c; echo done'], { input })
  t.match(result, { code: 0, stdout: `${input.length}\ndone\n` })
  const echoed = await exec(['cat'], { input })
  t.ok(echoed.stdout === input, 'a megabyte there and back')
  t.match(await exec(['cat'], { input: '' }), { code: 0, stdout: '' })
})

void t.test('user, directory, environment and time limit are as asked for', async (t) => {
  const rows: readonly (readonly [argv: string[], flags: string[], stdout: string])[] = [
    [['id', '-u'], [], '0\n'],
    [['id', '-u'], ['--user', '1234:1234'], '1234\n'],
    [['id', '-un'], ['--user', 'nobody'], 'nobody\n'],
    [['pwd'], ['--workdir', '/usr/lib'], '/usr/lib\n'],
    [['pwd'], [], '/workspace/sglang\n'],
    [['sh', '-c', 'echo "$A|$B"'], ['--env', 'A=1 2', '--env', 'B=x=y'], '1 2|x=y\n'],
  ]
  const results = await Promise.all(rows.map(([argv, flags]) => exec(argv, { flags })))
  for (const [n, [argv, flags, stdout]] of rows.entries())
    t.equal(results[n]?.stdout, stdout, [...argv, ...flags].join(' '))
  const started = performance.now()
  const late = await exec(['sh', '-c', 'setsid sleep 99 & echo on; sleep 99'], {
    flags: ['--timeout', '1'],
  })
  t.match(late, { stdout: 'on\n', stderr: /ended after 1 s/ })
  t.not(late.code, 0)
  t.ok(performance.now() - started < 8000)
  const left = await exec(['sh', '-c', 'cat /proc/[0-9]*/comm | grep -c sleep'])
  t.match(left, { stdout: '0\n' }, 'the whole tree is gone')
})

void t.test(
  'a command that can not start, or a lease that is not there, is told by status and words',
  async (t) => {
    t.match(await exec(['/no/such/program']), { code: 127, stderr: /no\/such\/program/ })
    t.match(await exec(['/etc/passwd']), { code: 127, stderr: /permission denied/i })
    const unknown = await daemon.cli(['exec', 'abcdefabcdef', '--', 'true'])
    t.not(unknown.code, 0)
    t.match(unknown.stderr, /no open lease abcdefabcdef.*lease list/s)
    t.match(await cli('audit', 'no-such-trial'), { stderr: /no lease or trial "no-such-trial"/ })
    t.match((await cli('lease', 'close', 'abcdefabcdef')).stderr, /no open lease/)
    t.match((await cli('lease', 'open', '--image', 'nothing/like:it')).stderr, /nothing\/like:it/)
    t.strictSame(await daemon.client.leases().then((all) => all.length), 1)
  },
)

void t.test('an interrupted command ends in the sandbox too', async (t) => {
  const result = await exec(['sh', '-c', 'echo started; sleep 98'], {
    onSpawn: (child) => {
      child.stdout?.once('data', () => child.kill('SIGINT'))
    },
  })
  t.ok(result.code !== 0)
  await until('it is gone', async () => {
    const { stdout } = await exec([
      'sh',
      '-c',
      'cat /proc/[0-9]*/cmdline | tr "\\0" " " | grep -c "sleep 9[8]"',
    ])
    return stdout === '0\n'
  })
  t.pass()
})

void t.test('what was tried is in the audit, for people and for programs', async (t) => {
  await exec(['curl', '-s', 'https://198.51.100.7/'])
  await exec(['curl', '-s', '--noproxy', '*', 'http://198.51.100.7:8080'])
  const { stdout } = await cli('audit', lease, '--json')
  const events = stdout
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line) as AuditEvent)
  t.match(events, [
    {
      kind: 'decision',
      protocol: 'tls',
      address: '198.51.100.7',
      port: 443,
      action: 'deny',
      reason: 'direct_tcp',
      count: 1,
    },
    {
      kind: 'census',
      protocol: 'tcp',
      address: '198.51.100.7',
      port: 8080,
      action: 'deny',
      reason: 'direct_tcp',
      count: 1,
    },
  ])
  t.equal(events.length, 2)
  const keys = [
    'seq',
    'time',
    'lease',
    'trial',
    'kind',
    'protocol',
    'host',
    'address',
    'port',
    'action',
    'reason',
    'count',
    'bytesUp',
    'bytesDown',
  ]
  for (const event of events)
    t.strictSame(
      keys.filter((key) => !(key in event)),
      [],
    )
  const people = await cli('audit', lease, '--denied')
  t.match(people.stdout, /deny +tls +198\.51\.100\.7:443 +direct_tcp/)
  t.equal(people.stdout.trim().split('\n').length, 2)
  const all = await cli('audit', lease, '--canaries', '--json')
  t.ok(all.stdout.trim().split('\n').length > 8, 'our own proof is shown when asked for')
})

void t.test('a policy file opens what it names, and a bad one opens nothing', async (t) => {
  const folder = await mkdtemp(path.join(os.tmpdir(), 'policy-'))
  t.teardown(() => rm(folder, { recursive: true, force: true }))
  const file = path.join(folder, 'policy.yaml')
  const rows: readonly (readonly [string, RegExp])[] = [
    ['version: 1\nconnect: {allow: [Example.COM]}\n', /example\.com/],
    ['version: 1\nconnect: {allowed: [a.example]}\n', /allowed/],
    ['version: [\n', /policy/],
  ]
  for (const [text, said] of rows) {
    await writeFile(file, text)
    const result = await cli('lease', 'open', '--image', image, '--policy', file)
    t.not(result.code, 0)
    t.match(result.stderr, said)
  }
  await writeFile(file, 'version: 1\nconnect: {allow: [a.example]}\n')
  const other = (await daemon.json(['lease', 'open', '--image', image, '--policy', file])) as {
    lease: string
  }
  const asked = await daemon.cli(['exec', other.lease, '--', 'getent', 'ahosts', 'a.example'])
  t.match(asked.stdout, /^198\.1[89]\./, 'an allowed name has an address, and it is ours')
  t.match(await cli('lease', 'close', other.lease), { code: 0 })
})

void t.test('close ends it, and its audit stays', async (t) => {
  const closing = await cli('lease', 'close', lease, '--json')
  t.strictSame(JSON.parse(closing.stdout), { lease, state: 'closed' })
  t.match(await cli('lease', 'list', '--json'), { stdout: '{"leases":[]}\n' })
  t.match((await exec(['true'])).stderr, /lease \w+ is closed: closed by request/)
  t.equal((await cli('audit', lease, '--json')).stdout.trim().split('\n').length, 2)
  t.equal(await world.containers(), 0)
})
