/** The store itself, on a real PostgreSQL: claims, fences, limits and what a lost database costs. */
import { once } from 'node:events'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import t from 'tap'
import { clusterDirectory, clusterRuns, stopCluster } from '../../../runner/store/cluster.ts'
import {
  lockPlan,
  readStoredPlan,
  releaseJob,
  reopenJob,
  setPlanState,
  takeJob,
} from '../../../runner/store/plans.ts'
import type { DaemonClient } from '../../../daemon/protocol/client.ts'
import type { RunnerConfig } from '../../../runner/config.ts'
import { waitingGroups } from '../../../runner/store/claim.ts'
import { JobCache } from '../../../runner/worker/job-cache.ts'
import { settle } from '../../../runner/store/settle.ts'
import { Store } from '../../../runner/store/store.ts'
import { allJobs, executionsOf, resultsOf, standingOf } from '../../../runner/store/trials.ts'
import { registerWorker } from '../../../runner/store/workers.ts'
import { maxExecutions } from '../../../runner/job/trial-state.ts'
import { Scratch, failureOf } from '../support/scratch.ts'
import {
  claim,
  faultedEnd,
  granted,
  otherProcess,
  passedEnd,
  plannedJob,
  testStore,
} from './setup.ts'

const context = await testStore(t)
const { store, stateDir } = context

const facts = { daemon: '/nowhere.sock', classes: ['cpu'], slots: 4 } as const
const serverPid = async (stateDir: string): Promise<number> =>
  Number(
    (await readFile(join(clusterDirectory(stateDir), 'postmaster.pid'), 'utf8')).split('\n')[0],
  )

void t.test('several that come at once to an empty state directory share one server', async (t) => {
  await using scratch = await Scratch.make()
  // longer than a socket's path may be
  const stateDir = join(scratch.path, 'deep'.repeat(30), 'state')
  const stores = await Promise.all(
    Array.from({ length: 3 }, () => Store.open({ stateDir, heartbeatSeconds: 120 })),
  )
  for (const one of stores) {
    const [row] = await one.database.rows<{ fsync: string; listen: string }>(
      `select current_setting('fsync') as fsync, current_setting('listen_addresses') as listen`,
    )
    t.strictSame(row, { fsync: 'on', listen: '' })
    await one[Symbol.asyncDispose]()
  }
  t.equal(await clusterRuns(stateDir), true, 'it outlives those who used it')
  t.equal(await stopCluster(stateDir), true)
  t.equal(await clusterRuns(stateDir), false)
  t.equal(await stopCluster(stateDir), false)
})

void t.test('a job is in the store once, and its trials are claimed once each', async (t) => {
  const plan = await plannedJob(context, { configurations: ['a', 'b'], runs: 3 })
  const stored = await readStoredPlan(store.database, plan.job)
  if (stored === null) throw new Error('not stored')
  t.strictSame(stored.plan, plan)
  // as after a commit whose answer was lost
  await lockPlan(store, {
    plan,
    sources: stored.sources,
    jobDir: 'elsewhere',
    limits: stored.limits,
    hostKey: 'another',
    loads: new Map(),
  })
  const { jobDir, hostKey } = stored
  t.match(await readStoredPlan(store.database, plan.job), { jobDir, hostKey })
  t.equal(hostKey, 'key')
  const workers = await Promise.all([registerWorker(store, facts), registerWorker(store, facts)])
  const second = await context.open()
  const outcomes = await Promise.all(
    Array.from({ length: 10 }, (_, n) =>
      claim(n % 2 === 0 ? store : second, workers[n % 2] ?? '', plan),
    ),
  )
  const trials = outcomes.flatMap((one) => (one.kind === 'claimed' ? [one.claim.trial] : []))
  t.strictSame(trials.toSorted(), plan.trials.map(({ trial }) => trial).toSorted())
  t.match(await standingOf(store.database, plan.job), { live: 6, waiting: 0, recorded: 0 })
})

