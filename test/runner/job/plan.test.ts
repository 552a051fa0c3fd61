import { join } from 'node:path'
import { readFile } from 'node:fs/promises'
import t from 'tap'
import { plainConfiguration } from '../../../runner/job/configuration.ts'
import { findTrial } from '../../../runner/job/find-trial.ts'
import { appendLedger } from '../../../runner/job/ledger.ts'
import {
  makePlan,
  newJobId,
  plainHarnessDigest,
  plannedConfiguration,
  plannedTask,
  readPlan,
  requireUnchanged,
  trialId,
  writePlan,
  type Plan,
} from '../../../runner/job/plan.ts'
import { loadTask } from '../../../runner/task/load.ts'
import { Scratch, failureOf } from '../support/scratch.ts'

const now = new Date('2025-01-02T03:04:05.678Z')
const image = `sha256:${'1'.repeat(64)}`

async function loaded(scratch: Scratch, name: string) {
  await scratch.write(
    `${name}/task.toml`,
    `[task]\nname = "org/${name}"\n[closedbook.functional]\ncommand = "x"\n`,
  )
  await scratch.write(`${name}/instruction.md`, 'Do it.')
  await scratch.write(`${name}/environment/Dockerfile`, 'FROM scratch')
  await scratch.write(`${name}/tests/test.sh`, '')
  return loadTask(join(scratch.path, name))
}

async function sample(scratch: Scratch, job?: string): Promise<Plan> {
  const tasks = [await loaded(scratch, 'one'), await loaded(scratch, 'two')]
  const configurations = [
    await plainConfiguration('noop', '/'),
    await plainConfiguration('oracle', '/'),
  ]
  return makePlan({
    name: 'sample',
    tasks: tasks.map((task) => ({ task, image })),
    configurations: configurations.map((configuration) => ({
      configuration,
      harnessDigest: plainHarnessDigest(configuration, '0.1.0'),
    })),
    runs: 3,
    closedbookVersion: '0.1.0',
    now,
    ...(job !== undefined && { job }),
  })
}

void t.test('a plan has every task, configuration and run once, runs outermost', async (t) => {
  await using scratch = await Scratch.make()
  const plan = await sample(scratch)
  t.equal(plan.trials.length, 12)
  t.strictSame(
    plan.trials.map((trial) => trial.run),
    [1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3],
  )
  t.equal(
    new Set(plan.trials.map(({ task, configuration, run }) => `${task} ${configuration} ${run}`))
      .size,
    12,
  )
  t.match(plan.job, /^j20250102-030405-[a-z0-9]{4}$/)
  t.match(plan.tasks[0], { name: 'org/one', image, digest: /^sha256:/, testsDigest: /^sha256:/ })
  t.match(plan.configurations[1], {
    name: 'oracle',
    harness: 'oracle',
    model: null,
    price: null,
    policyDigest: /^sha256:/,
  })
})

void t.test('trial ids are stable, distinct and say nothing', async (t) => {
  await using scratch = await Scratch.make()
  const plan = await sample(scratch, 'job-a')
  const again = await sample(scratch, 'job-a')
  const ids = plan.trials.map(({ trial }) => trial)
  t.strictSame(again.trials, plan.trials)
  t.equal(new Set(ids).size, ids.length)
  for (const id of ids) t.match(id, /^t[a-z2-9]{15}$/)
  t.not(trialId('job-b', 'org/one', 'noop', 1), ids[0])
  t.not(trialId('a', 'b,c', 'd', 1), trialId('a', 'b', 'c,d', 1))
})

void t.test('job ids sort by time', (t) => {
  const ids = [
    newJobId(new Date('2025-12-31T23:59:59Z')),
    newJobId(new Date('2024-01-01T00:00:00Z')),
  ]
  t.ok((ids[1] ?? '') < (ids[0] ?? ''))
  t.end()
})

