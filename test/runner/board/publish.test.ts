/** What a runner publishes of a job, on a real board; and that a daemon which is gone or refuses costs the job nothing. */
import { once } from 'node:events'
import { mkdir, rm, writeFile } from 'node:fs/promises'
import path from 'node:path'
import t from 'tap'
import { boardListSchema } from '../../../daemon/protocol/board.ts'
import {
  signOfLifeMs,
  silentAfterMs,
  silentSince,
  type Heard,
} from '../../../daemon/protocol/board-life.ts'
import { DaemonClient } from '../../../daemon/protocol/client.ts'
import { Board } from '../../../daemon/server/board/board.ts'
import { addBoardRoutes } from '../../../daemon/server/board/board-routes.ts'
import { Router } from '../../../daemon/server/router.ts'
import { publisher, watchAll } from '../../../runner/board/publish.ts'
import { executionDir } from '../../../runner/job/layout.ts'
import type { Step } from '../../../runner/step-log.ts'
import { scratch, silent, until } from '../../daemon/server/listener.ts'
import { syntheticJob } from '../support/synthetic-job.ts'

const { directory, remove } = await scratch()
t.teardown(remove)
const limits = { maxDocuments: 1_000, maxDocumentBytes: 8_000_000, maxBytes: 100_000_000 }
const socketPath = path.join(directory, 'board.sock')

async function serveBoard(): Promise<AsyncDisposable> {
  const router = new Router(silent)
  addBoardRoutes(router, await Board.open(path.join(directory, 'board'), limits, silent))
  const server = router.createServer()
  server.listen(socketPath)
  await once(server, 'listening')
  return {
    async [Symbol.asyncDispose]() {
      server.closeAllConnections()
      await new Promise<void>((resolve) => server.close(() => resolve()))
      await rm(socketPath, { force: true })
    },
  }
}

const step = (n: number): Step => ({
  step: n,
  time: `2025-01-02T03:04:0${n}.000Z`,
  text: `thought ${n}`,
  commands: [],
  tokens: { input: 100, cachedInput: 40, output: 10, reasoning: 0 },
  costUsd: 0.01,
  denied: [{ seq: n, protocol: 'tls', target: '198.51.100.7:443', reason: 'direct_tcp', count: 2 }],
})

async function madeJob(name: string) {
  const jobDir = path.join(directory, name)
  await mkdir(jobDir)
  const { plan, results } = syntheticJob(jobDir, {
    job: `j20250102-030405-${name}`,
    tasks: 2,
    runs: 2,
    configurations: [{ name: 'a', chance: 0.6 }],
    // the last two are recorded here; the first two were, by an earlier process
    change: (result) => result,
  })
  const [first, second, third, fourth] = plan.trials
  if (first === undefined || second === undefined || third === undefined || fourth === undefined)
    throw new Error('too few')
  return { jobDir, plan, results, planned: [first, second, third, fourth] as const }
}

void t.test(
  'a job is published with plan, live state, steps, result, files and figures',
  async (t) => {
    await using _board = await serveBoard()
    await using client = new DaemonClient(socketPath)
    const { jobDir, plan, results, planned } = await madeJob('aaaa')
    const [one] = planned
    const id = `${plan.job}.${one.trial}`
    const result = results[0]
    if (result === undefined) throw new Error('no result')
    const execution = result.executions[0]?.id ?? ''
    const evidence = executionDir(jobDir, one.trial, execution)
    await mkdir(evidence, { recursive: true })
    await writeFile(path.join(evidence, 'patch.diff'), 'diff --git a/x b/x\n')
    await writeFile(path.join(evidence, 'harness.log'), 'x'.repeat(1_500_000))
    await writeFile(path.join(evidence, 'exchanges.jsonl'), '{}\n')
    const seen: string[] = []
    const note = {
      started: () => seen.push('started'),
      phase: () => {},
      step: () => seen.push('step'),
      note: () => {},
      faulted: () => {},
      recorded: () => seen.push('recorded'),
    }
    {
      await using board = publisher(client, { plan, jobDir }, (message) => t.fail(message))
      const watch = watchAll(note, board)
      watch.started(one, execution)
      watch.phase(one, 'agent')
      watch.step(one, step(1))
      watch.step(one, step(2))
      const live = async () =>
        (await client.call('GET', `/v1/board/trial/${id}`).catch(() => null)) as {
          steps?: number
        } | null
      let now = await live()
      for (const deadline = Date.now() + 10_000; now?.steps !== 2 && Date.now() < deadline;)
        now = await live()
      t.match(now, {
        state: 'running',
        phase: 'agent',
        execution,
        steps: 2,
        inputTokens: 200,
        cachedInputTokens: 80,
        outputTokens: 20,
        denied: 4,
        verdict: null,
      })
      watch.recorded(one, result)
      t.same(
        await client.callText(
          'POST',
          `/v1/board/steps/${id}.${execution}/lines?from=3`,
          '{"step":3}\n',
        ),
        { lines: 3 },
        'both steps are there',
      )
    }
    t.same(seen, ['started', 'step', 'step', 'recorded'], 'the other watcher heard all')
    const get = (at: string) => client.call('GET', `/v1/board/${at}`)
    t.match(await get(`job/${plan.job}`), {
      state: 'ended',
      runs: 2,
      tasks: [{ name: 'org/task-01' }, {}],
      trials: { length: 4 },
      directory: jobDir,
    })
    t.match(await get(`alive/${plan.job}`), { job: plan.job }, 'a sign of life')
    t.match(await get(`trial/${id}`), {
      state: 'recorded',
      verdict: result.verdict,
      steps: result.steps,
      costUsd: result.costUsd,
      phase: null,
    })
    t.match(await get(`result/${id}`), { schema: 'closedbook.result/1', trial: one.trial })
    t.match(await get(`evidence/${id}.patch.diff`), {
      text: 'diff --git a/x b/x\n',
      truncated: false,
    })
    t.match(await get(`evidence/${id}.harness.log`), { bytes: 1_500_000, truncated: true })
    await t.rejects(
      get(`evidence/${id}.exchanges.jsonl`),
      { code: 'not_found' },
      'a model exchange is named, not copied',
    )
    const { evidence: files } = (await get(`trial/${id}`)) as {
      evidence: { name: string; id: string | null }[]
    }
    t.match(
      files.find(({ name }) => name === 'exchanges.jsonl'),
      { id: null },
    )
    const report = (await get(`report/${plan.job}`)) as {
      scored: number
      configurations: { planned: number; passAt1: number | null }[]
    }
    t.equal(
      report.scored,
      results.filter(({ verdict }) => verdict !== 'void').length,
      'results of earlier processes count',
    )
    t.equal(report.configurations[0]?.planned, 4)
  },
)

