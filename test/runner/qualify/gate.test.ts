/** Gate and reviews over files beside a task: no engine, no daemon. */
import { readFile, writeFile } from 'node:fs/promises'
import path from 'node:path'
import t from 'tap'
import { exitCodeOf } from '../../../runner/exit-codes.ts'
import { gateTasks, modeFor } from '../../../runner/qualify/gate.ts'
import {
  readQualification,
  writeQualification,
  type Qualification,
} from '../../../runner/qualify/document.ts'
import { boundTo, standingOf, taskFiles } from '../../../runner/qualify/standing.ts'
import { appendReview, currentReview, readReviews } from '../../../runner/review/reviews.ts'
import { loadTask } from '../../../runner/task/load.ts'
import type { Task } from '../../../runner/task/task.ts'
import { failureOf, Scratch } from '../support/scratch.ts'
import { sample } from '../support/tasks.ts'

const image = `sha256:${'4'.repeat(64)}`

async function documentOf(
  task: Task,
  changes: Partial<Qualification> = {},
): Promise<Qualification> {
  return {
    schema: 'closedbook.qualification/1',
    task: task.name,
    qualified: true,
    startedAt: '2026-01-01T00:00:00.000Z',
    endedAt: '2026-01-01T00:01:00.000Z',
    closedbookVersion: '0.0.0',
    hardware: 'cpu',
    host: { name: 'h', engine: 'e', kernel: 'k', cpus: 2, gpus: [] },
    repeats: 3,
    concurrency: 1,
    digests: await boundTo(task, image),
    files: await taskFiles(task),
    findings: [],
    expected: { functional: ['functional.test_a::test_a'], regression: [] },
    tests: [],
    times: { noop: null, oracle: null },
    limits: [],
    trials: [],
    evidence: 'qualify-1',
    ...changes,
  }
}

const images = new Map([['org/sample', image]])
const review = (task: Task, changes = {}) => ({
  task: task.name,
  at: '2026-01-02T00:00:00.000Z',
  decision: 'include' as const,
  by: 'Ada',
  reason: 'clear and hard',
  qualification: null,
  probe: null,
  digests: { task: task.digest, tests: task.testsDigest, instruction: task.instructionDigest },
  closedbookVersion: '0.0.0',
  ...changes,
})

t.test('a task is let in by what is known of it', async (t) => {
  await using scratch = await Scratch.make()
  const dir = await sample(scratch)
  const gate = async (mode: Parameters<typeof gateTasks>[2], of = images) =>
    gateTasks([await loadTask(dir)], of, mode)
  const refusal = async (mode: Parameters<typeof gateTasks>[2], of = images) =>
    failureOf(() => gate(mode, of))

  t.match((await refusal('qualified')).message, /org\/sample was never qualified\n.*--unqualified/)
  t.equal(exitCodeOf(await refusal('qualified')), 65)
  t.strictSame([...(await gate('any'))], [['org/sample', null]], 'told to take any, it takes it')

  const task = await loadTask(dir)
  await writeQualification(dir, await documentOf(task, { qualified: false }))
  t.match((await refusal('qualified')).message, /org\/sample did not qualify/)

  const { digest } = await writeQualification(dir, await documentOf(task))
  const kept = { digest, at: '2026-01-01T00:01:00.000Z', review: null }
  t.strictSame([...(await gate('qualified'))], [['org/sample', kept]])
  t.strictSame((await loadTask(dir)).digest, task.digest, 'evidence is no part of the task')
  t.strictSame(
    (await loadTask(dir)).suites.functional.expected,
    ['functional.test_a::test_a'],
    'and its ids are those that must be reported',
  )

  t.match((await refusal('included')).message, /has no review of its current qualification/)
  await appendReview(dir, review(task, { qualification: digest }))
  const decided = { decision: 'include', by: 'Ada', at: '2026-01-02T00:00:00.000Z' }
  t.strictSame([...(await gate('included'))], [['org/sample', { ...kept, review: decided }]])
  await appendReview(
    dir,
    review(task, { decision: 'exclude', by: 'Bob', reason: 'too easy', qualification: digest }),
  )
  t.match((await refusal('included')).message, /was excluded by Bob: too easy/)
  t.strictSame((await gate('qualified')).size, 1, 'a job that asks for qualified tasks takes it')

  await scratch.write('tests/functional/test_a.py', 'def test_a(): assert True\n')
  t.match(
    (await refusal('qualified')).message,
    /was qualified before it changed: tests \(tests\/functional\/test_a\.py\)/,
  )
  t.strictSame([...(await gate('any'))], [['org/sample', null]], 'what is stale counts for nothing')
  t.strictSame((await loadTask(dir)).suites.functional.expected, null, 'nor do its ids')
  t.match(await standingOf(await loadTask(dir), null), { state: 'stale', rebuilt: false })

  await writeFile(path.join(dir, 'closedbook/qualification.json'), '{')
  t.match((await refusal('qualified')).message, /qualification\.json is damaged.*make it again/)
  t.strictSame([...(await gate('any'))], [['org/sample', null]])
})

