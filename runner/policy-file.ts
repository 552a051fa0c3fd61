/**
 * Reads a policy document (YAML or JSON). What is wrong is told value by value, each with the right spelling where one can be
 * guessed, so that a person can mend all of it at once.
 */
import { z } from 'zod'
import { pathText, zodMessage } from '../daemon/protocol/zod-message.ts'
import { policySchema, type Policy } from '../policy/policy.ts'
import { configFailure, readDocument } from './document.ts'
import { RunnerError } from './errors.ts'

export interface PolicyIssue {
  /** Where in the document, e.g. `connect.allow[2]`; empty for the document itself. */
  readonly path: string
  readonly message: string
}

export type PolicyFile =
  | { readonly ok: true; readonly policy: Policy }
  | { readonly ok: false; readonly issues: readonly PolicyIssue[] }

/** Throws only what is not about the policy: a RunnerError where the file can't be read. */
export async function checkPolicyFile(file: string): Promise<PolicyFile> {
  let value: unknown
  try {
    value = await readDocument(file, 'policy')
  } catch (error) {
    if (!(error instanceof RunnerError) || !error.message.includes('not valid YAML')) throw error
    const message = error.message.slice(file.length + 2)
    return { ok: false, issues: [{ path: '', message: quoted(message) }] }
  }
  const parsed = policySchema.safeParse(value)
  if (parsed.success) return { ok: true, policy: parsed.data }
  return { ok: false, issues: parsed.error.issues.flatMap(issuesOf) }
}

/** The same for whoever needs a good one: throws `config_invalid` with every issue in one line. */
export async function readPolicyFile(file: string): Promise<Policy> {
  const result = await checkPolicyFile(file)
  if (result.ok) return result.policy
  const lines = result.issues.map(({ path, message }) =>
    path === '' ? message : `${path}: ${message}`,
  )
  throw configFailure(file, lines.join('; '))
}

/** To YAML a word that begins with a star is an alias. */
const quoted = (message: string): string =>
  /alias/i.test(message)
    ? `${message}; a pattern that begins with * stands in quotes: '*.example.com'`
    : message

function issuesOf(issue: z.core.$ZodIssue): PolicyIssue[] {
  const path = pathText(issue.path)
  if (issue.code !== 'unrecognized_keys') {
    const whole = zodMessage(new z.ZodError([{ ...issue, path: [] }]))
    return [{ path, message: whole }]
  }
  const known = keysAt(issue.path)
  return issue.keys.map((key) => {
    const other = issue.path.length === 0 ? elsewhere.get(plain(key)) : undefined
    if (other !== undefined) return { path, message: `"${key}" is no part of a policy: ${other}` }
    const guess = nearest(key, known)
    const names = known.length === 0 ? '' : `; the keys here are ${known.join(', ')}`
    const message =
      guess === null ? `unknown key "${key}"${names}` : `unknown key "${key}": write "${guess}"`
    return { path, message }
  })
}

interface ObjectShape {
  readonly properties?: Readonly<Record<string, ObjectShape>>
  readonly items?: ObjectShape
}

/** The keys that the schema has at a path of the document. */
function keysAt(path: readonly PropertyKey[]): string[] {
  let shape: ObjectShape | undefined = z.toJSONSchema(policySchema, { io: 'input' }) as ObjectShape
  for (const part of path)
    shape = typeof part === 'number' ? shape?.items : shape?.properties?.[String(part)]
  return Object.keys(shape?.properties ?? {})
}

const elsewhere = new Map([
  [
    'model',
    'a lease has a model gateway or not; the model stands in the configuration of an agent',
  ],
  ['budget', 'it stands with the model, in the configuration of an agent'],
  ['gpus', 'it is asked for with the lease'],
])

/** Names that other tools and older papers have for ours. */
const synonyms = new Map([
  ['hf', 'huggingface'],
  ['id', 'repo'],
  ['name', 'repo'],
  ['rev', 'revision'],
  ['commit', 'revision'],
  ['globs', 'files'],
  ['hosts', 'connect'],
  ['network', 'connect'],
  ['allowlist', 'allow'],
  ['denylist', 'deny'],
  ['idletimeout', 'idleSeconds'],
  ['lifetime', 'lifetimeSeconds'],
  ['concurrent', 'connections'],
])

const plain = (key: string): string => key.toLowerCase().replace(/[_-]/g, '')

function nearest(key: string, known: readonly string[]): string | null {
  const synonym = synonyms.get(plain(key))
  if (synonym !== undefined && known.includes(synonym)) return synonym
  const ranked = known
    .map((candidate) => ({ candidate, far: distance(plain(key), plain(candidate)) }))
    .toSorted((a, b) => a.far - b.far)
  const best = ranked[0]
  return best !== undefined && best.far <= Math.min(2, key.length - 2) ? best.candidate : null
}

/** Edits from one word to the other (Levenshtein). */
function distance(from: string, to: string): number {
  let row = Array.from({ length: to.length + 1 }, (_, index) => index)
  for (let i = 1; i <= from.length; i += 1) {
    const next = [i]
    for (let j = 1; j <= to.length; j += 1)
      next.push(
        Math.min(
          (row[j] ?? 0) + 1,
          (next[j - 1] ?? 0) + 1,
          (row[j - 1] ?? 0) + (from[i - 1] === to[j - 1] ? 0 : 1),
        ),
      )
    row = next
  }
  return row[to.length] ?? 0
}
