/** A job as it is watched and read: ps, logs, audit, report, while it runs and when it is over; and the help of it all. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import path from 'node:path'
import t from 'tap'
import { exitCodeMeanings } from '../../../runner/exit-codes.ts'
import { stepSchema } from '../../../runner/step-log.ts'
import { auditEventSchema } from '../../../policy/audit-event.ts'
import { Scratch } from '../../runner/support/scratch.ts'
import { TestDaemon, type CliResult } from '../../support/daemon.ts'
import { testEngine } from '../../support/engine.ts'
import { begun, letGo, nothingLeft, start, waiting } from '../recovery/setup.ts'
import { readRun, root, tally, until } from '../trials/setup.ts'

const engine = await testEngine()
t.teardown(() => engine.dispose())
const daemon = await TestDaemon.open(engine.socketPath)
t.teardown(() => daemon[Symbol.asyncDispose]())
const scratch = await Scratch.make()
t.teardown(() => scratch[Symbol.asyncDispose]())

const script = await scratch.write(
  'tries.sh',
  `curl -s -m 5 https://198.51.100.7/ || true
printf 'a line of its own\\n'
${waiting}curl -s --noproxy '*' http://198.51.100.7:8080 || true
`,
)
const run = start(daemon, [
  'run',
  '--task',
  tally,
  '--harness',
  `script:${script}`,
  '--name',
  'watched',
  '--json',
])

interface Ps {
  readonly job: string
  readonly trials: readonly {
    trial: string
    status: string
    verdict: string | null
    executions: number
  }[]
}
const ps = async (): Promise<Ps> => (await daemon.json(['ps', 'latest'])) as Ps
const { lease } = await begun(daemon)
const { job, trials } = await ps()
const trial = trials[0]?.trial ?? ''
/** As on another host, which has none of the job's files. */
const elsewhere = async (): Promise<string[]> => {
  const { url } = await daemon.client.health()
  const { token } = (await daemon.json(['token', 'create', '--role', 'view'])) as { token: string }
  return ['--url', url ?? '', '--token', token, '--jobs-dir', path.join(scratch.path, 'none')]
}
const lines = (result: CliResult): string[] =>
  result.stdout.split('\n').filter((line) => line !== '')

t.test('while it runs, ps shows it and logs and audit follow it to its end', async (t) => {
  t.match(trials, [{ status: 'running', verdict: null, executions: 1 }])
  t.match(await daemon.json(['ps']), {
    jobs: [{ job, name: 'watched', trials: 1, recorded: 0, running: 1 }],
  })
  t.match(await daemon.cli(['ps']), {
    code: 0,
    stdout: new RegExp(`^${job} +watched +0 of 1 recorded: .*; 1 running`),
  })
  t.match(await daemon.cli(['resume', job]), {
    code: 75,
    stderr: /is being run by process \d+ .*; wait for it, or stop it/,
  })
  t.match(await daemon.cli(['lease', 'list']), {
    code: 0,
    stdout: new RegExp(`${lease} +ready .*${trial}`),
  })

  const tried = await daemon.cli(['audit', trial, '--json'])
  t.match(
    lines(tried).map((line) => auditEventSchema.parse(JSON.parse(line))),
    [
      {
        lease,
        trial,
        protocol: 'tls',
        address: '198.51.100.7',
        port: 443,
        action: 'deny',
        reason: 'direct_tcp',
      },
    ],
  )
  const log = start(daemon, ['logs', '-f', trial])
  const stepsOf = start(daemon, ['logs', '--follow', '--json', trial.slice(0, 8)])
  const far = await elsewhere()
  const farLog = start(daemon, [...far, 'logs', '-f', trial.slice(0, 8)])
  const farSteps = start(daemon, [...far, 'logs', '-f', '--json', lease])
  const tail = start(daemon, ['audit', 'tail', '-f', trial])
  let seen = ''
  tail.child.stdout?.on('data', (text: Buffer) => (seen += text.toString()))
  await until('the tail is there', () => seen.includes('direct_tcp'))
  await letGo(daemon, lease)

  const ran = await readRun(daemon, await run.ended)
  t.match(ran.line, { job, trials: [{ trial, verdict: 'failed', blame: 'agent' }] })
  const [logged, steps, tailed] = await Promise.all([log.ended, stepsOf.ended, tail.ended])
  t.match(
    logged,
    { code: 0, stdout: /script\.sh.*a line of its own/s, stderr: '' },
    'it ends by itself',
  )
  t.equal(steps.code, 0)
  t.same(await farLog.ended, logged, 'and reads the same on another host')
  t.equal((await farSteps.ended).stdout, steps.stdout)
  t.ok(lines(steps).map((line) => stepSchema.parse(JSON.parse(line))).length >= 1)
  t.match(tailed, {
    code: 0,
    stdout: /198\.51\.100\.7:443 +direct_tcp.*198\.51\.100\.7:8080 +direct_tcp/s,
  })
  await nothingLeft(t, daemon, engine)
})