void t.test('trials come in the order of the plan, and a retried one first', async (t) => {
  const plan = await plannedJob(context, { configurations: ['a'], runs: 3 })
  const worker = await registerWorker(store, facts)
  const first = granted(await claim(store, worker, plan))
  t.equal(first.trial, plan.trials[0]?.trial)
  t.equal(await settle(store, first, faultedEnd(first)), 'settled')
  const again = granted(await claim(store, worker, plan))
  t.equal(again.trial, first.trial)
  t.match(again.executions, [{ blame: 'infra', reason: { code: 'sandbox_gone' } }, { blame: null }])
  t.not(again.execution, first.execution)
  t.equal(granted(await claim(store, worker, plan)).trial, plan.trials[1]?.trial)
})

void t.test(
  'whoever lost a trial can not settle it, and a settled one stays settled',
  async (t) => {
    const plan = await plannedJob(context, { configurations: ['a'], runs: 1 })
    const [planned] = plan.trials
    if (planned === undefined) throw new Error('no trial')
    const worker = await registerWorker(store, facts)
    const zombie = granted(await claim(store, worker, plan))
    // as the sweep does with an entry whose heartbeat was missed
    await store.transaction((sql) => store.queue.putBack('cpu', zombie.attempt, sql))
    const live = granted(await claim(store, worker, plan))
    t.match(await executionsOf(store.database, planned.trial), [
      { execution: zombie.execution, blame: 'infra', reason: { code: 'worker_lost' } },
      { execution: live.execution, endedAt: null },
    ])
    t.equal(await settle(store, zombie, passedEnd(zombie, planned)), 'superseded')
    t.strictSame(await resultsOf(store.database, plan.job, []), [])
    t.strictSame(await store.queue.touch('cpu', [zombie.attempt, live.attempt]), [live.attempt.id])
    const end = passedEnd(live, planned)
    t.equal(await settle(store, live, end), 'settled')
    t.equal(await settle(store, live, end), 'settled', 'told twice, for the answer may be lost')
    t.equal(await settle(store, zombie, passedEnd(zombie, planned)), 'superseded')
    const results = await resultsOf(store.database, plan.job, [])
    t.match(results, [{ trial: planned.trial, execution: live.execution, body: end.result?.body }])
    const double = store.database.rows(
      `insert into closedbook.results select trial, execution, verdict, blame, digest, cost_usd, wall_time_ms, body, now() from closedbook.results where trial = $1`,
      [planned.trial],
    )
    await t.rejects(double, /one_standing_result/, 'the second fence')
  },
)

void t.test('a trial whose worker fell silent is given to another', async (t) => {
  const plan = await plannedJob(context, { configurations: ['a'], runs: 1 })
  const worker = await registerWorker(store, facts)
  const silent = granted(await claim(store, worker, plan))
  await store.queue.sweep()
  t.match(await claim(store, worker, plan), { kind: 'none' }, 'not before its time')
  await store.database.rows(
    `update closedbook_queue.job set heartbeat_on = now() - interval '121 seconds' where id = $1`,
    [silent.attempt.id],
  )
  // the queue looks at most this often
  await store.database.rows(
    `update closedbook_queue.queue set monitor_claim_on = null, monitor_on = null`,
  )
  await store.queue.sweep()
  const next = granted(await claim(store, worker, plan))
  t.match(next.executions, [{ reason: { code: 'worker_lost' } }, { endedAt: null }])
  t.equal(next.faults, 1)
})

void t.test(
  'infra may spoil three executions and no more, unless another chance is given',
  async (t) => {
    const plan = await plannedJob(context, { configurations: ['a'], runs: 1 })
    const worker = await registerWorker(store, facts)
    for (let n = 0; n < maxExecutions; n += 1) {
      const held = granted(await claim(store, worker, plan))
      t.equal(held.faults, n)
      await settle(store, held, faultedEnd(held))
    }
    t.match(await claim(store, worker, plan), { kind: 'spent', claim: { faults: maxExecutions } })
    const trial = plan.trials[0]?.trial ?? ''
    await store.database.rows(
      `insert into closedbook.results (trial, execution, verdict, blame, digest, cost_usd, wall_time_ms, body) values ($1, 'x', 'void', 'infra', 'd', 0, 0, '{}')`,
      [trial],
    )
    t.match(await reopenJob(store, plan.job, { retryVoid: false, budgetUsd: null }), { retried: 0 })
    t.match(await reopenJob(store, plan.job, { retryVoid: true, budgetUsd: null }), { retried: 1 })
    await store.database.rows(
      `update closedbook_queue.job set state = 'retry' where data ->> 'trial' = $1`,
      [trial],
    )
    t.equal(granted(await claim(store, worker, plan)).faults, 0)
  },
)

