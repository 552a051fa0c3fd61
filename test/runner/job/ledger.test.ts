import { spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { appendFile, readFile, writeFile } from 'node:fs/promises'
import { hostname } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import t from 'tap'
import { exitCode, exitCodeOf } from '../../../runner/exit-codes.ts'
import { Ledger, readLedger, type LedgerRecord } from '../../../runner/job/ledger.ts'
import { foldTrial, maxExecutions } from '../../../runner/job/trial-state.ts'
import { Random } from '../support/random.ts'
import { Scratch, failureOf } from '../support/scratch.ts'

const reason = { code: 'x', message: 'y' }
const ended = (trial: string, execution: string, blame: 'infra' | 'agent' | null) => ({
  trial,
  execution,
  blame,
  reason,
})
const recorded = (trial: string, execution: string) => ({
  trial,
  execution,
  verdict: 'passed' as const,
  result: `trials/${trial}/result.json`,
  digest: 'sha256:0',
})

/** A real runner process that opens the ledger, starts an execution, says so, and waits to be killed. */
async function otherRunner(dir: string): Promise<ChildProcess> {
  const source = fileURLToPath(new URL('../../../runner/job/ledger.ts', import.meta.url))
  const program = `
    const { Ledger } = await import(${JSON.stringify(source)})
    const ledger = await Ledger.open(${JSON.stringify(dir)})
    await ledger.started('t1', 'e1', ['lease-a', 'lease-b'])
    process.stdout.write('ready')
    setInterval(() => ledger, 60_000)`
  const child = spawn(process.execPath, ['--input-type=module', '-e', program], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  await once(child.stdout, 'data')
  return child
}

async function kill(child: ChildProcess): Promise<void> {
  const exit = once(child, 'exit')
  child.kill('SIGKILL')
  await exit
}

void t.test(
  'a trial goes from pending over running to recorded, and the file says the same',
  async (t) => {
    await using scratch = await Scratch.make()
    {
      await using ledger = await Ledger.open(scratch.path)
      t.match(ledger.state('t1'), { status: 'pending', mayExecute: true, infraFaults: 0 })
      await ledger.started('t1', 'e1', ['a', 'b'])
      t.match(ledger.state('t1'), {
        status: 'running',
        dead: false,
        current: { execution: 'e1', leases: ['a', 'b'] },
      })
      await ledger.ended(ended('t1', 'e1', null))
      t.match(ledger.state('t1'), { status: 'pending' })
      await ledger.recorded(recorded('t1', 'e1'))
      t.match(ledger.state('t1'), { status: 'recorded', verdict: 'passed', mayExecute: false })
      t.match(ledger.state('t2'), { status: 'pending' })
    }
    await using again = await Ledger.open(scratch.path)
    t.match(again.state('t1'), { status: 'recorded', result: 'trials/t1/result.json' })
    t.equal(again.takenOverFrom, null)
  },
)

void t.test('infra may spoil three executions and no more', async (t) => {
  await using scratch = await Scratch.make()
  await using ledger = await Ledger.open(scratch.path)
  for (let n = 1; n <= maxExecutions; n++) {
    t.equal(ledger.state('t1').mayExecute, true)
    await ledger.started('t1', `e${n}`, [])
    await ledger.ended(ended('t1', `e${n}`, 'infra'))
  }
  t.match(ledger.state('t1'), { status: 'pending', infraFaults: 3, mayExecute: false })
  await ledger.started('t2', 'e9', [])
  await ledger.ended(ended('t2', 'e9', 'agent'))
  t.match(ledger.state('t2'), { infraFaults: 0, mayExecute: true })
})

void t.test(
  'a runner that is killed leaves a dead execution with its leases, and its job can be taken over',
  async (t) => {
    await using scratch = await Scratch.make()
    const child = await otherRunner(scratch.path)
    const error = await failureOf(() => Ledger.open(scratch.path))
    t.match(
      error.message,
      new RegExp(`is being run by process ${child.pid} on .*; wait for it, or stop it`),
    )
    t.equal(exitCodeOf(error), exitCode.temporary)
    await kill(child)
    await using ledger = await Ledger.open(scratch.path)
    t.match(ledger.takenOverFrom, { pid: child.pid })
    t.match(ledger.state('t1'), {
      status: 'running',
      dead: true,
      infraFaults: 1,
      current: { execution: 'e1', leases: ['lease-a', 'lease-b'] },
    })
    await ledger.ended(ended('t1', 'e1', 'infra'))
    t.match(ledger.state('t1'), { status: 'pending', infraFaults: 1 })
  },
)

void t.test('of several runners that come at once exactly one gets the job', async (t) => {
  await using scratch = await Scratch.make()
  const tries = await Promise.allSettled(Array.from({ length: 8 }, () => Ledger.open(scratch.path)))
  const opened = tries.filter((one) => one.status === 'fulfilled')
  t.equal(opened.length, 1)
  for (const one of tries)
    if (one.status === 'rejected') t.match(one.reason, { code: 'job_locked' })
  for (const one of opened) await one.value[Symbol.asyncDispose]()
  await using ledger = await Ledger.open(scratch.path)
  t.equal(ledger.takenOverFrom, null, 'a lock that was given back is not taken over')
})

void t.test('who holds a lock is judged by boot and start time, not by pid alone', async (t) => {
  const boot = (await readFile('/proc/sys/kernel/random/boot_id', 'utf8')).trim()
  const here = { pid: 1, bootId: boot, startTime: '0', host: hostname() }
  const one = (await readFile('/proc/1/stat', 'utf8')).replace(/^.*\) /s, '').split(' ')[19] ?? ''
  const rows: readonly (readonly [string, string, boolean])[] = [
    ['a pid that another process has now', JSON.stringify(here), true],
    ['another boot', JSON.stringify({ ...here, bootId: 'other', startTime: one }), true],
    ['a live process', JSON.stringify({ ...here, startTime: one }), false],
    ['another host', JSON.stringify({ ...here, host: 'elsewhere' }), false],
    ['a torn file', '{"pid": 1', true],
  ]
  for (const [what, text, opens] of rows) {
    await using scratch = await Scratch.make()
    await scratch.write('lock', text)
    if (opens) {
      await using ledger = await Ledger.open(scratch.path)
      t.ok(ledger, what)
    } else {
      const error = await failureOf(() => Ledger.open(scratch.path))
      t.match(error, { code: 'job_locked', message: /is being run by process 1 on / }, what)
    }
  }
  await using scratch = await Scratch.make()
  await scratch.write('lock', JSON.stringify({ ...here, host: 'elsewhere' }))
  const error = await failureOf(() => Ledger.open(scratch.path))
  t.match(error.message, /if that host is gone, remove .*\/lock/)
})

void t.test('a torn last line is cut off, wherever it was torn', async (t) => {
  await using scratch = await Scratch.make()
  {
    await using ledger = await Ledger.open(scratch.path)
    await ledger.started('t1', 'e1', [])
    await ledger.ended(ended('t1', 'e1', 'infra'))
  }
  const path = join(scratch.path, 'ledger.jsonl')
  const whole = await readFile(path)
  const secondLine = whole.indexOf(0x0a) + 1
  const random = new Random(3)
  const cuts = [
    secondLine + 1,
    whole.length - 1,
    ...Array.from({ length: 8 }, () => random.int(secondLine + 1, whole.length - 1)),
  ]
  for (const cutAt of cuts) {
    await writeFile(path, whole.subarray(0, cutAt))
    {
      await using ledger = await Ledger.open(scratch.path)
      t.match(ledger.state('t1'), { status: 'running', dead: true }, `cut at ${cutAt}`)
      await ledger.ended(ended('t1', 'e1', 'infra'))
    }
    t.equal((await readLedger(path)).records.length, 2)
  }
})

void t.test(
  'a whole line that can not be read is told with its number, and nothing is changed',
  async (t) => {
    await using scratch = await Scratch.make()
    const path = join(scratch.path, 'ledger.jsonl')
    {
      await using ledger = await Ledger.open(scratch.path)
      await ledger.started('t1', 'e1', [])
    }
    await appendFile(path, 'garbage\n')
    const before = await readFile(path, 'utf8')
    const error = await failureOf(() => Ledger.open(scratch.path))
    t.match(error, {
      code: 'ledger_corrupt',
      message: /ledger\.jsonl line 2: not JSON\. Results in trials\/ are untouched/,
    })
    t.equal(await readFile(path, 'utf8'), before)
    const again = await failureOf(() => Ledger.open(scratch.path))
    t.match(again, { code: 'ledger_corrupt' }, 'the lock was given back')
  },
)

void t.test('appends keep their order', async (t) => {
  await using scratch = await Scratch.make()
  await using ledger = await Ledger.open(scratch.path)
  const ids = Array.from({ length: 40 }, (_, n) => `e${n}`)
  await Promise.all(ids.map((id) => ledger.started('t1', id, [])))
  const { records } = await readLedger(join(scratch.path, 'ledger.jsonl'))
  t.strictSame(
    records.map((record) => record.execution),
    ids,
  )
})

void t.test('a reader without the lock takes nobody for dead', (t) => {
  const records: LedgerRecord[] = [
    {
      v: 1,
      time: '2025-01-01T00:00:00.000Z',
      type: 'started',
      trial: 't1',
      execution: 'e1',
      leases: [],
    },
  ]
  t.match(foldTrial('t1', records, null), { status: 'running', dead: false, infraFaults: 0 })
  t.match(foldTrial('t1', records, new Set()), { status: 'running', dead: true, infraFaults: 1 })
  t.end()
})

void t.test('whatever order records come in, a state is one of three and counts add up', (t) => {
  const random = new Random(5)
  for (let round = 0; round < 200; round++) {
    const records: LedgerRecord[] = []
    const time = '2025-01-01T00:00:00.000Z'
    for (let n = random.int(0, 12); n > 0; n--) {
      const execution = `e${random.int(1, 4)}`
      const trial = `t${random.int(1, 2)}`
      const type = random.pick(['started', 'ended', 'recorded'] as const)
      if (type === 'started') records.push({ v: 1, time, type, trial, execution, leases: [] })
      else if (type === 'ended')
        records.push({
          v: 1,
          time,
          type,
          trial,
          execution,
          blame: random.pick(['infra', 'agent', null] as const),
          reason,
        })
      else records.push({ v: 1, time, type, ...recorded(trial, execution) })
    }
    const state = foldTrial('t1', records, new Set())
    const own = records.filter((record) => record.trial === 't1')
    t.equal(
      state.status === 'recorded',
      own.some((record) => record.type === 'recorded'),
    )
    const started = new Set(
      own.filter((record) => record.type === 'started').map((record) => record.execution),
    )
    t.equal(state.executions.length, started.size)
    t.ok(state.infraFaults <= started.size)
    t.equal(state.mayExecute, state.status !== 'recorded' && state.infraFaults < maxExecutions)
  }
  t.end()
})
