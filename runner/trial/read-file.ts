/** One regular file out of a sandbox, by the engine's archive; what an agent could put in its place is refused. */
import tar from 'tar-stream'
import { RunnerError } from '../errors.ts'
import { isPathMissing } from './collect.ts'
import type { Sandbox } from './sandbox.ts'

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
  for await (const entry of archive.tar.pipe(tar.extract())) {
    if ((entry.header.size ?? 0) > limitBytes)
      throw new RunnerError(
        'transfer_failed',
        'agent',
        `${path} has ${entry.header.size} bytes; ${limitBytes} are read at most`,
      )
    for await (const chunk of entry) chunks.push(chunk as Buffer)
  }
  return Buffer.concat(chunks)
}
