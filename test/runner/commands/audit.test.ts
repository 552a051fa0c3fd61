/** `closedbook audit` and its subcommands against a real daemon: what was tried, as it comes, and whether it was changed. */
import { readFile } from 'node:fs/promises'
import path from 'node:path'
import t from 'tap'
import type { AuditTotals } from '../../../policy/audit-summary.ts'
import type { AuditVerdict } from '../../../policy/audit-verify.ts'
import type { AuditEvent } from '../../../policy/audit-event.ts'
import { SandboxWorld, until } from '../../e2e/sandbox/setup.ts'
import { executionDirs, runScripts } from '../../e2e/trials/setup.ts'
import type { CliResult } from '../../support/daemon.ts'
import { Scratch } from '../support/scratch.ts'

const maxBytesPerLease = 100_000
const world = await SandboxWorld.open({ audit: { maxBytesPerLease } })
t.teardown(() => world[Symbol.asyncDispose]())
const scratch = await Scratch.make()
t.teardown(() => scratch[Symbol.asyncDispose]())
const { daemon } = world
const cli = (...args: string[]): Promise<CliResult> => daemon.cli(['audit', ...args])
const events = ({ stdout }: Pick<CliResult, 'stdout'>): AuditEvent[] =>
  stdout
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line) as AuditEvent)
const sum = (of: readonly AuditEvent[]): number => of.reduce((total, { count }) => total + count, 0)
const ask = (lease: string, ...hosts: string[]): Promise<unknown> =>
  world.run(lease, [
    ...['sh', '-c', 'for h; do curl -s -x http://127.0.0.1:3128 https://$h/; done; true', 'sh'],
    ...hosts,
  ])

const lease = await world.lease({ trial: 'trial-a' })
const other = await world.lease({ trial: 'trial-b' })
await ask(lease, ...Array.from({ length: 60 }, () => 'flood.example'), 'one.example')
await ask(other, 'one.example', 'sub.one.example')

void t.test('a flood of equal denials is few events, and every count of it agrees', async (t) => {
  const told = events(await cli(lease, '--json'))
  t.ok(told.length < 40, `${told.length} events`)
  t.ok(told.some(({ kind }) => kind === 'aggregate'))
  t.equal(sum(told), 61)
  const { policyHash } = await daemon.client.lease(lease)
  for (const event of told)
    t.match(event, { trial: 'trial-a', policy: policyHash, prev: /^[0-9a-f]{64}$/ })
  const summary = (await daemon.json(['audit', 'summary', lease])) as AuditTotals
  t.match(summary, { attempts: 61, denied: 61, byReason: { not_allowed_host: 61 } })
  t.match(summary.targets, [
    { host: 'flood.example', port: 443, count: 60 },
    { host: 'one.example', count: 1 },
  ])
  t.match(await daemon.client.egress(lease), { attempts: 61, denied: 61 })
  t.match(
    (await cli('summary', 'trial-a')).stdout,
    /^61 attempts in 1 lease of one trial: 61 refused, 0 allowed\n/,
  )
  t.match(
    (await cli('summary', lease)).stdout,
    /60 │ deny │ connect +│ flood\.example:443 +│ not_allowed_host/,
  )
})

void t.test('a search goes over all leases, open or closed', async (t) => {
  const gone = await world.lease({ trial: 'trial-b' })
  await ask(gone, 'one.example')
  await daemon.client.closeLease(gone, 'done')
  const rows: readonly (readonly [args: string[], events: readonly string[]])[] = [
    [
      ['--host', 'one.example'],
      [`${lease} one.example`, `${other} one.example`, `${gone} one.example`],
    ],
    [['--host', '*.one.example'], [`${other} sub.one.example`]],
    [
      ['--trial', 'trial-b'],
      [`${other} one.example`, `${other} sub.one.example`, `${gone} one.example`],
    ],
    [['--trial', 'trial-b', '--limit', '1'], [`${other} one.example`]],
    [['--lease', gone, '--reason', 'not_allowed_host', '--denied'], [`${gone} one.example`]],
    [['--lease', gone, '--trial', 'trial-a'], []],
    [['--trial', 'unknown'], []],
    [
      ['--host', 'one.example', '--since', '1h', '--until', '2999-01-01'],
      [`${lease} one.example`, `${other} one.example`, `${gone} one.example`],
    ],
    [['--host', 'one.example', '--until', '1h'], []],
    [['--host', 'one.example', '--action', 'allow'], []],
  ]
  for (const [args, expected] of rows) {
    const result = await cli('query', ...args, '--json')
    t.strictSame(
      events(result).map((event) => `${event.lease} ${event.host}`),
      expected,
      args.join(' '),
    )
    t.equal(result.code, 0)
  }
  const canaries = events(
    await cli('query', '--lease', gone, '--protocol', 'dns', '--canaries', '--json'),
  )
  t.ok(canaries.length > 0 && canaries.every(({ canary }) => canary === true))
  t.match(await cli('query', '--lease', gone), {
    stdout: /^trial-b {2}\S+ {2}deny +connect +one\.example:443/,
  })
  t.match(await cli('query', '--host', 'nobody.example'), {
    stdout: '',
    stderr: /no event matches/,
  })
})

