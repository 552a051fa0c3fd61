/**
 * A task directory as lint reads it: whatever is there, also where the task itself could not be loaded. Files are read
 * when asked for; links are not followed out of the directory.
 */
import { lstat, readFile, readdir, realpath } from 'node:fs/promises'
import { join } from 'node:path'
import { parse as parseToml } from 'smol-toml'
import { messageOf } from '../../errors.ts'

export interface DirectoryFile {
  /** Relative, with `/`. */
  readonly path: string
  readonly kind: 'file' | 'symlink' | 'other'
  readonly sizeBytes: number
}

export interface TaskDirectory {
  readonly dir: string
  readonly files: readonly DirectoryFile[]
  /** The text of task.toml; null where there is none. */
  readonly tomlText: string | null
  /** Parsed; null where it isn't TOML. */
  readonly toml: unknown
  readonly tomlError: string | null
  readonly has: (path: string) => boolean
  /** Of a regular file; null for what is none, or too large to be text. */
  readonly text: (path: string) => Promise<string | null>
  readonly bytes: (path: string) => Promise<Buffer>
}

const maxTextBytes = 8 * 1024 * 1024

export async function readTaskDirectory(path: string): Promise<TaskDirectory> {
  const dir = await realpath(path)
  const files: DirectoryFile[] = []
  const walk = async (at: string): Promise<void> => {
    for (const name of (await readdir(join(dir, at))).toSorted()) {
      const inner = at === '' ? name : `${at}/${name}`
      if (name === '.git' || inner === 'closedbook') continue
      const facts = await lstat(join(dir, inner))
      if (facts.isDirectory()) await walk(inner)
      else {
        const kind = facts.isFile() ? 'file' : facts.isSymbolicLink() ? 'symlink' : 'other'
        files.push({ path: inner, kind, sizeBytes: facts.size })
      }
    }
  }
  await walk('')
  const byPath = new Map(files.map((file) => [file.path, file]))
  const text = async (name: string): Promise<string | null> => {
    const file = byPath.get(name)
    if (file?.kind !== 'file' || file.sizeBytes > maxTextBytes) return null
    const bytes = await readFile(join(dir, name))
    return bytes.includes(0) ? null : bytes.toString('utf8')
  }
  const tomlText = await text('task.toml')
  let toml: unknown = null
  let tomlError: string | null = null
  if (tomlText !== null)
    try {
      toml = parseToml(tomlText)
    } catch (error) {
      tomlError = messageOf(error).trim()
    }
  return {
    dir,
    files,
    tomlText,
    toml,
    tomlError,
    has: (name) => byPath.has(name),
    text,
    bytes: (name) => readFile(join(dir, name)),
  }
}
