/**
 * The suites of a task, as its [closedbook] section names them; a Harbor task's one suite is its script. Ids of tests
 * that must be reported are the task's own, else those that its qualification found, where that is not stale.
 */
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { RunnerError, messageOf, systemCode } from '../errors.ts'
import { readQualification } from '../qualify/document.ts'
import type { SuiteSection, TaskToml } from './schema.ts'
import type { Suite, SuiteName, Task } from './task.ts'
import type { TreeEntry } from './tree.ts'

type Expected = Readonly<Record<SuiteName, readonly string[]>> | null

/** `digest` is the task's: a qualification of another one says nothing about this. */
export async function readSuites(
  dir: string,
  toml: TaskToml,
  entries: readonly TreeEntry[],
  { digest, bundled }: { readonly digest: string; readonly bundled: boolean },
): Promise<Task['suites']> {
  const own = toml.closedbook
  if (!bundled && !entries.some(({ path, kind }) => kind === 'file' && path.startsWith('tests/')))
    throw invalid(join(dir, 'tests'), 'missing or empty; put the hidden tests into it')
  const found = await qualifiedIds(dir, digest)
  if (own === undefined) {
    if (!bundled && !has(entries, 'tests/test.sh'))
      throw invalid(
        join(dir, 'tests/test.sh'),
        has(entries, 'tests/test.bat')
          ? 'missing, and tests/test.bat is for Windows, which is not supported; add a test.sh'
          : 'missing; add it, or name the suites in [closedbook.functional] of task.toml',
      )
    return {
      functional: {
        name: 'functional',
        command: '/tests/test.sh',
        results: 'reward',
        timeoutSeconds: toml.verifier.timeout_sec,
        manner: 'harbor',
        expected: listed(found, 'functional'),
      },
      regression: null,
    }
  }
  const suite = async (name: SuiteName, section: SuiteSection): Promise<Suite> => ({
    name,
    command: section.command,
    results: section.results,
    timeoutSeconds: section.timeout_sec ?? toml.verifier.timeout_sec,
    expected: (await statedIds(dir, name, section)) ?? listed(found, name),
  })
  return {
    functional: await suite('functional', own.functional),
    regression: own.regression === undefined ? null : await suite('regression', own.regression),
  }
}

async function qualifiedIds(dir: string, digest: string): Promise<Expected> {
  // One that is damaged is told where a qualification is asked for; here the task can do without.
  const document = (await readQualification(dir).catch(() => null))?.document
  return document?.qualified === true && document.digests.task === digest ? document.expected : null
}

const listed = (expected: Expected, name: SuiteName): readonly string[] | null => {
  const ids = expected?.[name] ?? []
  return ids.length === 0 ? null : ids
}

async function statedIds(
  dir: string,
  name: SuiteName,
  section: SuiteSection,
): Promise<readonly string[] | null> {
  const key = `closedbook.${name}.expected`
  if (section.expected !== undefined && section.expected_file !== undefined)
    throw invalid(join(dir, 'task.toml'), `${key} and ${key}_file: give one of them`)
  let ids = section.expected
  if (section.expected_file !== undefined) {
    const text = await readFile(join(dir, section.expected_file), 'utf8').catch(
      (error: unknown) => {
        throw invalid(
          join(dir, 'task.toml'),
          `${key}_file: can't read ${section.expected_file} (${systemCode(error) ?? messageOf(error)}); it is relative to the task directory`,
        )
      },
    )
    ids = text
      .split('\n')
      .map((line) => line.trim())
      .filter((line) => line !== '' && !line.startsWith('#'))
    if (ids.length === 0)
      throw invalid(join(dir, section.expected_file), 'lists no test; write one id a line')
  }
  if (ids === undefined) return null
  const twice = ids.find((id, index) => ids.indexOf(id) !== index)
  if (twice !== undefined)
    throw invalid(join(dir, 'task.toml'), `${key}: "${twice}" is listed twice; remove one`)
  return ids
}

const has = (entries: readonly TreeEntry[], path: string): boolean =>
  entries.some((entry) => entry.path === path)

const invalid = (path: string, message: string): RunnerError =>
  new RunnerError('task_invalid', 'task', `${path}: ${message}`, { facts: { path } })
