/** Which leases are of which trial, from an index that a crash may tear and an operator may outdate. */
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import t from 'tap'
import { writeDurably } from '../../../daemon/lease/journal.ts'
import { TrialIndex, type IndexedLease } from '../../../daemon/lease/trial-index.ts'

const folder = await mkdtemp(path.join(os.tmpdir(), 'index-'))
t.teardown(() => rm(folder, { recursive: true, force: true }))
let files = 0
const newFile = (): string => path.join(folder, `${(files += 1)}.jsonl`)
const lease = (n: number, trial: string | null = 't'): IndexedLease => ({
  lease: `lease${n}`,
  trial,
  createdAt: `2026-01-01T00:00:0${n}.000Z`,
})
const names = (...numbers: number[]): Set<string> => new Set(numbers.map((n) => `lease${n}`))
/** `records`: what the journal has of the leases. */
async function open(
  file: string,
  present: ReadonlySet<string>,
  records: readonly IndexedLease[] = [],
): Promise<{ index: TrialIndex; asked: string[] }> {
  const asked: string[] = []
  const missing = async (name: string): Promise<IndexedLease | null> => {
    asked.push(name)
    return records.find((each) => each.lease === name) ?? null
  }
  return { index: await TrialIndex.open(file, present, missing, writeDurably), asked }
}

void t.test(
  'leases are found by trial, oldest first, now and by the next daemon, without a record being read',
  async (t) => {
    const file = newFile()
    const { index } = await open(file, names())
    for (const each of [lease(2), lease(1), lease(3, 'other'), lease(4, null), lease(1)])
      await index.add(each)
    const look = (of: TrialIndex): unknown => [
      of.ofTrial('t'),
      of.ofTrial('other'),
      of.ofTrial('none'),
      of.all(),
    ]
    const expected = [
      ['lease1', 'lease2'],
      ['lease3'],
      [],
      ['lease1', 'lease2', 'lease3', 'lease4'],
    ]
    t.strictSame(look(index), expected)
    t.equal((await readFile(file, 'utf8')).trim().split('\n').length, 4, 'a line a lease')
    const next = await open(file, names(1, 2, 3, 4))
    t.strictSame(look(next.index), expected)
    t.strictSame(next.asked, [])
  },
)

void t.test(
  'what a crash kept from it comes from the records, what is gone goes, and a torn line heals',
  async (t) => {
    const file = newFile()
    const text = [lease(1), lease(2)].map((each) => `${JSON.stringify(each)}\n`).join('')
    await writeFile(file, `${text}{"v":0}\nnot json\n{"lease":"lea`)
    const { index, asked } = await open(file, names(2, 3, 4), [lease(3)])
    t.strictSame(index.ofTrial('t'), ['lease2', 'lease3'])
    t.strictSame(asked, ['lease3', 'lease4'])
    await index.add(lease(5))
    const lines = (await readFile(file, 'utf8')).trim().split('\n')
    t.strictSame(
      lines.map((line) => (JSON.parse(line) as IndexedLease).lease),
      ['lease2', 'lease3', 'lease5'],
    )
    t.strictSame((await open(file, names(2, 3, 5))).index.ofTrial('t'), [
      'lease2',
      'lease3',
      'lease5',
    ])
  },
)

void t.test('a lease that is opened again under its id belongs to its last trial', async (t) => {
  const file = newFile()
  const { index } = await open(file, names())
  await index.add(lease(1))
  await index.add({ ...lease(1, 'later'), createdAt: '2026-01-02T00:00:00.000Z' })
  for (const each of [index, (await open(file, names(1))).index]) {
    t.strictSame(each.ofTrial('t'), [])
    t.strictSame(each.ofTrial('later'), ['lease1'])
  }
})

void t.test('whoever watches is told of new leases until they no longer do', async (t) => {
  const { index } = await open(newFile(), names())
  const told: string[] = []
  {
    using _watch = index.watch(({ lease: name }) => told.push(name))
    await index.add(lease(1))
    await index.add(lease(1))
  }
  await index.add(lease(2))
  t.strictSame(told, ['lease1'])
})