void t.test('what is asked wrongly is told with what there is', async (t) => {
  const rows: readonly (readonly [args: string[], said: RegExp])[] = [
    [['query', '--reason', 'because'], /Allowed choices are allowed_host/],
    [['query', '--since', 'yesterday'], /an instant such as/],
    [['query', '--limit', '0'], /a number from 1/],
    [['query', '--lease', 'abcdefabcdef'], /no lease or trial/],
    [['tail', '-n', 'x', lease], /a whole number/],
    [['tail', 'abcdefabcdef'], /no lease or trial/],
    [['summary'], /name a lease or a trial, or give --job/],
    [['summary', 'abcdefabcdef'], /no lease or trial/],
    [['verify'], /missing required argument/],
    [['verify', 'abcdefabcdef'], /no lease or trial/],
    [['verify', '/nowhere/egress.jsonl'], /cannot read/],
  ]
  for (const [args, said] of rows)
    t.match(await cli(...args), { code: 2, stderr: said }, args.join(' '))
})

void t.test(
  'a log is found whole, open and closed; an export too; and a change of it is found',
  async (t) => {
    t.match(await cli('verify', lease), {
      code: 0,
      stdout: /^ok +\w+: \d+ events in an unbroken chain, \d+ of \d+ canaries found/,
    })
    const proof = await daemon.client.prove(other)
    t.ok(proof.ok)
    await daemon.client.closeLease(other, 'done')
    const verdicts = (await daemon.json(['audit', 'verify', 'trial-b'])) as {
      ok: boolean
      leases: AuditVerdict[]
    }
    t.match(verdicts, { ok: true, leases: [{ lease: other, complete: true }, { complete: true }] })
    t.ok((verdicts.leases[0]?.canaries.expected ?? 0) > 5)

    const whole = await cli(lease, '--json', '--canaries')
    const file = await scratch.write('whole.jsonl', whole.stdout)
    t.match(await cli('verify', file), { code: 0, stdout: /^ok/ })
    const log = await readFile(path.join(daemon.stateDir, 'audit', `${lease}.jsonl`), 'utf8')
    t.ok(whole.stdout.startsWith(log), 'what is exported has the bytes of the log')
    const changed = await scratch.write(
      'changed.jsonl',
      whole.stdout.replace('flood.example', 'blood.example'),
    )
    t.match(await cli('verify', changed), {
      code: 1,
      stdout: /^BROKEN .*\n +chain in line \d+: event \d+ was made after another/,
      stderr: /^(?!.*excerpt)/s,
    })
    const some = await scratch.write('some.jsonl', (await cli(lease, '--json')).stdout)
    t.match(
      await cli('verify', some),
      { code: 1, stdout: /gap in line 1/, stderr: /excerpt.*--canaries --json/ },
      'a part is not the whole',
    )
  },
)

void t.test('tail shows the last, follows, and ends with the lease', async (t) => {
  const followed = await world.lease({ trial: 'trial-t' })
  await ask(followed, '1.example', '2.example', '3.example')
  t.strictSame(
    events(await cli('tail', '-n', '2', followed, '--json')).map(({ host }) => host),
    ['2.example', '3.example'],
  )
  let output = ''
  const tail = daemon.cli(['audit', 'tail', '-f', '-n', '1', followed], {
    onSpawn: (child) => child.stdout?.on('data', (chunk: Buffer) => (output += chunk.toString())),
  })
  await until('the last is shown', () => output.includes('3.example'))
  await ask(followed, '4.example')
  await world.run(followed, ['curl', '-s', '--noproxy', '*', 'http://198.51.100.7:8080'])
  await until(
    'what comes is shown, of any port',
    () => output.includes('4.example') && output.includes(':8080'),
  )
  await daemon.client.closeLease(followed, 'done')
  t.match(await tail, { code: 0 }, 'it ends with the lease')
  t.equal(output.trim().split('\n').length, 3, output)
})

