/**
 * One builder at a time for a state directory, across processes. flock(1) holds the lock and dies with its stdin, so a
 * killed builder leaves nothing to clear away.
 */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdir } from 'node:fs/promises'
import { join } from 'node:path'
import { HostError } from '../daemon/errors.ts'

export async function withBuildLock<T>(
  stateDir: string,
  signal: AbortSignal | undefined,
  work: () => Promise<T>,
): Promise<T> {
  await mkdir(stateDir, { recursive: true })
  const file = join(stateDir, 'images.lock')
  const holder = spawn('flock', [file, 'sh', '-c', 'echo; exec cat >/dev/null'], {
    stdio: ['pipe', 'pipe', 'ignore'],
    ...(signal === undefined ? {} : { signal }),
  })
  holder.stdin.on('error', () => {})
  const ended = once(holder, 'close')
  try {
    await Promise.race([
      once(holder.stdout, 'data'),
      ended.then(
        () => Promise.reject(new Error('flock ended early')),
        (error: unknown) => Promise.reject(error instanceof Error ? error : new Error('flock')),
      ),
    ])
  } catch (error) {
    holder.stdin.end()
    signal?.throwIfAborted()
    throw new HostError(
      'tool_missing',
      'operator',
      `The image lock ${file} can't be taken with flock(1): apt-get install util-linux, and check that the directory is writable`,
      { cause: error },
    )
  }
  try {
    return await work()
  } finally {
    holder.stdin.end()
    await ended.catch(() => {})
  }
}
