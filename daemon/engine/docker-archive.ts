/** Reading and writing tars of a container's file system through the engine. */
import type { IncomingMessage } from 'node:http'
import type { Readable } from 'node:stream'
import type Docker from 'dockerode'
import { EngineError } from '../errors.ts'
import { ask, endOnAbort } from './driver-error.ts'
import type { PathStat } from './engine.ts'

export interface ArchiveDeps {
  readonly docker: Docker
  readonly socketPath: string
}

export async function readArchive(
  { docker, socketPath }: ArchiveDeps,
  containerId: string,
  path: string,
  signal?: AbortSignal,
): Promise<{ stat: PathStat; tar: Readable }> {
  const tar = await ask(
    { action: `read ${path}`, container: containerId, path, socketPath },
    { signal },
    (abortSignal) =>
      docker
        .getContainer(containerId)
        .getArchive({ path, abortSignal }) as Promise<IncomingMessage>,
  )
  const header = tar.headers['x-docker-container-path-stat']
  if (typeof header !== 'string') {
    tar.destroy()
    throw new EngineError('engine_refused', 'infra', `The engine sent no facts about ${path}.`)
  }
  return { stat: pathStat(header), tar: endOnAbort(tar, signal) }
}

export async function writeArchive(
  { docker, socketPath }: ArchiveDeps,
  containerId: string,
  path: string,
  tar: Readable,
  signal?: AbortSignal,
): Promise<void> {
  await ask(
    { action: `write to ${path}`, container: containerId, path, socketPath },
    { signal },
    (abortSignal) => docker.getContainer(containerId).putArchive(tar, { path, abortSignal }),
  )
}

/** Bits of Go's os.FileMode, in which the engine describes the type of a path. */
const goDirectory = 2 ** 31
const goSymlink = 2 ** 27
const goOther = 2 ** 26 + 2 ** 25 + 2 ** 24 + 2 ** 21 + 2 ** 19

function pathStat(header: string): PathStat {
  const stat = JSON.parse(Buffer.from(header, 'base64').toString('utf8')) as {
    name: string
    size: number
    mode: number
    linkTarget?: string
  }
  // Bit 31 makes the number negative for JavaScript's bit operators, so it is tested by arithmetic.
  const has = (bits: number): boolean => (BigInt(stat.mode) & BigInt(bits)) !== 0n
  const kind = has(goDirectory)
    ? 'directory'
    : has(goSymlink)
      ? 'symlink'
      : has(goOther)
        ? 'other'
        : 'file'
  return { name: stat.name, sizeBytes: stat.size, kind, linkTarget: stat.linkTarget ?? '' }
}
