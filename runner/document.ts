/** Reads a YAML or JSON file that must hold one mapping. Duplicate keys, alias bombs and unknown tags are errors. */
import { readFile } from 'node:fs/promises'
import { parseDocument } from 'yaml'
import { RunnerError, messageOf, systemCode } from './errors.ts'

export async function readDocument(path: string, what: string): Promise<Record<string, unknown>> {
  const text = await readFile(path, 'utf8').catch((error: unknown) => {
    const why = systemCode(error) === 'ENOENT' ? 'no such file; check the path' : messageOf(error)
    throw configFailure(path, `can't read the ${what}: ${why}`, error)
  })
  return parseText(text, path, what)
}

export function parseText(text: string, path: string, what: string): Record<string, unknown> {
  let value: unknown
  try {
    const document = parseDocument(text, { strict: true, uniqueKeys: true, merge: false })
    const problem = document.errors[0] ?? document.warnings[0]
    if (problem !== undefined) throw problem
    value = document.toJS({ maxAliasCount: 50 })
  } catch (error) {
    const [line = ''] = messageOf(error).split('\n')
    throw configFailure(path, `not valid YAML or JSON: ${line.replace(/:$/, '')}`, error)
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    throw configFailure(
      path,
      `a ${what} is a mapping of keys to values; this file holds something else`,
    )
  return Object.fromEntries(Object.entries(value))
}

export const configFailure = (path: string, message: string, cause?: unknown): RunnerError =>
  new RunnerError('config_invalid', 'operator', `${path}: ${message}`, {
    ...(cause !== undefined && { cause }),
    facts: { path },
  })