void t.test('a plan survives its file', async (t) => {
  await using scratch = await Scratch.make()
  const plan = await sample(scratch)
  const path = join(scratch.path, 'job/plan.json')
  await writePlan(path, plan)
  t.strictSame(await readPlan(path), plan)
  const text = await readFile(path, 'utf8')
  t.ok(text.endsWith('}\n'))
})

void t.test('a plan that can not be read is told', async (t) => {
  await using scratch = await Scratch.make()
  const none = await failureOf(() => readPlan(join(scratch.path, 'none/plan.json')))
  t.match(none, { code: 'job_unknown', message: /no plan at .*; check the job's name/ })
  const broken = await scratch.write('plan.json', '{')
  t.match(await failureOf(() => readPlan(broken)), { code: 'plan_invalid', message: /is not JSON/ })
  await scratch.write('plan.json', '{"schema":"closedbook.plan/2"}')
  t.match(await failureOf(() => readPlan(broken)), {
    code: 'plan_invalid',
    message: /is not a closedbook\.plan\/1: schema: /,
  })
})

void t.test('two tasks or configurations of one name are refused', async (t) => {
  await using scratch = await Scratch.make()
  const task = { task: await loaded(scratch, 'one'), image }
  const configuration = {
    configuration: await plainConfiguration('noop', '/'),
    harnessDigest: image,
  }
  const base = {
    name: 'n',
    tasks: [task],
    configurations: [configuration],
    runs: 1,
    closedbookVersion: '0',
    now,
  }
  t.throws(() => makePlan({ ...base, tasks: [task, task] }), {
    message: /two tasks are called "org\/one".*rename one/,
  })
  t.throws(() => makePlan({ ...base, configurations: [configuration, configuration] }), {
    message: /two configurations are called "noop"/,
  })
})

void t.test('a job goes on only as it was planned', async (t) => {
  await using scratch = await Scratch.make()
  const plan = await sample(scratch)
  const { tasks, configurations } = plan
  t.doesNotThrow(() => requireUnchanged(plan, { tasks, configurations }))
  await scratch.write('one/tests/test.sh', 'changed')
  const changed = plannedTask(await loadTask(join(scratch.path, 'one')), image)
  const [, two] = tasks
  const error = await failureOf(() =>
    requireUnchanged(plan, {
      tasks: two === undefined ? [changed] : [changed, two],
      configurations,
    }),
  )
  t.match(error, {
    code: 'plan_changed',
    message:
      /the digest of task org\/one was sha256:.* and is sha256:.*Put the planned version back, or start a new job/,
  })
  const other = plannedConfiguration(
    await plainConfiguration('noop', '/'),
    `sha256:${'2'.repeat(64)}`,
  )
  const second = await failureOf(() => requireUnchanged(plan, { tasks, configurations: [other] }))
  t.match(
    second.message,
    /the harnessDigest of configuration noop was .*configuration oracle is gone/,
  )
})

void t.test('a trial is found by its id and by that of a lease it had', async (t) => {
  await using scratch = await Scratch.make()
  const jobs = join(scratch.path, 'jobs')
  const plan = await sample(scratch, 'job-a')
  const [first, second] = plan.trials
  await writePlan(join(jobs, 'job-a/plan.json'), plan)
  await scratch.write('jobs/broken/plan.json', '{')
  await appendLedger(join(jobs, 'job-a/ledger.jsonl'), [
    {
      v: 1,
      time: now.toISOString(),
      type: 'started',
      trial: second?.trial ?? '',
      execution: 'e1',
      leases: ['lease12345678'],
    },
  ])
  t.match(await findTrial(jobs, first?.trial ?? ''), {
    planned: first,
    trialDir: join(jobs, 'job-a/trials', first?.trial ?? ''),
  })
  t.match(await findTrial(jobs, 'lease12345678'), { planned: second })
  t.equal(await findTrial(jobs, 'nothing'), null)
  t.equal(await findTrial(join(scratch.path, 'none'), 'nothing'), null)
})
