import { mkdir, mkdtemp, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'

/** A new directory under `parent` with these files, as a task's tests/. */
export async function writeTests(
  parent: string,
  files: Readonly<Record<string, string>>,
): Promise<string> {
  const directory = await mkdtemp(join(parent, 'tests-'))
  for (const [path, text] of Object.entries(files)) {
    await mkdir(dirname(join(directory, path)), { recursive: true })
    await writeFile(join(directory, path), text)
  }
  return directory
}
