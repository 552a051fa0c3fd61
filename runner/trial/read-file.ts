/** One regular file out of a sandbox, by the engine's archive; what an agent could put in its place is refused. */
import { RunnerError } from '../errors.ts'
import { isPathMissing } from './engine-answer.ts'
import type { Sandbox } from './sandbox.ts'
import { readTar } from './tar-reader.ts'

/** null where there is no such regular file. Throws when it is larger than the limit. */
export async function readFileOut(
  sandbox: Sandbox,
  path: string,
  limitBytes: number,
  signal: AbortSignal,
): Promise<Buffer | null> {
  const archive = await sandbox.readArchive(path, { signal }).catch((error: unknown) => {
    if (isPathMissing(error)) return null
    throw error
  })
  if (archive === null) return null
  if (archive.kind !== 'file') {
    archive.tar.destroy()
    return null
  }
  const chunks: Buffer[] = []
  for await (const item of readTar(archive.tar)) {
    if (Buffer.isBuffer(item)) chunks.push(item)
    else if (item.size > limitBytes)
      throw new RunnerError(
        'transfer_failed',
        'agent',
        `${path} has ${item.size} bytes; ${limitBytes} are read at most`,
      )
  }
  return Buffer.concat(chunks)
}