void t.test('the files of a trial that ends last are published, too', async (t) => {
  const { jobDir, plan, results, planned } = await madeJob('cccc')
  const [one] = planned
  const [result] = results
  if (result === undefined) throw new Error('no result')
  const evidence = executionDir(jobDir, one.trial, result.executions[0]?.id ?? '')
  await mkdir(evidence, { recursive: true })
  const names = Array.from({ length: 55 }, (_, index) => `a${index}.log`)
  for (const name of names) await writeFile(path.join(evidence, name), name)
  const sent: string[] = []
  // answers sooner than any file is read
  const call = async (_method: string, at: string): Promise<void> => void sent.push(at)
  {
    const client = { call, callText: call } as unknown as DaemonClient
    await using board = publisher(client, { plan, jobDir }, (message) => t.fail(message))
    board.recorded(one, result)
  }
  t.equal(sent.filter((at) => /evidence\/.*\.a\d+\.log$/.test(at)).length, names.length)
})

void t.test(
  'a daemon that is away, or refuses, costs the job nothing and is told of once',
  async (t) => {
    const { jobDir, plan, planned } = await madeJob('bbbb')
    const [one] = planned
    const troubles: string[] = []
    await using client = new DaemonClient(socketPath)
    const started = performance.now()
    {
      await using board = publisher(client, { plan, jobDir }, (message) => troubles.push(message))
      board.started(one, 'x1-abcd')
      for (let n = 1; n <= 5; n += 1) board.step(one, step(n))
      t.ok(performance.now() - started < 1_000, 'nobody waits for it')
      await until(() => troubles.length > 0)
      await using _back = await serveBoard()
      const lines = async (): Promise<number> => {
        const list = boardListSchema.parse(
          await client.call('GET', '/v1/board/steps?suffix=.x1-abcd'),
        )
        return list.entries.find(({ id }) => id.includes(one.trial))?.lines ?? 0
      }
      for (const deadline = Date.now() + 10_000; (await lines()) < 5 && Date.now() < deadline;);
      t.same(
        await client.callText(
          'POST',
          `/v1/board/steps/${plan.job}.${one.trial}.x1-abcd/lines?from=6`,
          '{"step":6}\n',
        ),
        { lines: 6 },
        'what waited was sent when it was back',
      )
    }
    t.match(troubles, [/the dashboard lags behind: no daemon answers/])
    t.equal(troubles.length, 1)
    {
      await using lost = publisher(client, { plan, jobDir }, (message) => troubles.push(message))
      lost.note(one, 'never seen')
    }
    t.equal(troubles.length, 2, 'one that never comes back ends in bounded time')
  },
)

void t.test('a runner that gives no sign of life is not heard of, after a while', (t) => {
  const last = '2026-03-01T12:00:00.000Z'
  const after = (ms: number): number => Date.parse(last) + ms
  const rows: readonly (readonly [why: string, heard: Heard, nowMs: number, silent: boolean])[] = [
    ['just now', { last, signs: true }, after(1_000), false],
    ['two signs are late', { last, signs: true }, after(2.5 * signOfLifeMs), false],
    ['none comes', { last, signs: true }, after(silentAfterMs + 1), true],
    ['one that gives none may think', { last, signs: false }, after(3_600_000), false],
    ['but not for days', { last, signs: false }, after(48 * 3_600_000), true],
    ['a clock that went back', { last, signs: true }, after(-60_000), false],
    ['nothing is known', { last: '', signs: true }, after(0), false],
  ]
  for (const [why, heard, nowMs, silent] of rows)
    t.equal(silentSince(heard, nowMs), silent ? last : null, why)
  t.end()
})
