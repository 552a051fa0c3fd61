/**
 * Unmodified mini-SWE-agent on a sample task against recorded exchanges: what a result says is what was measured, to
 * the token, the cent and the call; and the same harness inside the task's sandbox comes to the same.
 */
import { createHash } from 'node:crypto'
import { access, readFile } from 'node:fs/promises'
import path from 'node:path'
import type { Test } from 'tap'
import { costOf } from '../../../daemon/protocol/model-cost.ts'
import { recordedCallSchema, type RecordedCall } from '../../../daemon/protocol/recording.ts'
import { readEgressFile, readSteps } from '../../../runner/trial/evidence.ts'
import type { TrialResult } from '../../../runner/result.ts'
import { TestDaemon } from '../../support/daemon.ts'
import type { TestEngine } from '../../support/engine.ts'
import { endOf, executionDirs, readRun, root, sampleTask } from './setup.ts'

/** As a provider bills it; the fields of an OpenAI-compatible answer. */
interface BilledUsage {
  readonly prompt_tokens: number
  readonly completion_tokens: number
  readonly prompt_tokens_details?: { readonly cached_tokens?: number }
  readonly completion_tokens_details?: { readonly reasoning_tokens?: number }
}

const usageIn = ({ response }: RecordedCall): BilledUsage => {
  const bodies = [response.body, ...(response.events ?? [])] as (
    | { usage?: BilledUsage }
    | undefined
  )[]
  const found = bodies.findLast((body) => body?.usage !== undefined && body.usage !== null)?.usage
  if (found === undefined) throw new Error('an exchange without usage')
  return found
}

const price = {
  inputPerMillionUsd: 0.6,
  cachedInputPerMillionUsd: 0.06,
  outputPerMillionUsd: 2.4,
}

async function exchangesOf(file: string): Promise<RecordedCall[]> {
  const lines = (await readFile(file, 'utf8')).trim().split('\n')
  return lines.map((line) => recordedCallSchema.parse(JSON.parse(line)))
}

/** Two runs of the task: the first is recorded to solve it, the second not to. The first is also run inside. */
export async function checkRecordedRuns(t: Test, engine: TestEngine, task: string): Promise<void> {
  await using daemon = await TestDaemon.open(engine.socketPath)
  const config = path.join(root, 'images/replay.yaml')
  const run = ['run', '--task', sampleTask(task), '--unqualified', '--config', config, '--json']
  const cli = await daemon.cli([...run, '--runs', '2'], { timeoutMs: 280_000 })
  const { line, results, jobDir } = await readRun(daemon, cli)
  t.equal(cli.code, 0, 'every planned trial is scored, whatever the verdicts')
  t.equal(cli.stdout.trim().split('\n').length, 1, 'one line on stdout')
  t.strictSame(
    results.map(({ run }) => run),
    [1, 2],
  )
  for (const [index, result] of results.entries())
    await t.test(`run ${result.run}`, async (t) => {
      t.match(endOf(result), result.run === 1 ? /^passed null / : /^failed agent tests_failed: /)
      const { trial, run, verdict, blame, reason } = result
      t.match(line.trials[index], { trial, run, verdict, blame, reason, task: result.task.name })
      await checkFigures(t, result, jobDir)
      await checkEvidence(t, result, jobDir)
    })
  await t.test('inside the sandbox it comes to the same', async (t) => {
    const inside = await readRun(
      daemon,
      await daemon.cli([...run, '--harness', 'mini-swe-agent:inside'], { timeoutMs: 280_000 }),
    )
    const [result] = inside.results
    t.equal(result?.configuration.harness, 'mini-swe-agent:inside')
    t.strictSame(result && outcomeOf(result), results[0] && outcomeOf(results[0]))
    t.strictSame(
      await commandsOf(inside.jobDir, result?.trial ?? ''),
      await commandsOf(jobDir, results[0]?.trial ?? ''),
      'the same commands, step by step',
    )
  })
}

/** All that must not depend on where the harness runs. */
const outcomeOf = ({
  verdict,
  suites,
  usage,
  costUsd,
  steps,
  reported,
  egress,
  ...result
}: TrialResult) => ({
  ...{ verdict, suites, usage, costUsd, steps, egress, notes: result.notes },
  patch: result.digests.patch,
  reported: { ...reported, costUsd: null },
})

