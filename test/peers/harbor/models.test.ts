/**
 * Trajectories for Harbor's tools before Harbor's own models: 0.26, whose format is ATIF 1.8, and 0.22, which knows 1.7
 * and nothing newer. They run in a sealed sandbox, for they need a newer Python than a host may have.
 */
import { copyFile, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import t from 'tap'
import { atifFromSteps, atifFromTrajectory } from '../../../runner/harness/atif.ts'
import {
  atifProblems,
  atifVersions,
  type Atif,
  type AtifVersion,
} from '../../../runner/harness/atif-schema.ts'
import { readTrajectory } from '../../../runner/harness/trajectory.ts'
import { SandboxWorld } from '../../e2e/sandbox/setup.ts'
import { executionDirs, readRun } from '../../e2e/trials/setup.ts'
import { harborTask } from '../../runner/harbor/trials.ts'
import { bundleOf } from '../../support/bundle.ts'
import { pythonPackages } from '../../support/python-packages.ts'

const validator = fileURLToPath(new URL('validate.py', import.meta.url))
const needs = ['pydantic==2.14.4', 'pydantic_core==2.50.5', 'typing_extensions==4.16.0']
needs.push(
  'typing-inspection==0.4.5',
  'annotated-types==0.8.0',
  'shortuuid==1.0.13',
  'toml==0.10.2',
)

/** Its models and what they import, for the sandbox's Python; the rest of what Harbor needs is 300 MB. */
const installed = (version: string): Promise<string> =>
  pythonPackages(`harbor-${version}`, [
    ...['--no-deps', '--python-version', '3.13', '--only-binary=:all:', '--ignore-requires-python'],
    ...[`harbor==${version}`, ...needs],
  ])

const meta = { session: 's', agent: 'mini-swe-agent', version: '2.4.6', model: 'acme/m' }

/** What a harness may claim, and an agent may print, at its worst. */
function hostile(atif: AtifVersion): Atif {
  const half = '\uD83D and \uDE00 apart, \u0000 \u001B[2J \uFFFF'
  const turn = (extra: object, usage: object = {}) => ({
    role: 'assistant',
    content: half,
    reasoning_content: half,
    extra: { cost: 1e-9, timestamp: 1_700_000_000.5, response: { usage }, ...extra },
  })
  const messages = [
    { role: 'system', content: half },
    { role: 'user', content: half },
    turn({ actions: [{ command: half, tool_call_id: 'c' }] }, { prompt_tokens: 1.5 }),
    { role: 'tool', tool_call_id: 'c', extra: { raw_output: half, returncode: 0 } },
    turn({ actions: [], timestamp: 7e12 }, { completion_tokens: 1e300, prompt_tokens: -3 }),
    turn({ actions: [{ command: null }, {}], timestamp: -7e10, cost: 'much' }),
  ]
  const info = { mini_version: half, exit_status: '' }
  const file = { trajectory_format: 'mini-swe-agent-1.1', info, messages }
  const read = readTrajectory(Buffer.from(JSON.stringify(file)))
  if (read.kind !== 'whole') throw new Error(read.message)
  return atifFromTrajectory(read.trajectory, { ...meta, instruction: half, atif })
}

const step = {
  ...{ step: 1, time: '2026-01-01T00:00:00.000Z', text: null, costUsd: 0, tokens: null },
  commands: [
    {
      ...{ exec: 'e', command: 'make', exit: { code: 0 }, cause: 'exited', startedAt: '' },
      ...{ durationMs: 1, outputBytes: 1, head: 'H', tail: 'H' },
    },
  ],
  denied: [{ seq: 4, protocol: 'tls', target: 'x.example', reason: 'no_sni', count: 2 }],
}

type Bent = (document: ReturnType<typeof loose>) => unknown
const loose = (document: Atif) =>
  structuredClone(document) as unknown as {
    schema_version: unknown
    steps: Record<string, unknown>[]
    final_metrics: Record<string, unknown>
    [key: string]: unknown
  }

/** Each is refused, by them and by us. */
const broken: Readonly<Record<string, Bent>> = {
  'a version to come': (it) => (it.schema_version = 'ATIF-v1.9'),
  'an unknown key': (it) => (it['verdict'] = 'passed'),
  'an unknown key of a step': (it) => Object.assign(it.steps[2] ?? {}, { duration: 1 }),
  'an unknown total': (it) => (it.final_metrics['reward'] = 1),
  'no steps': (it) => (it.steps = []),
  'a step left out': (it) => it.steps.splice(1, 1),
  'no name': (it) => (it['agent'] = { version: '1' }),
  'nobody who speaks': (it) => Object.assign(it.steps[2] ?? {}, { source: 'tool' }),
  'a user who calls tools': (it) => Object.assign(it.steps[1] ?? {}, { tool_calls: [] }),
  'a user who costs': (it) => Object.assign(it.steps[1] ?? {}, { metrics: { cost_usd: 1 } }),
  'an answer to no call': (it) =>
    Object.assign(it.steps[2] ?? {}, {
      observation: { results: [{ source_call_id: 'call_9_9', content: '' }] },
    }),
  'half a token': (it) => Object.assign(it.steps[2]?.['metrics'] ?? {}, { prompt_tokens: 1.5 }),
  'no time': (it) => Object.assign(it.steps[2] ?? {}, { timestamp: 'yesterday' }),
  'a year of six digits': (it) =>
    Object.assign(it.steps[2] ?? {}, { timestamp: '+012345-01-01T00:00:00.000Z' }),
  'reasoning without a model': (it) => Object.assign(it.steps[2] ?? {}, { llm_call_count: 0 }),
  'half a character': (it) => Object.assign(it.steps[2] ?? {}, { message: '\uD83D' }),
}

t.test("Harbor's own models take both versions, and refuse what we refuse", async (t) => {
  await using undo = new AsyncDisposableStack()
  const scratch = await mkdtemp(path.join(tmpdir(), 'atif-'))
  undo.defer(() => rm(scratch, { recursive: true, force: true }))
  const world = undo.use(await SandboxWorld.open())
  const files: Record<string, unknown> = {}
  for (const atif of atifVersions) {
    files[`hostile-${atif}`] = hostile(atif)
    files[`seen-${atif}`] = atifFromSteps([step], {
      ...{ ...meta, model: null, instruction: 'I', atif },
    })
  }
  for (const [why, bend] of Object.entries(broken)) {
    const document = loose(hostile('1.7'))
    bend(document)
    files[`broken: ${why}`] = document
  }
  for (const [name, document] of Object.entries(files)) {
    await writeFile(path.join(scratch, name), JSON.stringify(document))
    if (name.startsWith('broken')) t.not(atifProblems(document).length, 0, `we refuse ${name}`)
    else t.strictSame(atifProblems(document), [], name)
  }
  const task = ['--task', harborTask('shared-root'), '--closed-book-network', '--unqualified']
  const cli = await world.daemon.cli([
    'run',
    ...task,
    '--harness',
    'oracle',
    '--atif',
    '1.7',
    '--json',
  ])
  const { results, jobDir } = await readRun(world.daemon, cli)
  t.equal(results[0]?.notes, undefined, 'nothing is said against the trajectory')
  const [execution = ''] = await executionDirs(jobDir, results[0]?.trial ?? '')
  await copyFile(path.join(execution, 'harbor/trajectory.json'), path.join(scratch, 'a trial-1.7'))
  const trial = await readFile(path.join(scratch, 'a trial-1.7'), 'utf8')
  t.match(JSON.parse(trial), { schema_version: 'ATIF-v1.7', agent: { name: 'oracle' } })

  const names = [...Object.keys(files), 'a trial-1.7']
  const judge = async (version: string) => {
    const mounts = [
      {
        bundle: await bundleOf(await installed(version), world.daemon.client),
        target: '/opt/harbor',
      },
      { bundle: await bundleOf(scratch, world.daemon.client), target: '/opt/files' },
    ]
    const env = { PYTHONPATH: '/opt/harbor', PYTHONDONTWRITEBYTECODE: '1' }
    const lease = await world.lease({ mounts, env })
    const args = ['--trajectories', ...names.map((name) => `/opt/files/${name}`)]
    const seen = await world.python(lease, await readFile(validator, 'utf8'), args)
    return seen as Record<string, string | null>
  }
  const [newest, older] = await Promise.all([judge('0.26.0'), judge('0.22.0')])
  for (const name of names) {
    const [is26, is22] = [newest[name] === null, older[name] === null]
    t.equal(is26, !name.startsWith('broken'), `0.26: ${name}: ${newest[name] ?? 'accepted'}`)
    t.equal(is22, name.endsWith('-1.7'), `0.22: ${name}: ${older[name] ?? 'accepted'}`)
  }
})
