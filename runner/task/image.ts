/**
 * Which image a task runs in: a reference, or its Dockerfile. A tag moves, so a task of ours must name a digest. A Harbor
 * task may name a tag: it is resolved to an image id when a job is planned, and the plan holds that.
 */
import { join } from 'node:path'
import { RunnerError } from '../errors.ts'
import type { TaskToml } from './schema.ts'
import type { TaskImage } from './task.ts'
import type { TreeEntry } from './tree.ts'

const pinned = /^(?:[^\s@]+@)?sha256:[0-9a-f]{64}$/

export const harborImage = (reference: string): TaskImage => ({ kind: 'reference', reference })

export const isPinned = (reference: string): boolean => pinned.test(reference)

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
        toml.closedbook === undefined ? 'environment.docker_image' : 'closedbook.image',
        'no image: set it to "name@sha256:…", or add environment/Dockerfile',
      )
    return {
      kind: 'dockerfile',
      context: join(dir, 'environment'),
      dockerfile: join(dir, 'environment/Dockerfile'),
      ...(toml.closedbook === undefined && { tags: true }),
    }
  }
  if (toml.closedbook !== undefined && !pinned.test(reference))
    throw invalid(
      dir,
      key,
      `"${reference}" is not pinned; write it as "${reference.replace(/@.*$/, '')}@sha256:…" (docker image inspect shows the digest under RepoDigests)`,
    )
  const loose = entries.find(
    (entry) =>
      entry.kind !== 'directory' &&
      entry.path.startsWith('environment/') &&
      entry.path !== 'environment/Dockerfile',
  )
  if (loose === undefined || dockerfile) return { kind: 'reference', reference }
  if (toml.closedbook !== undefined)
    throw invalid(
      dir,
      key,
      `the image is prebuilt, so ${loose.path} would never reach it; add it to the image and delete it here`,
    )
  const workdir = toml.environment.workdir ?? null
  return {
    kind: 'reference',
    reference,
    loose: { folder: join(dir, 'environment'), workdir },
  }
}

const invalid = (dir: string, key: string, message: string): RunnerError =>
  new RunnerError('task_invalid', 'task', `${join(dir, 'task.toml')}: ${key}: ${message}`, {
    facts: { key },
  })
