/** What a task says about its container: environment variables and resources. The host's own variables never get in. */
import { join } from 'node:path'
import { RunnerError } from '../errors.ts'
import type { TaskToml } from './schema.ts'
import type { Task } from './task.ts'

/** Resolves `${NAME:-default}` to its default; `${NAME}` would need the host's environment and is refused. */
export function taskEnv(
  dir: string,
  key: string,
  env: Readonly<Record<string, string>>,
): Record<string, string> {
  const resolved: Record<string, string> = {}
  for (const [name, value] of Object.entries(env)) {
    if (!/^[A-Za-z_][A-Za-z0-9_]*$/.test(name))
      throw invalid(dir, `${key}.${name}`, 'not a variable name; use letters, digits and _')
    const reference = /^\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?\}$/s.exec(value)
    if (reference !== null && reference[2] === undefined)
      throw invalid(
        dir,
        `${key}.${name}`,
        `"${value}" asks for a variable of the host, which a sandbox never gets; write the value, or a default: "\${${reference[1]}:-value}"`,
      )
    resolved[name] = reference === null ? value : (reference[2] ?? '')
  }
  return resolved
}

export function taskResources(dir: string, toml: TaskToml): Task['environment']['resources'] {
  const { environment, closedbook } = toml
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
