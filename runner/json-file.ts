/**
 * Files that must be whole or absent: written beside their place, flushed, then renamed over it, and the directory
 * flushed, so that neither a crash nor a full disk leaves half a file under the final name.
 */
import { randomBytes } from 'node:crypto'
import { open, rename, rm } from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'
import { makeDirectory as makeEach } from '../daemon/protocol/make-directory.ts'
import { RunnerError, messageOf, systemCode } from './errors.ts'

export async function writeFileAtomic(path: string, content: string | Uint8Array): Promise<void> {
  const directory = dirname(path)
  const temporary = join(directory, `.${basename(path)}.${randomBytes(6).toString('hex')}.tmp`)
  try {
    await makeDirectory(directory)
    await using file = await open(temporary, 'wx', 0o644)
    await file.writeFile(content)
    await file.sync()
    await rename(temporary, path)
    await syncDirectory(directory)
  } catch (error) {
    await rm(temporary, { force: true }).catch(() => {})
    throw writeError(path, error)
  }
}

export const writeJsonAtomic = (path: string, value: unknown): Promise<void> =>
  writeFileAtomic(path, `${JSON.stringify(value, null, 2)}\n`)

export async function makeDirectory(path: string, mode = 0o755): Promise<void> {
  try {
    await makeEach(path, mode)
  } catch (error) {
    throw writeError(path, error)
  }
}

export async function syncDirectory(path: string): Promise<void> {
  await using directory = await open(path, 'r')
  await directory.sync()
}

const advice: Readonly<Record<string, string>> = {
  ENOSPC: 'the disk is full; free some space and run the command again',
  EDQUOT: 'the disk quota is used up; free some space and run the command again',
  EACCES: 'no permission; run as the owner of that directory',
  EPERM: 'no permission; run as the owner of that directory',
  EROFS: 'the file system is read-only; choose another directory',
}

export function writeError(path: string, error: unknown): RunnerError {
  if (error instanceof RunnerError) return error
  const why = advice[systemCode(error) ?? ''] ?? messageOf(error)
  return new RunnerError('write_failed', 'infra', `can't write ${path}: ${why}`, {
    cause: error,
    facts: { path },
  })
}