void t.test(
  'a trial is followed through leases that are opened later, until the reader goes',
  async (t) => {
    const first = await world.lease({ trial: 'trial-f' })
    await ask(first, 'first.example')
    let output = ''
    let interrupt = (): void => {}
    const tail = daemon.cli(['audit', 'tail', '-f', 'trial-f', '--json'], {
      onSpawn: (child) => {
        child.stdout?.on('data', (chunk: Buffer) => (output += chunk.toString()))
        interrupt = () => void child.kill('SIGINT')
      },
    })
    await until('the first is shown', () => output.includes('first.example'))
    await daemon.client.closeLease(first, 'done')
    const second = await world.lease({ trial: 'trial-f' })
    await ask(second, 'second.example')
    await until('the second is shown', () => output.includes('second.example'))
    interrupt()
    t.match(await tail, { code: 130 })
    t.strictSame(
      events({ stdout: output }).map((event) => `${event.lease} ${event.host}`),
      [`${first} first.example`, `${second} second.example`],
    )
    await daemon.client.closeLease(second, 'done')
  },
)

void t.test(
  'a sandbox that fills its log is stopped, and what it did until then stands',
  async (t) => {
    const full = await world.lease()
    const program =
      'n=0; while :; do n=$((n+1)); curl -s -x http://127.0.0.1:3128 https://$n.example/; done'
    const { end } = await world.run(full, ['sh', '-c', program])
    t.not(end.cause, 'exited', 'its work was ended')
    await until('it is closed', async () => {
      const view = (await daemon.client.leases()).find((each) => each.lease === full)
      return view === undefined || view.state === 'closed'
    })
    const record = await readFile(
      path.join(daemon.stateDir, 'leases', 'closed', `${full}.json`),
      'utf8',
    )
    t.match(JSON.parse(record), {
      state: 'closed',
      reason: /has reached its limit of 100000 bytes/,
    })
    const told = events(await cli(full, '--json', '--canaries'))
    t.strictSame(
      told.map(({ seq }) => seq),
      told.map((_, n) => n + 1),
    )
    const bytes = Buffer.byteLength(told.map((event) => `${JSON.stringify(event)}\n`).join(''))
    t.ok(bytes <= maxBytesPerLease && bytes > maxBytesPerLease - 1000, `${bytes} bytes`)
    t.match(await cli('verify', full), { code: 0 })
  },
)

void t.test(
  'the chain goes on under the next daemon, and a search finds what both saw',
  async (t) => {
    const before = events(await cli(lease, '--json', '--canaries'))
    await daemon.kill()
    await daemon.start()
    await ask(lease, 'after.example')
    const after = events(await cli(lease, '--json', '--canaries'))
    t.strictSame(after.slice(0, before.length), before)
    t.match(after.slice(before.length), [{ kind: 'lifecycle' }, { host: 'after.example' }])
    t.match(await cli('verify', 'trial-a'), { code: 0, stdout: /^ok/ })
    const found = events(await cli('query', '--trial', 'trial-a', '--host', '*.example', '--json'))
    t.strictSame(
      new Set(found.map(({ host }) => host)),
      new Set(['flood.example', 'one.example', 'after.example']),
    )
    t.match(await daemon.json(['audit', 'summary', lease]), { attempts: 62 })
  },
)

void t.test('the evidence of a trial can be checked and summed without a daemon', async (t) => {
  const script =
    'curl -s -x http://127.0.0.1:3128 https://tried.example/; curl -s --noproxy "*" http://198.51.100.7:2222; true'
  const { ran } = await runScripts(daemon, scratch, [{ name: 'tries', script }])
  const { trial = '' } = ran.line.trials[0] ?? {}
  const totals = { attempts: 2, denied: 2, byReason: { direct_tcp: 1, not_allowed_host: 1 } }
  t.match(ran.results[0]?.egress, totals)
  t.match(await daemon.json(['audit', 'summary', trial]), totals)
  t.match(await daemon.json(['audit', 'verify', trial]), { ok: true })
  await daemon.stop()
  t.match(await daemon.json(['audit', 'summary', trial]), totals)
  t.match(await daemon.json(['audit', 'summary', '--job', 'latest']), totals)
  const [execution = ''] = await executionDirs(ran.jobDir, trial)
  const file = path.join(execution, 'egress.jsonl')
  for (const what of [trial, file]) {
    const verdict = (await daemon.json(['audit', 'verify', what])) as { leases: AuditVerdict[] }
    t.match(verdict, { ok: true, leases: [{ file, trial, canaries: { missing: { length: 0 } } }] })
    t.ok(
      (verdict.leases[0]?.canaries.expected ?? 0) > 5,
      'the proof of the result is held against it',
    )
  }
  const without = (await readFile(file, 'utf8'))
    .split('\n')
    .filter((line) => !line.includes('canary.example'))
  const spoilt = await scratch.write('executions/1/egress.jsonl', without.join('\n'))
  await scratch.write('result.json', await readFile(ran.line.trials[0]?.result ?? '', 'utf8'))
  t.match(await cli('verify', spoilt), {
    code: 1,
    stdout: /gap in line [\s\S]*dns-name is in the log, and it isn't/,
  })
})
