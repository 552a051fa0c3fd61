/**
 * A Harbor task with our section: copied as it is, and the section written behind its task.toml with what can be
 * derived. What can't be (where the task comes from, its area, a regression suite) is left to lint to ask for.
 */
import { chmod, copyFile, stat } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { RunnerError } from '../../errors.ts'
import { makeDirectory, writeFileAtomic } from '../../json-file.ts'
import { requireEmpty } from '../init/init.ts'
import { readTaskDirectory, type TaskDirectory } from '../lint/directory.ts'
import { logicalLines } from '../lint/shell-text.ts'
import { taskTomlSchema, type TaskToml } from '../schema.ts'
import { zodMessage } from '../../../daemon/protocol/zod-message.ts'
import { tomlTable } from './toml-text.ts'

export interface HarborOptions {
  /** Pinned; in place of what the task names. */
  readonly image?: string | undefined
  readonly workdir?: string | undefined
  readonly area?: string | undefined
  readonly source?: { readonly kind: string; readonly ref: string } | undefined
}

export async function importHarbor(
  from: string,
  to: string,
  options: HarborOptions,
): Promise<readonly string[]> {
  const directory = await readTaskDirectory(from)
  const { toml, tomlText } = directory
  const parsed = taskTomlSchema.safeParse(toml)
  if (tomlText === null || directory.tomlError !== null || !parsed.success)
    throw refused(
      from,
      tomlText === null
        ? 'has no task.toml'
        : `task.toml: ${directory.tomlError ?? (parsed.success ? '' : zodMessage(parsed.error))}`,
    )
  if (parsed.data.closedbook !== undefined)
    throw refused(from, 'has a [closedbook] section already; nothing to import')
  if (directory.has('tests/Dockerfile') || parsed.data.verifier.environment !== undefined)
    throw refused(
      from,
      'brings a verifier image of its own, which a section would switch off; it runs as it is: closedbook run --task',
    )
  const section = await harborSection(directory, parsed.data, options)
  await requireEmpty(to)
  for (const { path, kind } of directory.files) {
    if (kind !== 'file')
      throw refused(from, `${path} is no plain file; replace links by what they point at`)
    const target = join(to, path)
    await makeDirectory(dirname(target))
    await copyFile(join(directory.dir, path), target)
    await chmod(target, (await stat(join(directory.dir, path))).mode & 0o111 ? 0o755 : 0o644)
  }
  await writeFileAtomic(join(to, 'task.toml'), `${tomlText.trimEnd()}\n\n${section}`)
  return directory.files.map(({ path }) => path)
}

const refused = (from: string, why: string): RunnerError =>
  new RunnerError('task_invalid', 'task', `${from} ${why}`)

async function harborSection(
  directory: TaskDirectory,
  toml: TaskToml,
  options: HarborOptions,
): Promise<string> {
  const separate = toml.verifier.environment_mode === 'separate' && toml.artifacts.length > 0
  const category = (toml as { metadata?: { category?: unknown } }).metadata?.category
  const workdir =
    options.workdir ??
    toml.environment.workdir ??
    lastWorkdir(await directory.text('environment/Dockerfile'))
  return [
    tomlTable('closedbook', {
      hardware: (toml.environment.gpus ?? 0) > 0 ? 'h100' : 'cpu',
      image: options.image,
      workdir,
      verify: separate ? 'artifacts' : 'snapshot',
      source: options.source,
      area: options.area ?? areaOf(category),
    }),
    tomlTable('closedbook.functional', {
      command: 'bash /tests/test.sh',
      results: 'reward',
    }),
  ].join('\n')
}

function areaOf(category: unknown): string | undefined {
  if (typeof category !== 'string') return undefined
  const slug = category
    .toLowerCase()
    .replace(/[^a-z0-9]+/g, '-')
    .replace(/^-+|-+$/g, '')
  return slug === '' ? undefined : slug
}

/** Of the last stage; relative ones add to what stood before. */
function lastWorkdir(dockerfile: string | null): string | undefined {
  let found: string | undefined
  for (const { text } of logicalLines(dockerfile ?? '')) {
    const [, verb = '', rest = ''] = /^\s*(\S+)\s+(.*)$/s.exec(text) ?? []
    if (/^from$/i.test(verb)) found = undefined
    if (!/^workdir$/i.test(verb)) continue
    const path = rest.trim().replace(/^(["'])(.*)\1$/, '$2')
    found = path.startsWith('/') ? path : `${found ?? ''}/${path}`
  }
  return found === undefined || found.includes('$') ? undefined : found
}
