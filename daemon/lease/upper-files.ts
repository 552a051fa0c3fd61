/**
 * Files that a container wrote, as the host's file system has them. An engine that tells changes by size and time misses
 * a file that was written anew with the same of both; nothing that was written is missing here. Whiteouts (what the
 * container removed) and directories are left to the engine, which knows the image.
 */
import { opendir } from 'node:fs/promises'
import path from 'node:path'
import { EngineError } from '../errors.ts'

const maxFiles = 1_000_000

/** Absolute paths inside of the container. Nothing where the host has no such place, or this process can't see it. */
export async function upperFiles(upperDir: string | null): Promise<string[]> {
  const found: string[] = []
  const walk = async (inner: string): Promise<void> => {
    const directory = await opendir(path.join(upperDir ?? '', inner)).catch(() => null)
    if (directory === null) return
    const below: string[] = []
    for await (const entry of directory) {
      if (entry.isDirectory()) below.push(`${inner}/${entry.name}`)
      else if (!entry.isCharacterDevice()) found.push(`${inner}/${entry.name}`)
      if (found.length > maxFiles)
        throw new EngineError(
          'engine_refused',
          'agent',
          `the sandbox wrote more than ${maxFiles} files, too many to list`,
        )
    }
    for (const name of below) await walk(name)
  }
  if (upperDir !== null) await walk('')
  return found
}
