/** An interrupted set of trials is gone on with, by one process, from what is recorded and whole. */
import { mkdir, rm, writeFile } from 'node:fs/promises'
import path from 'node:path'
import t from 'tap'
import { plainConfiguration } from '../../../runner/job/configuration.ts'
import { planFile, resultFile } from '../../../runner/job/layout.ts'
import { makePlan, plainHarnessDigest, type Plan } from '../../../runner/job/plan.ts'
import { writeResult } from '../../../runner/result.ts'
import { openSet } from '../../../runner/qualify/open-set.ts'
import { loadTask } from '../../../runner/task/load.ts'
import { sampleResult } from '../support/result.ts'
import { Scratch } from '../support/scratch.ts'
import { sample } from '../support/tasks.ts'

const image = `sha256:${'1'.repeat(64)}`

async function planOf(dir: string, job: string): Promise<Plan> {
  const configuration = await plainConfiguration('noop', '/')
  const drivers = [{ configuration, harnessDigest: plainHarnessDigest(configuration, '1.0.0') }]
  return makePlan({
    ...{ name: 'qualify sample', runs: 3, closedbookVersion: '1.0.0', now: new Date(), job },
    tasks: [{ task: await loadTask(dir), image }],
    configurations: drivers,
  })
}

void t.test('what is recorded stands; what is damaged runs again', async (t) => {
  await using scratch = await Scratch.make()
  await using task = await Scratch.make()
  const dir = await sample(task)
  const first = await planOf(dir, 'qualify-1')
  const open = (plan: Plan, fresh = false) => openSet(scratch.path, plan, { fresh })
  const record = (plan: Plan, index: number) => {
    const trial = plan.trials[index]?.trial ?? ''
    const file = resultFile(path.join(scratch.path, plan.job), trial)
    return writeResult(file, sampleResult({ trial, job: plan.job }))
  }
  const fileOf = (index: number): string =>
    resultFile(path.join(scratch.path, first.job), first.trials[index]?.trial ?? '')
  {
    await using own = await open(first)
    t.same([own.plan.job, own.ended.length], ['qualify-1', 0])
    await record(first, 0)
    await using other = await open(await planOf(dir, 'qualify-2'))
    t.equal(other.plan.job, 'qualify-2', 'a set that is being run is left to who runs it')
  }
  await rm(path.join(scratch.path, 'qualify-2'), { recursive: true })
  await mkdir(path.dirname(fileOf(1)), { recursive: true })
  const foreign = JSON.stringify(sampleResult())
  for (const damaged of ['{"schema": "closedb', '', '{}', 'null', foreign]) {
    await writeFile(fileOf(1), damaged)
    await using again = await open(await planOf(dir, 'qualify-2'))
    t.equal(again.plan.job, 'qualify-1')
    t.same(
      again.ended.map(({ planned }) => planned.run),
      [1],
      damaged.slice(0, 20),
    )
  }
  {
    await using fresh = await open(await planOf(dir, 'qualify-3'), true)
    t.equal(fresh.plan.job, 'qualify-3')
    await writeFile(planFile(fresh.directory), '{"schema": "clo')
  }
  {
    await using over = await open(await planOf(dir, 'qualify-4'))
    t.equal(over.plan.job, 'qualify-1', 'a set whose plan is damaged is passed over')
    await record(first, 1)
    await record(first, 2)
  }
  {
    await using whole = await open(await planOf(dir, 'qualify-4'))
    t.equal(whole.plan.job, 'qualify-4', 'a whole one is not gone on with')
  }
  await task.write('instruction.md', 'Do other work.\n')
  await using changed = await open(await planOf(dir, 'qualify-5'))
  t.equal(changed.plan.job, 'qualify-5', 'nor one of the task as it was')
})