t.test('an image that was built again from the same recipe is the same', async (t) => {
  await using scratch = await Scratch.make()
  const task = await loadTask(await sample(scratch))
  await writeQualification(task.dir, await documentOf(task))
  const other = `sha256:${'5'.repeat(64)}`
  t.match(await standingOf(task, other), {
    state: 'qualified',
    rebuilt: true,
    changed: { length: 0 },
  })
  await scratch.write('environment/Dockerfile', 'FROM scratch\nENV A=1\n')
  t.match(await standingOf(await loadTask(task.dir), other), {
    state: 'stale',
    changed: ["the image's recipe (environment/ or its base)"],
  })
})

t.test(
  'agents that are scored need qualified tasks, those that try a task out do not',
  async (t) => {
    const [mini, noop, oracle, script] = (
      ['mini-swe-agent', 'noop', 'oracle', 'script'] as const
    ).map((kind) => ({ kind }))
    if (!mini || !noop || !oracle || !script) throw new Error('four harnesses')
    t.equal(modeFor([noop, oracle, script], undefined), 'any')
    t.equal(modeFor([noop, mini], undefined), 'qualified')
    t.equal(modeFor([mini], 'any'), 'any')
    t.equal(modeFor([noop], 'included'), 'included', 'what a job demands holds for all')
  },
)

t.test(
  'an inclusion holds over its qualification alone, an exclusion until the next decision',
  async (t) => {
    await using scratch = await Scratch.make()
    const task = await loadTask(await sample(scratch))
    const { digest } = await writeQualification(task.dir, await documentOf(task))
    const first = await appendReview(task.dir, review(task, { qualification: digest }))
    const again = await writeQualification(task.dir, await documentOf(task, { repeats: 5 }))
    const reviews = await readReviews(task.dir)
    t.strictSame(currentReview(reviews, digest), first)
    t.equal(currentReview(reviews, again.digest), null)
    const out = await appendReview(
      task.dir,
      review(task, { decision: 'exclude', qualification: digest }),
    )
    t.strictSame(currentReview(await readReviews(task.dir), again.digest), out)
    const back = await appendReview(task.dir, review(task, { qualification: again.digest }))
    t.strictSame(currentReview(await readReviews(task.dir), again.digest), back)
    t.equal((await readQualification(task.dir))?.digest, again.digest)
  },
)

t.test('decisions are appended, and one that was edited or taken out shows', async (t) => {
  await using scratch = await Scratch.make()
  const task = await loadTask(await sample(scratch))
  for (const by of ['Ada', 'Bob', 'Cleo']) await appendReview(task.dir, review(task, { by }))
  const file = path.join(task.dir, 'closedbook/reviews.jsonl')
  const lines = (await readFile(file, 'utf8')).trim().split('\n')
  t.strictSame(
    (await readReviews(task.dir)).map(({ by }) => by),
    ['Ada', 'Bob', 'Cleo'],
  )
  const damages: readonly (readonly [string, readonly (string | undefined)[]])[] = [
    ['taken out', [lines[0], lines[2]]],
    ['edited', [lines[0]?.replace('include', 'exclude'), lines[1], lines[2]]],
    ['turned round', [lines[1], lines[0]]],
    ['no JSON', [...lines, '{']],
  ]
  for (const [what, damaged] of damages) {
    await writeFile(file, `${damaged.join('\n')}\n`)
    t.match((await failureOf(() => readReviews(task.dir))).message, /reviews\.jsonl: line \d/, what)
    const append = failureOf(() => appendReview(task.dir, review(task)))
    t.match((await append).message, /only ever appended/, `${what}: nothing is added to it`)
  }
})
