/**
 * A harness inside the task's own sandbox, on a terminal: mini-SWE-agent from the file system of its image, or the
 * command of a file. The model gateway is then a listener of the task's sandbox. What such a harness says of itself the
 * agent could have written, so only what gateway, engine and clock say decides how it ended.
 */
import path from 'node:path'
import type { LeaseRequestInput } from '../../daemon/protocol/lease.ts'
import { RunnerError } from '../errors.ts'
import { fill, readCommandFile, type Placeholders } from '../harness/command-file.ts'
import { miniInsideCommand, miniInsideFiles, miniInsidePaths } from '../harness/mini-inside.ts'
import { trajectoryPath } from '../harness/mini-swe-agent.ts'
import { insidePlaces } from '../harness/places.ts'
import type { ModelSettings } from '../job/configuration.ts'
import { packDirectory, packFiles } from './bundle.ts'
import type { ExecutionContext } from './context.ts'
import { evidenceNames } from './evidence.ts'
import { agentLimitMs, agentTimeMs, type HarnessEnd, type HarnessRun } from './harness-run.ts'
import { miniInput } from './mini-run.ts'
import { modelGateway } from './model-gateway.ts'
import { readFileOut } from './read-file.ts'
import { miniSilenceMs, runOnTerminal, type TerminalProgram } from './terminal-run.ts'

type Mount = NonNullable<LeaseRequestInput['mounts']>[number]

interface InsidePlan extends TerminalProgram {
  readonly mounts: readonly Mount[]
  readonly trajectory: string | null
}

const trajectoryLimitBytes = 200 * 1024 * 1024

export async function insideRun(context: ExecutionContext): Promise<HarnessRun> {
  const { client, configuration, evidence } = context
  const { harness, model } = configuration
  if (model === null)
    throw new RunnerError('harness_failed', 'operator', `harness ${harness.kind} needs a model`)
  const plan =
    harness.kind === 'command'
      ? await commandPlan(context, harness.file, model)
      : await miniPlan(context, model)
  return {
    task: { model: await modelGateway(context, model), mounts: [...plan.mounts] },
    harness: null,
    work: async (sandboxes, signal): Promise<HarnessEnd> => {
      const task = await sandboxes.task
      const ran = await runOnTerminal(client, task, plan, signal)
      await evidence.write(evidenceNames.harnessLog, ran.output)
      const trajectory =
        plan.trajectory === null || ran.end.cause === 'container_gone'
          ? null
          : await readFileOut(task, plan.trajectory, trajectoryLimitBytes, signal)
      if (trajectory !== null) await evidence.write(evidenceNames.trajectory, trajectory)
      return {
        exit: ran.end.exit,
        timedOut: ran.timedOut,
        hung: ran.hung,
        trajectory,
      }
    },
  }
}

async function miniPlan(context: ExecutionContext, model: ModelSettings): Promise<InsidePlan> {
  const { client, images, configuration, signal } = context
  if (images.harness === null)
    throw new RunnerError('harness_failed', 'operator', 'mini-SWE-agent needs its image')
  const input = await miniInput(context, model)
  const files = Object.entries(miniInsideFiles(input)).map(([name, { text, executable }]) => ({
    name,
    text,
    executable,
  }))
  return {
    ...miniInsideCommand(model),
    label: 'mini-swe-agent',
    timeoutMs: agentLimitMs(context),
    silenceMs: miniSilenceMs(model, configuration.limits),
    mounts: [
      {
        bundle: await client.putImageBundle(images.harness, { signal }),
        target: insidePlaces.harness,
      },
      { bundle: await configBundle(context, files), target: insidePlaces.config },
    ],
    trajectory: trajectoryPath(miniInsidePaths),
  }
}

async function commandPlan(
  context: ExecutionContext,
  file: string,
  model: ModelSettings,
): Promise<InsidePlan> {
  const { client, configuration, task, signal } = context
  const { limits } = configuration
  const command = await readCommandFile(file)
  const input = await miniInput(context, model)
  const facts: Placeholders = {
    instruction: task.instruction,
    workdir: input.workdir,
    model: model.name,
    steps: String(limits.steps),
    cost_usd: String(limits.costUsd),
    wall_time_seconds: String(input.limits.wallTimeSeconds),
    command_timeout_seconds: String(limits.commandTimeoutSeconds),
    openai_base_url: 'http://127.0.0.1:8400/v1',
    anthropic_base_url: 'http://127.0.0.1:8400',
    api_key: 'closedbook-placeholder',
    harness_dir: insidePlaces.harness,
    config_dir: insidePlaces.config,
    scratch_dir: insidePlaces.scratch,
  }
  const files = Object.entries({ 'instruction.md': '{{instruction}}', ...command.files }).map(
    ([name, text]) => ({ name, text: fill(text, facts), executable: text.startsWith('#!') }),
  )
  const mounts: Mount[] = [
    { bundle: await configBundle(context, files), target: insidePlaces.config },
  ]
  if (context.images.harness !== null)
    mounts.push({
      bundle: await client.putImageBundle(context.images.harness, { signal }),
      target: insidePlaces.harness,
    })
  if (command.directory !== undefined)
    mounts.push({
      bundle: await client.putBundle(await packDirectory(command.directory), { signal }),
      target: insidePlaces.harness,
    })
  const entries = Object.entries({
    OPENAI_BASE_URL: facts.openai_base_url,
    OPENAI_API_KEY: facts.api_key,
    ANTHROPIC_BASE_URL: facts.anthropic_base_url,
    ANTHROPIC_API_KEY: facts.api_key,
    ...command.env,
  })
  return {
    argv: command.argv.map((word) => fill(word, facts)),
    env: Object.fromEntries(entries.map(([name, text]) => [name, fill(text, facts)])),
    workdir: input.workdir,
    label: command.name,
    timeoutMs: agentTimeMs(context),
    silenceMs: command.silenceSeconds * 1000,
    mounts,
    trajectory: command.trajectory?.path ?? null,
  }
}

async function configBundle(
  { client, signal }: ExecutionContext,
  files: readonly { readonly name: string; readonly text: string; readonly executable: boolean }[],
): Promise<string> {
  const executable = files.filter((one) => one.executable).map(({ name }) => name)
  const contents = Object.fromEntries(files.map(({ name, text }) => [path.basename(name), text]))
  return client.putBundle(await packFiles(contents, { executable: new Set(executable) }), {
    signal,
  })
}
