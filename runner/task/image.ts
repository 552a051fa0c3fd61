/** Which image a task runs in: a pinned reference, or its Dockerfile. A tag moves, so a tag is refused. */
import { join } from 'node:path'
import { RunnerError } from '../errors.ts'
import type { TaskToml } from './schema.ts'
import type { TaskImage } from './task.ts'
import type { TreeEntry } from './tree.ts'

const pinned = /^(?:[^\s@]+@)?sha256:[0-9a-f]{64}$/

export function resolveImage(
  dir: string,
  toml: TaskToml,
  entries: readonly TreeEntry[],
): TaskImage {
  const dockerfile = entries.some((entry) => entry.path === 'environment/Dockerfile')
  const own = toml.closedbook?.image
  const reference = own ?? toml.environment.docker_image
  const key = own === undefined ? 'environment.docker_image' : 'closedbook.image'
  if (reference === undefined) {
    if (!dockerfile)
      throw invalid(
        dir,
        'closedbook.image',
        'no image: set it to "name@sha256:…", or add environment/Dockerfile',
      )
    return {
      kind: 'dockerfile',
      context: join(dir, 'environment'),
      dockerfile: join(dir, 'environment/Dockerfile'),
    }
  }
  if (!pinned.test(reference))
    throw invalid(
      dir,
      key,
      `"${reference}" is not pinned; write it as "${reference.replace(/@.*$/, '')}@sha256:…" (docker image inspect shows the digest under RepoDigests)`,
    )
  const loose = entries.find(
    (entry) => entry.path.startsWith('environment/') && entry.path !== 'environment/Dockerfile',
  )
  if (loose !== undefined && !dockerfile)
    throw invalid(
      dir,
      key,
      `the image is prebuilt, so ${loose.path} would never reach it; add it to the image and delete it here`,
    )
  return { kind: 'reference', reference }
}

const invalid = (dir: string, key: string, message: string): RunnerError =>
  new RunnerError('task_invalid', 'task', `${join(dir, 'task.toml')}: ${key}: ${message}`, {
    facts: { key },
  })
