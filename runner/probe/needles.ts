/**
 * What a search inside the sandbox looks for: hashes of the hidden tests and of the solution, whole and line by line,
 * never their bytes. Lines that say little (short, or in the same words in several files) are left out.
 */
import { createHash } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import path from 'node:path'
import type { Task } from '../task/task.ts'
import { readTree } from '../task/tree.ts'

export interface Needles {
  /** Name by sha256 of a whole file. */
  readonly files: Readonly<Record<string, string>>
  /** First 16 hex digits of the sha1 of each telling line, by name of its file. */
  readonly lines: Readonly<Record<string, readonly string[]>>
}

const leastBytes = 40
const leastLine = 30
const leastLines = 5
const maxFileBytes = 4 * 1024 * 1024

export async function needlesOf(task: Pick<Task, 'dir'>): Promise<Needles> {
  const files: Record<string, string> = {}
  const lines: Record<string, string[]> = {}
  const hidden = (await readTree(task.dir)).filter(
    ({ path: name, kind, sizeBytes }) =>
      kind === 'file' &&
      /^(tests|solution)\//.test(name) &&
      sizeBytes >= leastBytes &&
      sizeBytes <= maxFileBytes,
  )
  const owners = new Map<string, Set<string>>()
  for (const { path: name, sha256 } of hidden) {
    files[sha256] = name
    const text = await readFile(path.join(task.dir, name), 'latin1')
    for (const hash of new Set(telling(text)))
      owners.set(hash, (owners.get(hash) ?? new Set()).add(name))
  }
  for (const [hash, names] of owners) {
    const [only, ...others] = names
    if (only !== undefined && others.length === 0) (lines[only] ??= []).push(hash)
  }
  return {
    files,
    lines: Object.fromEntries(Object.entries(lines).filter(([, all]) => all.length >= leastLines)),
  }
}

const telling = (text: string): string[] =>
  text
    .split('\n')
    .map((line) => line.trim())
    .filter((line) => line.length >= leastLine)
    .map((line) => createHash('sha1').update(line, 'latin1').digest('hex').slice(0, 16))
