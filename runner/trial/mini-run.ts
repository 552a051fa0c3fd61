/** mini-SWE-agent beside its task: a sandbox whose only exits are the model gateway and the task's exec API. */
import type { LeaseRequestInput } from '../../daemon/protocol/lease.ts'
import { RunnerError } from '../errors.ts'
import {
  configMismatches,
  miniCommand,
  miniFiles,
  miniPaths,
  trajectoryPath,
  type MiniInput,
} from '../harness/mini-swe-agent.ts'
import type { ModelSettings } from '../job/configuration.ts'
import { agentLimitMs, type HarnessEnd, type HarnessRun, type Sandboxes } from './harness-run.ts'
import { packFiles } from './bundle.ts'
import type { ExecutionContext } from './context.ts'
import { evidenceNames } from './evidence.ts'
import { modelGateway } from './model-gateway.ts'
import { readFileOut } from './read-file.ts'
import { miniSilenceMs, runOnTerminal } from './terminal-run.ts'

const gibi = 1024 ** 3
const trajectoryLimitBytes = 200 * 1024 * 1024

export async function miniRun(context: ExecutionContext): Promise<HarnessRun> {
  const { client, configuration, images, trial, job, signal } = context
  const { model } = configuration
  if (model === null || images.harness === null)
    throw new RunnerError(
      'harness_failed',
      'operator',
      'mini-SWE-agent needs a model and its image',
    )
  const input = await miniInput(context, model)
  const files = miniFiles(input)
  const config = await client.putBundle(await packFiles(files), { signal })
  const request: LeaseRequestInput = {
    image: images.harness,
    network: 'sealed',
    model: await modelGateway(context, model),
    execInto: context.leases.task,
    hostname: 'harness',
    resources: { cpus: 1, memoryBytes: gibi, pids: 256 },
    mounts: [{ bundle: config, target: miniPaths.configDir }],
    owner: job,
    trial,
  }
  return {
    task: {},
    harness: request,
    work: (sandboxes, stop) => work(context, input, sandboxes, stop),
  }
}

export async function miniInput(
  { client, configuration, images, task, signal }: ExecutionContext,
  model: ModelSettings,
): Promise<MiniInput> {
  const { limits } = configuration
  const workdir = task.workdir ?? (await client.inspectImage(images.task, { signal })).workdir
  return {
    instruction: task.instruction,
    model,
    limits: {
      ...limits,
      wallTimeSeconds: Math.min(limits.wallTimeSeconds, task.agent.timeoutSeconds ?? Infinity),
    },
    workdir: workdir === '' ? '/' : workdir,
  }
}

async function work(
  context: ExecutionContext,
  input: MiniInput,
  { harness }: Sandboxes,
  signal: AbortSignal,
): Promise<HarnessEnd> {
  if (harness === null) throw new Error('mini-SWE-agent works beside its task')
  const { client, configuration, evidence } = context
  const { argv, env, workdir } = miniCommand(input.model)
  const { TERM: _dumb, COLUMNS: _wide, ...kept } = env
  const ran = await runOnTerminal(
    client,
    harness,
    {
      // At a terminal it would ask what to do at a limit, and nobody would answer.
      argv: ['/bin/sh', '-c', 'exec "$0" "$@" </dev/null', ...argv],
      env: kept,
      workdir,
      label: 'mini-swe-agent',
      timeoutMs: agentLimitMs(context),
      silenceMs: miniSilenceMs(input.model, configuration.limits),
    },
    signal,
  )
  await evidence.write(evidenceNames.harnessLog, ran.output)
  const trajectory = await readFileOut(harness, trajectoryPath(), trajectoryLimitBytes, signal)
  if (trajectory !== null) await evidence.write(evidenceNames.trajectory, trajectory)
  return {
    exit: ran.end.exit,
    timedOut: ran.timedOut,
    hung: ran.hung,
    trajectory,
    ignoredSettings: (reported) => configMismatches(input, reported),
  }
}
