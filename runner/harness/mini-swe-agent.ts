/**
 * mini-SWE-agent, unmodified, beside the task: the files, command and environment it needs to run unattended. Pure.
 * Every setting here was found by running it: prices from a registry, no retries inside the client, an output encoding
 * that can print anything, no look-up on the network. Facts hold for 2.4.6; mini ignores unknown keys in silence, so
 * `configMismatches` compares what we set with what it says it used.
 */
import type { Limits, ModelSettings } from '../job/configuration.ts'
import { pyYaml, type Json } from './py-yaml.ts'

export interface MiniPaths {
  readonly mini: string
  /** mini's own configuration, which ours is laid over. */
  readonly baseConfig: string
  readonly shim: string
  /** Where the files of `miniFiles` are, read-only. */
  readonly configDir: string
  /** A directory that only this harness writes. */
  readonly scratchDir: string
}

const venv = '/opt/closedbook/venv'

/** As the harness image has them. */
export const miniPaths: MiniPaths = {
  mini: `${venv}/bin/mini`,
  baseConfig: `${venv}/lib/python3.13/site-packages/minisweagent/config/mini.yaml`,
  shim: '/opt/closedbook/docker',
  configDir: '/closedbook/config',
  scratchDir: '/tmp',
}

export const trajectoryPath = (paths: MiniPaths = miniPaths): string =>
  `${paths.scratchDir}/trajectory.traj.json`

export interface MiniInput {
  readonly instruction: string
  readonly model: ModelSettings
  readonly limits: Limits
  /** Working directory of the agent's commands in the task container. */
  readonly workdir: string
}

/** Seconds that `docker run` of the shim may take: it waits until the task's sandbox is ready. */
const leaseWaitSeconds = 900

/** As a document; `miniFiles` writes it and `configMismatches` compares it. */
export function miniConfig(input: MiniInput, paths: MiniPaths = miniPaths) {
  const { model, limits } = input
  return {
    run: { task: input.instruction },
    agent: {
      step_limit: limits.steps,
      cost_limit: limits.costUsd,
      wall_time_limit_seconds: limits.wallTimeSeconds,
    },
    environment: {
      environment_class: 'docker',
      // The shim binds every name to the one sandbox of this trial.
      image: 'task',
      cwd: input.workdir,
      timeout: limits.commandTimeoutSeconds,
      container_timeout: 'infinity',
      pull_timeout: leaseWaitSeconds,
      run_args: [] as string[],
    },
    model: {
      model_name: litellmName(model),
      // With the registry below real costs are counted; this only lets a price of zero pass.
      cost_tracking: 'ignore_errors',
      litellm_model_registry: `${paths.configDir}/registry.json`,
      model_kwargs: {
        ...model.parameters,
        // The gateway's own limit is shorter, so that a fault is its to tell.
        timeout: model.timeoutSeconds + 30,
        max_retries: 0,
      },
    },
  } satisfies Json
}

/** 15 digits: 0.1 a million is 1e-7 a token, and not a bit more. */
const perToken = (perMillion: number): number => Number((perMillion / 1e6).toPrecision(15))

/** Which of the gateway's APIs the client speaks. */
const apiOf = ({ upstream }: Pick<ModelSettings, 'upstream'>): 'openai' | 'anthropic' =>
  upstream.kind === 'replay' ? (upstream.api ?? 'openai') : upstream.kind

const litellmName = (model: Pick<ModelSettings, 'name' | 'upstream'>): string =>
  `${apiOf(model)}/${model.name}`

/** Files of the harness's configuration directory, by name. */
export function miniFiles(input: MiniInput, paths: MiniPaths = miniPaths): Record<string, string> {
  const { price, name } = input.model
  const registry = {
    input_cost_per_token: perToken(price.inputPerMillionUsd),
    output_cost_per_token: perToken(price.outputPerMillionUsd),
    cache_read_input_token_cost: perToken(price.cachedInputPerMillionUsd),
    ...(price.cacheWriteInputPerMillionUsd !== undefined && {
      cache_creation_input_token_cost: perToken(price.cacheWriteInputPerMillionUsd),
    }),
    litellm_provider: apiOf(input.model),
    mode: 'chat',
    max_tokens: 100_000,
  }
  return {
    'trial.yaml': `${pyYaml(miniConfig(input, paths))}\n`,
    'registry.json': `${JSON.stringify({ [litellmName(input.model)]: registry, [name]: registry }, null, 2)}\n`,
  }
}

export interface HarnessCommand {
  readonly argv: readonly string[]
  readonly env: Readonly<Record<string, string>>
  readonly workdir: string
}

/** Run with stdin from /dev/null (a closed one crashes it) and an otherwise empty environment. */
export function miniCommand(
  model: Pick<ModelSettings, 'attempts' | 'upstream'>,
  paths: MiniPaths = miniPaths,
): HarnessCommand {
  const attempts = model.attempts ?? (model.upstream.kind === 'replay' ? 3 : 10)
  return {
    argv: [
      paths.mini,
      '-y',
      '--exit-immediately',
      '-c',
      paths.baseConfig,
      '-c',
      `${paths.configDir}/trial.yaml`,
      '-o',
      trajectoryPath(paths),
    ],
    env: {
      PATH: '/usr/local/bin:/usr/bin:/bin',
      HOME: paths.scratchDir,
      LANG: 'C.UTF-8',
      COLUMNS: '200',
      TERM: 'dumb',
      PYTHONIOENCODING: 'utf-8:backslashreplace',
      TYPER_STANDARD_TRACEBACK: '1',
      MSWEA_CONFIGURED: 'true',
      MSWEA_SILENT_STARTUP: '1',
      MSWEA_GLOBAL_CONFIG_DIR: paths.configDir,
      MSWEA_DOCKER_EXECUTABLE: paths.shim,
      MSWEA_MODEL_RETRY_STOP_AFTER_ATTEMPT: String(attempts),
      // "1" would not do: it must read as true.
      LITELLM_LOCAL_MODEL_COST_MAP: 'True',
      NO_PROXY: '127.0.0.1',
      OPENAI_BASE_URL: 'http://127.0.0.1:8400/v1',
      OPENAI_API_KEY: 'closedbook-placeholder',
      ANTHROPIC_BASE_URL: 'http://127.0.0.1:8400',
      ANTHROPIC_API_KEY: 'closedbook-placeholder',
    },
    workdir: paths.scratchDir,
  }
}

/**
 * When we end it: mini looks at its own wall time between steps only, so a command or a call in flight may finish,
 * and it takes some seconds to start and to stop.
 */
export const hardLimitSeconds = (limits: Limits): number =>
  limits.wallTimeSeconds + limits.commandTimeoutSeconds + 60

/** Settings of ours that `info.config` of the trajectory lacks or has otherwise, as `agent.step_limit`. */
export function configMismatches(
  input: MiniInput,
  reported: unknown,
  paths: MiniPaths = miniPaths,
): string[] {
  const { run: _run, environment, ...rest } = miniConfig(input, paths)
  const { environment_class: _class, ...settings } = environment
  return missing({ ...rest, environment: settings }, reported, '')
}

function missing(ours: Json, theirs: unknown, path: string): string[] {
  if (typeof ours === 'object' && ours !== null && !Array.isArray(ours)) {
    if (typeof theirs !== 'object' || theirs === null) return [path]
    const record = new Map(Object.entries(theirs))
    return Object.entries(ours).flatMap(([key, value]) =>
      missing(value, record.get(key), path === '' ? key : `${path}.${key}`),
    )
  }
  return JSON.stringify(ours) === JSON.stringify(theirs) ? [] : [path]
}
