/** A directory with those above it: of the daemon's state, of a job's evidence. */
import { existsSync } from 'node:fs'
import { mkdir } from 'node:fs/promises'
import path from 'node:path'

/** Part by part: the recursive one of Node never ends where the file system knows no such directory (/proc). */
export async function makeDirectory(directory: string, mode: number): Promise<void> {
  const parts = path.resolve(directory).split(path.sep)
  for (let length = 2; length <= parts.length; length += 1) {
    const part = parts.slice(0, length).join(path.sep)
    if (existsSync(part)) continue
    await mkdir(part, { mode }).catch((error: unknown) => {
      // Another may have made it meanwhile.
      if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error
    })
  }
}