const limits = [
  { what: 'trials of a job', limits: { trialsAtOnce: 3 }, most: 3 },
  { what: 'trials of a configuration', limits: { perConfiguration: 2 }, most: 4 },
  { what: 'slots of an endpoint', limits: { perEndpoint: 1 }, most: 1 },
]
for (const { what, limits: own, most } of limits)
  void t.test(`${what} are never more than allowed, however many ask`, async (t) => {
    const load = { endpoint: `https://${what.replaceAll(' ', '-')}.example/v1` }
    const plan = await plannedJob(context, {
      configurations: ['a', 'b'],
      runs: 6,
      limits: own,
      load,
    })
    const worker = await registerWorker(store, facts)
    let done = 0
    for (let round = 0; done < plan.trials.length && round < 20; round += 1) {
      const outcomes = await Promise.all(
        Array.from({ length: 12 }, () => claim(store, worker, plan)),
      )
      const held = outcomes.flatMap((one) => (one.kind === 'claimed' ? [one.claim] : []))
      t.ok(held.length > 0 && held.length <= most, `${held.length} of ${most}`)
      for (const one of held) {
        const planned = plan.trials.find(({ trial }) => trial === one.trial)
        if (planned !== undefined) await settle(store, one, passedEnd(one, planned))
      }
      done += held.length
    }
    t.equal(done, plan.trials.length)
    t.match(await store.database.rows('select count(*)::int as n from closedbook.endpoint_slots'), [
      { n: 0 },
    ])
  })

void t.test('a job that can not pay for another trial begins none', async (t) => {
  const plan = await plannedJob(context, {
    configurations: ['a'],
    runs: 6,
    limits: { budgetUsd: 3 },
    load: { ceilingUsd: 2 },
  })
  const worker = await registerWorker(store, facts)
  const settleOne = async (costUsd: number): Promise<void> => {
    const held = granted(await claim(store, worker, plan))
    const planned = plan.trials.find(({ trial }) => trial === held.trial)
    if (planned === undefined) throw new Error('not planned')
    if (held.trial === plan.trials[0]?.trial)
      t.match(
        await claim(store, worker, plan),
        { kind: 'none', overBudget: [{ spentUsd: 0, reservedUsd: 2, nextUsd: 2, usd: 3 }] },
        'before one has ended each counts as much as it may cost',
      )
    await settle(store, held, passedEnd(held, planned, costUsd))
  }
  await settleOne(1)
  await settleOne(1)
  await settleOne(0.7)
  t.match(await claim(store, worker, plan), {
    kind: 'none',
    overBudget: [{ spentUsd: 2.7, usd: 3 }],
  })
  await reopenJob(store, plan.job, { retryVoid: false, budgetUsd: 10 })
  granted(await claim(store, worker, plan))
})

void t.test('only open jobs are claimed from, and only what the host serves', async (t) => {
  const one = await plannedJob(context, { configurations: ['a'], runs: 2 })
  const gpu = await plannedJob(context, { configurations: ['a'], runs: 2, hardware: 'h100' })
  const worker = await registerWorker(store, facts)
  t.match(await claim(store, worker, gpu), { kind: 'none' })
  for (const state of ['paused', 'cancelled'] as const) {
    await setPlanState(store, one.job, state, state)
    t.match(await claim(store, worker, one), { kind: 'none' }, state)
    await reopenJob(store, one.job, { retryVoid: false, budgetUsd: null })
  }
  t.equal(granted(await claim(store, worker, one)).job, one.job)
  const jobs = await allJobs(store.database)
  t.match(
    jobs.find(({ job }) => job === one.job),
    { running: 1, trials: 2 },
  )
  t.match(
    jobs.find(({ job }) => job === gpu.job),
    { running: 0, trials: 2 },
  )
})