/** The log keeps a long command of a harness inside by its beginning. */
const beginning = 1_000

async function commandsOf(jobDir: string, trial: string): Promise<string[][]> {
  const [execution = ''] = await executionDirs(jobDir, trial)
  const all: string[][] = []
  for await (const { commands } of readSteps(execution))
    all.push(commands.map(({ command }) => command.slice(0, beginning)))
  return all
}

async function checkFigures(t: Test, result: TrialResult, jobDir: string): Promise<void> {
  const [execution = ''] = await executionDirs(jobDir, result.trial)
  const calls = await exchangesOf(path.join(execution, 'exchanges.jsonl'))
  const answered = calls.filter(({ response }) => response.status === 200).map(usageIn)
  const sum = (pick: (usage: BilledUsage) => number | undefined): number =>
    answered.reduce((total, usage) => total + (pick(usage) ?? 0), 0)
  const expected = {
    inputTokens: sum(({ prompt_tokens: tokens }) => tokens),
    cachedInputTokens: sum(({ prompt_tokens_details: details }) => details?.cached_tokens),
    outputTokens: sum(({ completion_tokens: tokens }) => tokens),
    reasoningTokens: sum(({ completion_tokens_details: details }) => details?.reasoning_tokens),
    calls: answered.length,
  }
  t.strictSame(result.usage, expected, 'usage is what the exchanges sum up to')
  t.ok(expected.inputTokens > 0 && expected.outputTokens > 0, 'there is something to sum up')
  t.equal(
    result.costUsd,
    costOf(expected, price),
    'cost follows from usage and the price table, exactly',
  )
  t.equal(result.steps, expected.calls, 'a step is a call')
  t.equal(result.reported?.steps, result.steps, 'the harness counts the same calls')
  t.equal(result.reported?.inputTokens, expected.inputTokens, 'and the same tokens')
  t.equal(result.reported?.exitStatus, 'Submitted')
  t.equal(result.notes, undefined, 'no word against its trajectory, or anything else')
  let steps = 0
  for await (const step of readSteps(execution)) if (step.tokens !== null) steps += 1
  t.equal(steps, result.steps, 'each step is in the step log')
}

async function checkEvidence(t: Test, result: TrialResult, jobDir: string): Promise<void> {
  const { proof, egress } = result
  t.ok(egress.denied > 0, 'its tries to reach a public address were denied')
  const reasons = Object.values(egress.byReason).reduce((sum, count) => sum + count, 0)
  t.equal(reasons, egress.attempts, 'each attempt has a reason')
  t.equal(egress.denied + egress.allowed, egress.attempts)
  let denied = 0
  for await (const event of readEgressFile(path.join(jobDir, 'trials', result.trial)))
    if (event.action === 'deny' && event.canary !== true) denied += event.count
  t.equal(denied, egress.denied, 'and an event')
  for (const phase of ['before', 'after'] as const) {
    t.ok(proof[phase].length >= 8, `${proof[phase].length} canaries ${phase}`)
    for (const { canary, expected, seen, audited } of proof[phase]) {
      t.equal(seen, expected, `${canary} ${phase}`)
      t.not(audited, false, `${canary} ${phase}`)
    }
  }
  const [execution = '', ...others] = await executionDirs(jobDir, result.trial)
  t.strictSame(others, [], 'one execution')
  t.strictSame(
    result.executions.map(({ id }) => id),
    [path.basename(execution)],
  )
  const files = ['steps.jsonl', 'egress.jsonl', 'exchanges.jsonl', 'patch.diff', 'collect.json']
  files.push('trajectory.json', 'trajectory.atif.json', 'harness.log', 'freeze.json')
  for (const suite of ['functional', 'regression'])
    files.push(`${suite}.stdout`, `${suite}.stderr`, `${suite}-results.xml`)
  for (const name of files)
    await t.resolves(access(path.join(execution, name)), `${name} is beside the result`)
  const patch = await readFile(path.join(execution, 'patch.diff'))
  const digest = createHash('sha256').update(patch).digest('hex')
  t.equal(result.digests.patch, `sha256:${digest}`, 'the patch is the one that was graded')
}
