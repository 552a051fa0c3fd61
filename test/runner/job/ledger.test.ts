import { appendFile, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import t from 'tap'
import { appendLedger, readLedger, type LedgerRecord } from '../../../runner/job/ledger.ts'
import { foldTrial } from '../../../runner/job/trial-state.ts'
import { Random } from '../support/random.ts'
import { Scratch } from '../support/scratch.ts'

const stamp = { v: 1, time: '2025-01-01T00:00:00.000Z' } as const
const started = (trial: string, execution: string, leases: string[] = []): LedgerRecord => ({
  ...stamp,
  type: 'started',
  trial,
  execution,
  leases,
})
const ended = (
  trial: string,
  execution: string,
  blame: 'infra' | 'agent' | null,
): LedgerRecord => ({
  ...stamp,
  type: 'ended',
  trial,
  execution,
  blame,
  reason: { code: 'x', message: 'y' },
})
const recorded = (trial: string, execution: string): LedgerRecord => ({
  ...stamp,
  type: 'recorded',
  trial,
  execution,
  verdict: 'void',
  result: `trials/${trial}/result.json`,
  digest: 'sha256:0',
})

void t.test('a ledger says what became of a trial, in the order in which it was told', (t) => {
  const life: readonly (readonly [LedgerRecord, object])[] = [
    [started('t1', 'e1', ['a', 'b']), { status: 'running', current: { leases: ['a', 'b'] } }],
    [ended('t1', 'e1', 'infra'), { status: 'pending', executions: [{ blame: 'infra' }] }],
    [started('t2', 'e9'), { status: 'pending' }],
    [started('t1', 'e2'), { status: 'running', current: { execution: 'e2' } }],
    [ended('t1', 'e2', 'infra'), { status: 'pending' }],
    [recorded('t1', 'e2'), { status: 'recorded', verdict: 'void', digest: 'sha256:0' }],
    // given another chance
    [started('t1', 'e3'), { status: 'running', current: { execution: 'e3' } }],
    [ended('t1', 'e3', null), { status: 'recorded' }],
    [recorded('t1', 'e3'), { status: 'recorded' }],
  ]
  const records: LedgerRecord[] = []
  for (const [record, state] of life) {
    records.push(record)
    t.match(foldTrial('t1', records), state, `${record.type} ${record.execution}`)
  }
  t.equal(foldTrial('t1', records).executions.length, 3)
  t.end()
})

void t.test('a line torn by a crash costs itself and nothing else', async (t) => {
  await using scratch = await Scratch.make()
  const path = join(scratch.path, 'ledger.jsonl')
  await appendLedger(path, [started('t1', 'e1'), ended('t1', 'e1', 'infra')])
  const whole = await readFile(path)
  const secondLine = whole.indexOf(0x0a) + 1
  const random = new Random(3)
  const cuts = [secondLine + 1, whole.length - 2, random.int(secondLine + 1, whole.length - 2)]
  for (const cutAt of cuts) {
    await writeFile(path, whole.subarray(0, cutAt))
    await appendLedger(path, [started('t1', 'e2')])
    const { records } = await readLedger(path)
    t.strictSame(
      records.map(({ type, execution }) => `${type} ${execution}`),
      ['started e1', 'started e2'],
      `cut at ${cutAt}`,
    )
  }
  await appendFile(path, 'garbage\n{"v":2}\n')
  await appendLedger(path, [recorded('t1', 'e2')])
  t.equal((await readLedger(path)).records.length, 3)
  t.strictSame(await readLedger(join(scratch.path, 'none')), { records: [] })
})