void t.test(
  'a worker that lives on forgets a job that is over, and says that it ended',
  async (t) => {
    const plan = await plannedJob(context, { configurations: ['noop'], runs: 1 })
    const worker = await registerWorker(store, facts)
    const published: { at: string; state?: string }[] = []
    const client = {
      call: async (_method: string, at: string, { body }: { body: { state?: string } }) =>
        void published.push({ at, ...(body.state !== undefined && { state: body.state }) }),
      inspectImage: () => Promise.reject(new Error('not here')),
    } as unknown as DaemonClient
    const nobody = (): void => {}
    const watch = { ...{ started: nobody, phase: nobody, step: nobody, note: nobody } }
    await using jobs = await JobCache.open({
      ...{ store, client, say: (text) => t.comment(text), signal: new AbortController().signal },
      config: { stateDir, jobsDir: join(stateDir, 'jobs') } as RunnerConfig,
      watch: { ...watch, faulted: nobody, recorded: nobody },
    })
    const groups = await waitingGroups(store.database)
    await jobs.prepare(groups.filter(({ job }) => job === plan.job))
    t.equal(jobs.get(plan.job)?.plan.job, plan.job)
    const held = granted(await claim(store, worker, plan))
    for (let look = 1; look <= 2; look += 1) await jobs.letGo()
    t.ok(jobs.get(plan.job), 'it is being worked on')
    const [planned] = plan.trials
    if (planned === undefined) throw new Error('a job of one trial')
    await settle(store, held, passedEnd(held, planned))
    await jobs.letGo()
    t.ok(jobs.get(plan.job), 'the last of it may still be on its way')
    await jobs.letGo()
    t.equal(jobs.get(plan.job), null)
    const states = published.filter(({ at }) => at === `/v1/board/job/${plan.job}`)
    t.equal(states.at(-1)?.state, 'ended', 'though no result is in its own directory')
  },
)

void t.test(
  'one process at a time looks after a job, and a killed one is no obstacle',
  async (t) => {
    const plan = await plannedJob(context, { configurations: ['a'], runs: 1 })
    const source = (name: string): string =>
      JSON.stringify(fileURLToPath(new URL(`../../../runner/store/${name}.ts`, import.meta.url)))
    const child = await otherProcess(`
    const { Store } = await import(${source('store')})
    const { registerWorker } = await import(${source('workers')})
    const { takeJob } = await import(${source('plans')})
    const store = await Store.open({ stateDir: ${JSON.stringify(stateDir)}, heartbeatSeconds: 120 })
    const worker = await registerWorker(store, { daemon: '/x.sock', classes: ['cpu'], slots: 1 })
    await takeJob(store, ${JSON.stringify(plan.job)}, worker)
    process.stdout.write('ready')
    setInterval(() => {}, 60_000)`)
    const worker = await registerWorker(store, facts)
    const error = await failureOf(() => takeJob(store, plan.job, worker))
    t.match(error, {
      code: 'job_locked',
      message: new RegExp(`is being run by process ${child.pid} on .*; wait for it, or stop it`),
    })
    const gone = once(child, 'exit')
    child.kill('SIGKILL')
    await gone
    await takeJob(store, plan.job, worker)
    const other = await registerWorker(store, facts)
    t.match(await failureOf(() => takeJob(store, plan.job, other)), { code: 'job_locked' })
    await releaseJob(store, plan.job, worker)
    await takeJob(store, plan.job, other)
  },
)

void t.test(
  'a killed server loses nothing that was acknowledged, and is started again',
  async (t) => {
    const plan = await plannedJob(context, { configurations: ['a'], runs: 2 })
    const worker = await registerWorker(store, facts)
    const held = granted(await claim(store, worker, plan))
    const planned = plan.trials.find(({ trial }) => trial === held.trial)
    if (planned === undefined) throw new Error('not planned')
    const told: boolean[] = []
    store.onLost((lost) => told.push(lost))
    // its processes too: one that serves a connection outlives it for a moment
    const server = await serverPid(stateDir)
    const children = await readFile(`/proc/${server}/task/${server}/children`, 'utf8')
    for (const pid of [server, ...children.trim().split(' ').map(Number)])
      process.kill(pid, 'SIGKILL')
    const end = passedEnd(held, planned)
    t.equal(await store.persist(() => settle(store, held, end)), 'settled')
    t.strictSame(told, [true, false])
    t.match(await standingOf(store.database, plan.job), { recorded: 1, waiting: 1, live: 0 })
    const again = granted(await store.persist(() => claim(store, worker, plan)))
    t.not(again.trial, held.trial)
  },
)
