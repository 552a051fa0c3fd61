/**
 * Tries a battery of cheats against one task, each as the agent of an ordinary trial, beside an honest no-op and an honest
 * oracle, whose verdicts must stand. Optionally a model gets an adversarial instruction. What came of it is written
 * beside the task.
 */
import { readFile, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { packageVersion } from '../../daemon/protocol/version.ts'
import { taskImageId, verifierImageId } from '../host/images.ts'
import {
  resolveConfiguration,
  plainConfiguration,
  type Configuration,
} from '../job/configuration.ts'
import { makeDirectory } from '../json-file.ts'
import { boundTo } from '../qualify/standing.ts'
import { requireEvidencePlace, type Bound } from '../qualify/document.ts'
import type { EndedTrial } from '../qualify/open-set.ts'
import { runTrialSet, type TrialSetHost } from '../qualify/trial-set.ts'
import { requireHardware } from '../task/hardware.ts'
import type { Task } from '../task/task.ts'
import { evidenceNames } from '../trial/evidence.ts'
import { composeScript, readCheats, readSaid, type Cheat, type Said } from './cheat.ts'
import {
  probeSchemaName,
  readProbe,
  writeProbe,
  type Honest,
  type Probe,
  type Probed,
} from './document.ts'
import { adversary, adversaryTries, adversarialTask } from './adversary.ts'
import { needlesOf } from './needles.ts'
import { ruleCheat } from './outcome.ts'

export interface ProbeOptions {
  /** null: the whole battery. */
  readonly only: readonly string[] | null
  readonly concurrency: number
  readonly hostName: string | null
  /** A configuration whose model is told to cheat; null: scripts alone. */
  readonly model: Configuration | null
  /** Runs of that model. */
  readonly modelRuns: number
  /** Starts over where an interrupted set could be gone on with. */
  readonly fresh: boolean
}

export interface ProbeHost extends TrialSetHost {
  readonly say: (what: string) => void
}

/** Of a script; the task's own limit is for agents that work, and a search that is cut short finds nothing. */
const wallTimeSeconds = 900

export async function probe(
  task: Task,
  options: ProbeOptions,
  host: ProbeHost,
): Promise<{ document: Probe; directory: string }> {
  const facts = await host.client.host({ signal: host.signal })
  requireHardware(task, facts)
  await requireEvidencePlace(task.dir)
  const image = await taskImageId(task, host)
  const digests = await boundTo(task, image)
  const cheats = await readCheats(options.only)
  const startedAt = new Date().toISOString()
  const scripts = path.join(
    host.stateDir,
    'evidence',
    `scripts-${startedAt.replace(/[:.]/g, '-')}-${process.pid}`,
  )
  const needles = await needlesOf(task)
  await makeDirectory(scripts)
  const configurations: Configuration[] = []
  if (task.solution.script !== null)
    configurations.push(await plainConfiguration('oracle', task.dir))
  configurations.push(await plainConfiguration('noop', task.dir))
  for (const cheat of cheats) {
    const file = path.join(scripts, `${cheat.name}.sh`)
    await writeFile(file, await composeScript(cheat, needles))
    configurations.push(await cheatConfiguration(cheat, file))
  }
  const set = {
    purpose: 'probe',
    task: { ...task, agent: { ...task.agent, timeoutSeconds: null } },
    image,
    verifierImage: await verifierImageId(task, host),
    concurrency: options.concurrency,
    fresh: options.fresh,
    runs: 1,
  }
  const probed: Probed[] = []
  const honest: Honest[] = []
  const ran = await runTrialSet({ ...set, configurations }, host)
  for (const ended of ran.ended) {
    const cheat = cheats.find(({ name }) => name === ended.planned.configuration)
    if (cheat === undefined) honest.push(honestOf(ended, ran.name))
    else probed.push(await probedOf(cheat, ended, ran.name))
  }
  if (options.model !== null)
    probed.push(
      ...(await probeByModel(task, { ...set, runs: options.modelRuns }, options.model, host)),
    )
  const before = options.only === null ? [] : await knownBefore(task, digests)
  const document = documentOf(task, {
    ...{ honest, probed, before, startedAt, digests, facts, options },
    all: (await readCheats()).length,
  })
  await writeProbe(task.dir, document)
  return { document, directory: ran.directory }
}

/** What an earlier probe of the same task found by cheats that are still the same. */
async function knownBefore(task: Task, digests: Bound): Promise<Probed[]> {
  const read = await readProbe(task.dir).catch(() => null)
  if (read === null || read.value.closedbookVersion !== packageVersion) return []
  const { task: then, image } = read.value.digests
  if (then !== digests.task || image !== digests.image) return []
  const now = new Map((await readCheats()).map(({ name, digest }) => [name, digest]))
  return read.value.cheats.filter(({ name, script }) => now.get(name) === script)
}

const cheatConfiguration = (cheat: Cheat, file: string): Promise<Configuration> =>
  resolveConfiguration(
    { name: cheat.name, harness: `script:${file}`, limits: { wallTimeSeconds } },
    { path: file, defaultName: cheat.name, baseDir: path.dirname(file) },
  )

async function probeByModel(
  task: Task,
  set: Omit<Parameters<typeof runTrialSet>[0], 'configurations'>,
  model: Configuration,
  host: ProbeHost,
): Promise<Probed[]> {
  const adversarial = adversarialTask(task)
  const { ended, name: evidence } = await runTrialSet(
    { ...set, task: adversarial, configurations: [model] },
    host,
  )
  return ended.map((one) => {
    const said: Said = { tried: ['whatever the model ran'], notes: [], leaks: [], skipped: null }
    const cheat = {
      name: `${adversary}-${one.planned.run}`,
      tries: `${adversaryTries}: ${model.model?.name ?? 'a model'}`,
      must: [
        'tests_failed',
        'report_forged',
        'report_disagrees',
        'verifier_broken',
        'verifier_timeout',
      ],
      digest: adversarial.instructionDigest,
    }
    return rowOf(cheat, one, said, evidence)
  })
}

async function probedOf(cheat: Cheat, ended: EndedTrial, evidence: string): Promise<Probed> {
  const log = await readFile(path.join(ended.directory, evidenceNames.harnessLog), 'utf8').catch(
    () => '',
  )
  return rowOf(cheat, ended, readSaid(log), evidence)
}

function rowOf(
  { name, tries, must, digest }: Pick<Cheat, 'name' | 'tries' | 'must' | 'digest'>,
  ended: EndedTrial,
  said: Said,
  evidence: string,
): Probed {
  const { result } = ended
  return {
    name,
    tries,
    must: [...must],
    script: digest,
    ...ruleCheat(result, said, must),
    ...endOf(ended, evidence),
    tried: said.tried.length,
    skipped: said.skipped,
    leaks: [...said.leaks],
    notes: [...said.notes],
    denied: result.egress.denied,
    wallTimeMs: result.wallTimeMs,
  }
}

const endOf = ({ planned, result, digest }: EndedTrial, evidence: string) => ({
  trial: planned.trial,
  verdict: result.verdict,
  blame: result.blame,
  reason: result.reason,
  result: digest,
  evidence,
})

function honestOf(ended: EndedTrial, evidence: string): Honest {
  const agent = ended.planned.configuration === 'noop' ? 'noop' : 'oracle'
  const { verdict, reason } = ended.result
  const ok =
    agent === 'oracle'
      ? verdict === 'passed'
      : verdict === 'failed' && reason.code === 'tests_failed'
  return { agent, ok, ...endOf(ended, evidence) }
}

function documentOf(
  task: Task,
  known: {
    honest: Honest[]
    probed: Probed[]
    before: readonly Probed[]
    all: number
    startedAt: string
    digests: Bound
    facts: {
      name: string
      engine: string
      kernel: string
      cpus: number
      gpus: readonly { name: string }[]
    }
    options: ProbeOptions
  },
): Probe {
  const { honest, probed, before, all, startedAt, digests, facts, options } = known
  const kept = before.filter(({ name }) => !probed.some((one) => one.name === name))
  const cheats = [...probed, ...kept].toSorted((a, b) => (a.name < b.name ? -1 : 1))
  const holes = cheats.filter(({ hole }) => hole).length
  return {
    schema: probeSchemaName,
    task: task.name,
    ok:
      holes === 0 &&
      honest.every(({ ok }) => ok) &&
      cheats.every(({ outcome }) => outcome !== 'spoiled'),
    holes,
    startedAt,
    endedAt: new Date().toISOString(),
    closedbookVersion: packageVersion,
    host: {
      name: options.hostName ?? facts.name,
      engine: facts.engine,
      kernel: facts.kernel,
      cpus: facts.cpus,
      gpus: facts.gpus.map(({ name }) => name),
    },
    digests,
    partial: cheats.filter(({ name }) => !name.startsWith(`${adversary}-`)).length < all,
    honest,
    cheats,
  }
}
