/**
 * Where hidden tests run, by Harbor's rules. Shared (its default): in the task's image, on a snapshot of what the agent
 * changed. Separate: in an image of its own, or in the task's again, with nothing but the declared artifacts; an image
 * of its own brings its tests with it.
 */
import { join } from 'node:path'
import { taskEnv, taskResources } from './environment.ts'
import { harborImage } from './image.ts'
import type { LoadOptions } from './options.ts'
import type { TaskToml } from './schema.ts'
import type { Task, TaskImage } from './task.ts'
import type { TreeEntry } from './tree.ts'

export type VerifierPlace = NonNullable<Task['verifier']['place']>

export const isSeparate = ({ verifier }: TaskToml): boolean =>
  verifier.environment_mode === 'separate' || verifier.environment !== undefined

/** null: the task's own container settings. */
export function verifierPlace(
  dir: string,
  toml: TaskToml,
  entries: readonly TreeEntry[],
  options: LoadOptions,
): VerifierPlace | null {
  if (!isSeparate(toml)) return null
  const own = toml.verifier.environment
  const image = ownImage(dir, toml, entries)
  return {
    image,
    bundled: image !== null,
    workdir:
      own?.workdir ??
      (own === undefined && image === null ? (toml.environment.workdir ?? null) : null),
    ...(own === undefined
      ? {
          env: taskEnv(dir, 'environment.env', toml.environment.env, options),
          resources: taskResources(dir, toml.environment, toml),
        }
      : {
          env: taskEnv(dir, 'verifier.environment.env', own.env, options),
          resources: taskResources(dir, own, toml),
        }),
  }
}

function ownImage(dir: string, toml: TaskToml, entries: readonly TreeEntry[]): TaskImage | null {
  const reference = toml.verifier.environment?.docker_image
  if (reference !== undefined) return harborImage(reference)
  if (!entries.some(({ path }) => path === 'tests/Dockerfile')) return null
  return {
    kind: 'dockerfile',
    context: join(dir, 'tests'),
    dockerfile: join(dir, 'tests/Dockerfile'),
    tags: true,
  }
}
