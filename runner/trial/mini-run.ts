/** mini-SWE-agent beside its task: a sandbox whose only exits are the model gateway and the task's exec API. */
import { readFile } from 'node:fs/promises'
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
import { gatewayBudget, readKey, type ModelSettings } from '../job/configuration.ts'
import { recordingPath } from '../job/recordings.ts'
import { ownLabel } from '../step-log.ts'
import { agentLimitMs, type HarnessEnd, type HarnessRun, type Sandboxes } from './harness-run.ts'
import { packFiles } from './bundle.ts'
import type { ExecutionContext } from './context.ts'
import { evidenceNames } from './evidence.ts'
import { readFileOut } from './read-file.ts'

const gibi = 1024 ** 3
const logLimitBytes = 4 * 1024 * 1024
const trajectoryLimitBytes = 200 * 1024 * 1024

export async function miniRun(context: ExecutionContext): Promise<HarnessRun> {
  const { client, configuration, images, task, trial, job, signal } = context
  const { model, limits } = configuration
  if (model === null || images.harness === null)
    throw new RunnerError(
      'harness_failed',
      'operator',
      'mini-SWE-agent needs a model and its image',
    )
  const workdir = task.workdir ?? (await client.inspectImage(images.task, { signal })).workdir
  const input: MiniInput = {
    instruction: task.instruction,
    model,
    limits: {
      ...limits,
      wallTimeSeconds: Math.min(limits.wallTimeSeconds, task.agent.timeoutSeconds ?? Infinity),
    },
    workdir: workdir === '' ? '/' : workdir,
  }
  const files = miniFiles(input)
  const config = await client.putBundle(await packFiles(files), { signal })
  const request: LeaseRequestInput = {
    image: images.harness,
    network: 'sealed',
    model: await gateway(context, model),
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

async function gateway(
  { client, configuration, task, run, signal }: ExecutionContext,
  model: ModelSettings,
): Promise<NonNullable<LeaseRequestInput['model']>> {
  const { upstream } = model
  return {
    upstream:
      upstream.kind !== 'replay'
        ? { kind: upstream.kind, baseUrl: upstream.baseUrl, apiKey: await readKey(upstream.key) }
        : {
            kind: 'replay',
            bundle: await client.putBundle(
              await packFiles({
                'recording.jsonl': await readFile(
                  await recordingPath(upstream.recordings, task.name, run),
                ),
              }),
              { signal },
            ),
            path: 'recording.jsonl',
          },
    model: model.name,
    parameters: model.parameters,
    price: model.price,
    budget: gatewayBudget(model, configuration.limits),
    upstreamTimeoutMs: model.timeoutSeconds * 1000,
  }
}

async function work(
  context: ExecutionContext,
  input: MiniInput,
  { harness }: Sandboxes,
  signal: AbortSignal,
): Promise<HarnessEnd> {
  if (harness === null) throw new Error('mini-SWE-agent works beside its task')
  const { argv, env, workdir } = miniCommand(input.model)
  const log: Buffer[] = []
  const end = await harness.exec(
    {
      argv: [...argv],
      env: { ...env },
      workdir,
      merged: true,
      timeoutMs: agentLimitMs(context),
      outputLimitBytes: logLimitBytes,
      label: `${ownLabel}mini-swe-agent`,
    },
    { onStdout: (bytes) => void log.push(bytes), signal },
  )
  await context.evidence.write(evidenceNames.harnessLog, Buffer.concat(log))
  const trajectory = await readFileOut(harness, trajectoryPath(), trajectoryLimitBytes, signal)
  if (trajectory !== null) await context.evidence.write(evidenceNames.trajectory, trajectory)
  return {
    exit: end.exit,
    timedOut: end.cause === 'timeout',
    trajectory,
    ignoredSettings: (reported) => configMismatches(input, reported),
  }
}