t.test('when it is over, everything of it can be read, with a daemon and without', async (t) => {
  const reads: readonly (readonly [args: string[], stdout: RegExp])[] = [
    [['ps'], new RegExp(`^${job} +watched +1 of 1 recorded: 0 passed, 1 failed, 0 void\n$`)],
    [['ps', 'latest'], new RegExp(`^${trial} +fixture/tally +.* run 1 +failed\n$`)],
    [['ps', job.slice(0, 10)], new RegExp(`^${trial}`)],
    [['logs', trial], /a line of its own/],
    [['logs', lease], /a line of its own/],
    [['audit', trial], /deny +tls +198\.51\.100\.7:443 +direct_tcp[^]*198\.51\.100\.7:8080/],
    [['audit', lease], /198\.51\.100\.7:443/],
    [['audit', 'summary', trial], /direct_tcp/],
    [['audit', 'verify', trial], /unbroken chain/],
    [
      ['report'],
      /fixture\/tally[^]*failed[^]*0\/3[^]*2\/2[^]*pass@1 +0\.0 % \(0 of 1 planned trials\)[^]*198\.51\.100\.7/,
    ],
    [['report', path.join(daemon.stateDir, 'jobs', job)], /pass@1/],
  ]
  const readAll = async (where: string): Promise<void> => {
    for (const [args, stdout] of reads) {
      const result = await daemon.cli(args)
      t.equal(result.code, 0, `${args.join(' ')}, ${where}: ${result.stderr}`)
      t.match(result.stdout, stdout, `${args.join(' ')}, ${where}`)
    }
  }
  await readAll('with a daemon')
  const far = await elsewhere()
  const here = await daemon.cli(['logs', trial])
  t.same(await daemon.cli([...far, 'logs', trial]), here, 'with its files on another host')
  t.same(await daemon.cli([...far, 'logs', lease]), here, 'by a lease that is closed')
  t.match(await daemon.cli([...far, 'logs', 'nosuch']), {
    code: 65,
    stderr: /no trial in .* or on the board of http:.* has an id that is or begins with "nosuch"/,
  })
  t.match(await daemon.cli([...far, '--token', 'cbt_x', 'logs', trial]), {
    stderr: /token is unknown, expired or revoked/,
  })
  const report = await daemon.json(['report', job])
  t.match(report, {
    schema: 'closedbook.report/1',
    complete: true,
    trials: [{ trial, verdict: 'failed' }],
  })
  const again = await daemon.cli(['resume', job, '--json'])
  t.match(
    JSON.parse(again.stdout),
    { job, trials: [{ trial, verdict: 'failed' }] },
    'nothing is run again',
  )
  await daemon.stop()
  await readAll('without a daemon')
  t.match(await daemon.cli(['doctor', '--json']), {
    code: 0,
    stdout: /"name":"daemon","state":"warn"/,
  })
  await daemon.start()
})

t.test(
  'a reader that goes away ends a command quietly, and one that can not write says so',
  async (t) => {
    const shell = async (command: string): Promise<CliResult> => {
      const child = spawn('bash', ['-c', `set -o pipefail; ${command}`], {
        cwd: root,
        env: {
          ...process.env,
          CLOSEDBOOK_STATE_DIR: daemon.stateDir,
          CB: `${process.execPath} --no-warnings runner/bin/closedbook.mjs`,
        },
      })
      const output = { stdout: '', stderr: '' }
      child.stdout.on('data', (text: Buffer) => (output.stdout += text.toString()))
      child.stderr.on('data', (text: Buffer) => (output.stderr += text.toString()))
      const [code] = (await once(child, 'close')) as [number | null]
      return { code, signal: null, ...output }
    }
    t.match(await shell('$CB --help | head -1'), {
      code: 0,
      stdout: /^Usage: closedbook/,
      stderr: '',
    })
    const audit = await shell(`$CB audit ${trial} --canaries --json | head -1`)
    t.match(audit, { code: 0, stderr: '' })
    t.equal(lines(audit).length, 1)
    t.match(await shell('$CB report --json >/dev/full'), { code: 73 })
  },
)

t.test('every command tells its options, and help is no error', async (t) => {
  const top = await daemon.cli(['--help'])
  t.equal(top.code, 0)
  for (const [code, meaning] of exitCodeMeanings)
    t.ok(top.stdout.includes(`${code}`) && top.stdout.includes(meaning), `status ${code}`)
  const commands = await commandsBelow([])
  t.ok(commands.length >= 15)
  for (const words of [
    'up',
    'down',
    'daemon',
    'doctor',
    'run',
    'resume',
    'ps',
    'logs',
    'report',
    'exec',
  ])
    t.ok(
      commands.some((command) => command.join(' ') === words),
      words,
    )
  for (const command of commands) {
    const { code, stdout, stderr } = await daemon.cli([...command, '--help'])
    t.equal(code, 0, `${command.join(' ')} --help`)
    t.match(
      stdout,
      new RegExp(`^Usage: closedbook ${command.join(' ')}[^]*-h, --help`),
      command.join(' '),
    )
    t.equal(stderr, '')
  }
  t.match(await daemon.cli(['--version']), { code: 0, stdout: /^\d+\.\d+\.\d+/ })
})

/** The commands that a help text lists, and theirs. */
async function commandsBelow(command: readonly string[]): Promise<string[][]> {
  const { stdout } = await daemon.cli([...command, '--help'])
  const [, listed = ''] = stdout.split('\nCommands:\n')
  const found: string[][] = []
  for (const line of listed.split('\n\n')[0]?.split('\n') ?? []) {
    const [, name] = /^ {2}([a-z]+)/.exec(line) ?? []
    if (name === undefined || name === 'help') continue
    found.push([...command, name], ...(await commandsBelow([...command, name])))
  }
  return found
}
