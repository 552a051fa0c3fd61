/**
 * Qualification of one task: N repeats each of no-op and oracle on the hardware that it names, judged test by test, and
 * written beside the task with all that it is bound to. It runs the tests without the ids that task.toml lists, so that
 * it sees every test there is.
 */
import { readFile } from 'node:fs/promises'
import path from 'node:path'
import { z } from 'zod'
import { packageVersion } from '../../daemon/protocol/version.ts'
import { RunnerError } from '../errors.ts'
import { taskImageId, verifierImageId } from '../host/images.ts'
import { plainConfiguration } from '../job/configuration.ts'
import { writeFileAtomic } from '../json-file.ts'
import { requireHardware } from '../task/hardware.ts'
import type { Suite, SuiteName, Task } from '../task/task.ts'
import { evidenceNames } from '../trial/evidence.ts'
import { suiteFacts } from '../trial/verify-phase.ts'
import {
  evidenceFile,
  qualificationSchemaName,
  readQualification,
  requireEvidencePlace,
  writeQualification,
  type Agent,
  type Qualification,
  type ReadQualification,
} from './document.ts'
import { qualificationPage } from './html.ts'
import { isQualified, judge, remarks, type AgentRun } from './judge.ts'
import { boundTo, taskFiles } from './standing.ts'
import { proposeLimits, timesOf, type Timed } from './times.ts'
import type { EndedTrial } from './open-set.ts'
import { runTrialSet, type TrialSetHost } from './trial-set.ts'

export interface QualifyOptions {
  readonly repeats: number
  readonly concurrency: number
  /** What to call this host in the evidence; null: its own name. */
  readonly hostName: string | null
  /** Starts over where an interrupted set could be gone on with. */
  readonly fresh: boolean
}

export interface QualifyHost extends TrialSetHost {
  readonly say: (what: string) => void
}

export interface Qualified extends ReadQualification {
  readonly task: Task
  readonly directory: string
}

export async function qualify(
  task: Task,
  { repeats, concurrency, hostName, fresh }: QualifyOptions,
  host: QualifyHost,
): Promise<Qualified> {
  if (task.solution.script === null)
    throw new RunnerError(
      'task_invalid',
      'task',
      `${task.dir} has no solution/solve.sh, so nothing shows that it can be solved; add one`,
    )
  const facts = await host.client.host({ signal: host.signal })
  requireHardware(task, facts)
  await requireEvidencePlace(task.dir)
  const image = await taskImageId(task, host)
  const stated = await statedSuites(task)
  const digests = await boundTo(task, image)
  const files = await taskFiles(task)
  const set = await runTrialSet(
    {
      purpose: 'qualify',
      task: withoutExpected(task),
      image,
      verifierImage: await verifierImageId(task, host),
      configurations: [
        await plainConfiguration('noop', task.dir),
        await plainConfiguration('oracle', task.dir),
      ],
      runs: repeats,
      concurrency,
      fresh,
    },
    host,
  )
  const runs = await Promise.all(set.ended.map(runOf))
  const judged = judge(runs, stated)
  const of = (agent: Agent): Timed[] => runs.filter((run) => run.agent === agent)
  const times = { noop: timesOf(of('noop')), oracle: timesOf(of('oracle')) }
  const proposed = proposeLimits(task, times)
  const findings = [...judged.findings, ...proposed.findings, ...remarks(task, repeats)]
  const document: Qualification = {
    schema: qualificationSchemaName,
    task: task.name,
    qualified: isQualified(findings),
    startedAt: set.startedAt,
    endedAt: new Date().toISOString(),
    closedbookVersion: packageVersion,
    hardware: task.hardware,
    host: {
      name: hostName ?? facts.name,
      engine: facts.engine,
      kernel: facts.kernel,
      cpus: facts.cpus,
      gpus: facts.gpus.map(({ name }) => name),
    },
    repeats,
    concurrency,
    digests,
    files,
    findings,
    expected: judged.expected,
    tests: [...judged.tests],
    times,
    limits: proposed.limits,
    trials: set.ended.map(({ planned, result, digest }) => ({
      agent: agentOf(planned.configuration),
      run: planned.run,
      trial: planned.trial,
      verdict: result.verdict,
      blame: result.blame,
      reason: result.reason,
      wallTimeMs: result.wallTimeMs,
      result: digest,
    })),
    evidence: set.name,
  }
  if ((await boundTo(task, image)).task !== digests.task)
    throw new RunnerError(
      'plan_changed',
      'operator',
      `${task.dir} was edited while it was qualified; qualify it again`,
    )
  const written = await writeQualification(task.dir, document)
  await writeFileAtomic(
    evidenceFile(task.dir, 'qualification.html'),
    qualificationPage(document, written.digest),
  )
  return { ...written, task, directory: set.directory }
}

/** Each test that is reported counts here, whatever is listed. */
const withoutExpected = (task: Task): Task => {
  const bare = (suite: Suite): Suite => ({ ...suite, expected: null })
  const { functional, regression } = task.suites
  return {
    ...task,
    suites: {
      functional: bare(functional),
      regression: regression === null ? null : bare(regression),
    },
  }
}

/** Ids as the task itself lists them; those that came from an earlier qualification are not its own. */
async function statedSuites(task: Task): Promise<Task['suites']> {
  const before = await readQualification(task.dir).catch(() => null)
  const own = (suite: Suite, name: SuiteName): Suite => {
    const stored = before?.document.expected[name] ?? []
    const same =
      suite.expected !== null &&
      suite.expected.length === stored.length &&
      suite.expected.every((id) => stored.includes(id))
    return same ? { ...suite, expected: null } : suite
  }
  const { functional, regression } = task.suites
  return {
    functional: own(functional, 'functional'),
    regression: regression === null ? null : own(regression, 'regression'),
  }
}

const agentOf = (configuration: string): Agent => (configuration === 'noop' ? 'noop' : 'oracle')

async function runOf({ planned, result, directory }: EndedTrial): Promise<AgentRun & Timed> {
  const suitesMs: Partial<Record<SuiteName, number>> = {}
  for (const suite of ['functional', 'regression'] as const) {
    const ms = await suiteMs(directory, suite)
    if (ms !== null) suitesMs[suite] = ms
  }
  const changed = await patchedPaths(directory)
  return { agent: agentOf(planned.configuration), run: planned.run, result, suitesMs, changed }
}

const patchSchema = z.object({ changes: z.array(z.object({ path: z.string() })) })

/** Of a patch; a whole container or artifacts have none. */
async function patchedPaths(directory: string): Promise<string[]> {
  const file = path.join(directory, evidenceNames.collect)
  const text = await readFile(file, 'utf8').catch(() => 'null')
  return patchSchema.safeParse(JSON.parse(text)).data?.changes.map((one) => one.path) ?? []
}

const factsSchema = z.object({ durationMs: z.number() })

async function suiteMs(directory: string, suite: SuiteName): Promise<number | null> {
  const file = await readFile(path.join(directory, suiteFacts(suite)), 'utf8').catch(() => null)
  return file === null ? null : factsSchema.parse(JSON.parse(file)).durationMs
}
