/**
 * What a task says about its container: environment variables and resources. A variable of the host gets in only where
 * the operator names it; then it wins over the task's default, as in Harbor.
 */
import { join } from 'node:path'
import { RunnerError } from '../errors.ts'
import type { LoadOptions } from './options.ts'
import type { HarborEnvironment, TaskToml } from './schema.ts'
import type { Task } from './task.ts'

/** Resolves `${NAME}` and `${NAME:-default}`, as whole values; without the operator's word the first is refused. */
export function taskEnv(
  dir: string,
  key: string,
  env: Readonly<Record<string, string>>,
  { harbor, env: host = process.env }: LoadOptions = {},
): Record<string, string> {
  const resolved: Record<string, string> = {}
  for (const [name, value] of Object.entries(env)) {
    if (!/^[A-Za-z_][A-Za-z0-9_]*$/.test(name))
      throw invalid(dir, `${key}.${name}`, 'not a variable name; use letters, digits and _')
    const reference = referenceIn(value)
    if (reference === null) {
      resolved[name] = value
      continue
    }
    const [, wanted = '', fallback] = reference
    const allowed = harbor?.hostEnv.includes(wanted) === true
    const given = allowed ? (host[wanted] ?? fallback) : fallback
    if (given === undefined)
      throw allowed
        ? new RunnerError(
            'config_invalid',
            'operator',
            `${join(dir, 'task.toml')}: ${key}.${name}: the variable ${wanted} is not set on this host; export it, or take it off the list of allowed ones`,
          )
        : invalid(
            dir,
            `${key}.${name}`,
            `"${value}" asks for a variable of the host, which a sandbox never gets by itself; write the value, or a default: "\${${wanted}:-value}", or allow it: --host-env ${wanted}`,
          )
    resolved[name] = given
  }
  return resolved
}

const referenceIn = (value: string): RegExpExecArray | null =>
  /^\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?\}$/s.exec(value)

/** What the host has for each variable that the task asks for and the operator allows; null: it is not set. */
export function hostValues(
  { environment, verifier, solution }: TaskToml,
  { harbor, env: host = process.env }: LoadOptions = {},
): Record<string, string | null> {
  const tables = [environment.env, verifier.env, verifier.environment?.env ?? {}, solution.env]
  const asked = tables.flatMap((env) => Object.values(env)).map((one) => referenceIn(one)?.[1])
  const given = (harbor?.hostEnv ?? []).filter((name) => asked.includes(name)).toSorted()
  return Object.fromEntries(given.map((name) => [name, host[name] ?? null]))
}

export function taskResources(
  dir: string,
  environment: HarborEnvironment,
  { closedbook }: TaskToml,
): Task['environment']['resources'] {
  const memoryBytes =
    megabytes(environment.memory_mb) ?? size(dir, 'environment.memory', environment.memory)
  const diskBytes =
    megabytes(environment.storage_mb) ?? size(dir, 'environment.storage', environment.storage)
  const shmBytes = megabytes(closedbook?.shm_mb)
  return {
    ...(environment.cpus !== undefined && { cpus: environment.cpus }),
    ...(memoryBytes !== undefined && { memoryBytes }),
    ...(diskBytes !== undefined && { diskBytes }),
    ...(closedbook?.pids !== undefined && { pids: closedbook.pids }),
    ...(shmBytes !== undefined && { shmBytes }),
  }
}

const megabytes = (value: number | undefined): number | undefined =>
  value === undefined ? undefined : value * 1024 * 1024

const units: Readonly<Record<string, number>> = {
  K: 1024,
  M: 1024 ** 2,
  G: 1024 ** 3,
  T: 1024 ** 4,
}

/** Harbor's old spelling: "2G", "512M". */
function size(dir: string, key: string, text: string | undefined): number | undefined {
  if (text === undefined) return undefined
  const match = /^(\d+(?:\.\d+)?)\s*([KMGT])i?B?$/i.exec(text.trim())
  const unit = units[match?.[2]?.toUpperCase() ?? '']
  if (match?.[1] === undefined || unit === undefined)
    throw invalid(dir, key, `"${text}" is not a size; write "512M" or "2G"`)
  return Math.round(Number(match[1]) * unit)
}

const invalid = (dir: string, key: string, message: string): RunnerError =>
  new RunnerError('task_invalid', 'task', `${join(dir, 'task.toml')}: ${key}: ${message}`, {
    facts: { key },
  })
