/** Writes the template into a directory that is empty or not there yet. */
import { chmod, readdir } from 'node:fs/promises'
import { basename, join, resolve } from 'node:path'
import { imageTags } from '../../../images/build.ts'
import { RunnerError, systemCode } from '../../errors.ts'
import { makeDirectory, writeFileAtomic } from '../../json-file.ts'
import { templateFiles, type TemplateFile } from './template.ts'

export interface InitOptions {
  readonly area: string
  readonly hardware: 'cpu' | 'h100'
}

/** Returns the paths that were written, relative to the directory. */
export async function initTask(dir: string, options: InitOptions): Promise<readonly string[]> {
  if (!/^[a-z0-9][a-z0-9-]*$/.test(options.area))
    throw new RunnerError(
      'usage',
      'operator',
      `--area ${options.area}: lower-case words joined by hyphens, e.g. public-api`,
    )
  const slug = basename(resolve(dir))
    .toLowerCase()
    .replace(/[^a-z0-9]+/g, '-')
    .replace(/^-+|-+$/g, '')
  const files = templateFiles({
    ...options,
    name: `example/${slug === '' ? 'task' : slug}`,
    image: imageTags['sglang-cpu'],
  })
  await writeTask(dir, files)
  return files.map(({ path }) => path)
}

/** Throws `usage` where the directory holds anything. */
export async function writeTask(dir: string, files: readonly TemplateFile[]): Promise<void> {
  await requireEmpty(dir)
  await makeDirectory(dir)
  for (const { path, text, executable } of files) {
    const full = join(dir, path)
    await writeFileAtomic(full, text)
    if (executable === true) await chmod(full, 0o755)
  }
}

export async function requireEmpty(dir: string): Promise<void> {
  const names = await readdir(dir).catch((error: unknown) => {
    if (systemCode(error) === 'ENOENT') return []
    throw new RunnerError('usage', 'operator', `${dir} is no directory (${systemCode(error)})`)
  })
  if (names.length > 0)
    throw new RunnerError(
      'usage',
      'operator',
      `${dir} is not empty (${names.slice(0, 3).join(', ')}); give a new directory`,
    )
}
