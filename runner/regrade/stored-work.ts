/**
 * What an agent left, read back from the evidence of its trial, in the form that verification takes. It must be, byte for
 * byte, what the result says was graded: anything else is refused, never graded.
 */
import { createHash } from 'node:crypto'
import { createReadStream, existsSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import path from 'node:path'
import { pipeline } from 'node:stream/promises'
import { z } from 'zod'
import { zodMessage } from '../../daemon/protocol/zod-message.ts'
import { messageOf, RunnerError } from '../errors.ts'
import type { TrialResult } from '../result.ts'
import type { Task } from '../task/task.ts'
import type { Artifact } from '../trial/artifacts.ts'
import type { Collected } from '../trial/collect.ts'
import { evidenceNames } from '../trial/evidence.ts'
import type { Pristine } from '../trial/pristine.ts'
import { isChangedSince, type Snapshot } from '../trial/snapshot.ts'
import type { Work } from '../trial/verify-phase.ts'

const skippedSchema = z.array(z.strictObject({ path: z.string(), why: z.string() }))
const patchSchema = z.object({
  ok: z.literal(true),
  empty: z.boolean(),
  root: z.string(),
  changes: z.array(
    z.strictObject({
      path: z.string(),
      status: z.enum(['added', 'modified', 'deleted']),
      mode: z.enum(['100644', '100755', '120000']).nullable(),
      blob: z.string().nullable(),
    }),
  ),
  skipped: skippedSchema,
  ignored: z.array(z.string()),
  treeId: z.string(),
})
const count = z.int().nonnegative()
const snapshotSchema = z.object({
  ok: z.literal(true),
  /** Absent in evidence of before, where whatever there is counts. */
  changed: z.boolean().optional(),
  sha256: z.string(),
  bytes: count,
  entries: count,
  deleted: z.array(z.string()),
})
const artifactsSchema = z.object({
  ok: z.literal(true),
  artifacts: z.array(
    z.object({
      source: z.string(),
      path: z.string(),
      kind: z.enum(['file', 'directory', 'symlink', 'other']),
      file: z.string(),
      sha256: z.string(),
      bytes: count,
      entries: count,
    }),
  ),
})

export type Stored =
  | { readonly kind: 'patch'; readonly collected: Collected }
  | { readonly kind: 'snapshot'; readonly snapshot: Snapshot; readonly changed: boolean }
  | { readonly kind: 'artifacts'; readonly artifacts: readonly Artifact[] }

/** null: nothing was collected in that execution, so there is nothing to grade. */
export async function readStored(
  directory: string,
  task: Task,
  patchDigest: TrialResult['digests']['patch'],
): Promise<Stored | null> {
  const file = path.join(directory, evidenceNames.collect)
  if (!existsSync(file)) return null
  const value = await readJson(file)
  if (z.object({ ok: z.literal(false) }).safeParse(value).success) return null
  const stored = await readKind(directory, task, value, file)
  const digest = digestOf(stored)
  // A trial that broke after collection has no digest in its result.
  if (patchDigest !== null && digest !== patchDigest)
    throw damaged(
      directory,
      `what was collected has the digest ${digest}, the result says ${patchDigest}`,
    )
  return stored
}

async function readKind(
  directory: string,
  task: Task,
  value: unknown,
  file: string,
): Promise<Stored> {
  if (task.verify === 'artifacts') {
    const { artifacts } = parse(artifactsSchema, value, file, task)
    const moved: Artifact[] = []
    for (const artifact of artifacts) {
      // The directory may have been moved since.
      const tar = path.join(directory, path.basename(artifact.file))
      await requireDigest(tar, artifact.sha256, directory)
      moved.push({ ...artifact, kind: artifact.kind as Artifact['kind'], file: tar })
    }
    return { kind: 'artifacts', artifacts: moved }
  }
  if (task.verify === 'snapshot' && task.snapshotOf === 'container') {
    const { changed, ...facts } = parse(snapshotSchema, value, file, task)
    const { sha256, bytes, entries, deleted } = facts
    const tar = path.join(directory, evidenceNames.snapshot)
    await requireDigest(tar, sha256, directory)
    const snapshot = { file: tar, sha256, bytes, entries, deleted }
    return { kind: 'snapshot', snapshot, changed: changed ?? isChangedSince(snapshot, null) }
  }
  const facts = parse(patchSchema, value, file, task)
  const patch = await readFile(path.join(directory, evidenceNames.patch)).catch(
    (error: unknown) => {
      throw damaged(directory, messageOf(error))
    },
  )
  return { kind: 'patch', collected: { ...facts, patch } }
}

/** As verification has it; a patch also needs to know what the image holds. */
export async function workOf(stored: Stored, pristine: () => Promise<Pristine>): Promise<Work> {
  if (stored.kind !== 'patch') return stored
  const found = await pristine()
  if (found.root !== stored.collected.root)
    throw new RunnerError(
      'plan_changed',
      'operator',
      `the patch was made at ${stored.collected.root}, and the task's work tree is at ${found.root} now`,
    )
  return { ...stored, pristine: found }
}

/** As collection computes it. */
export function digestOf(stored: Stored): string {
  const hash = createHash('sha256')
  switch (stored.kind) {
    case 'patch':
      hash.update(stored.collected.patch)
      break
    case 'snapshot':
      hash.update(JSON.stringify([stored.snapshot.sha256, stored.snapshot.deleted]))
      break
    case 'artifacts':
      hash.update(stored.artifacts.map(({ sha256 }) => sha256).join('\n'))
  }
  return `sha256:${hash.digest('hex')}`
}

async function requireDigest(file: string, expected: string, directory: string): Promise<void> {
  const hash = createHash('sha256')
  await pipeline(createReadStream(file), hash).catch((error: unknown) => {
    throw damaged(directory, messageOf(error))
  })
  if (hash.digest('hex') !== expected)
    throw damaged(directory, `${path.basename(file)} is not what was collected`)
}

async function readJson(file: string): Promise<unknown> {
  try {
    return JSON.parse(await readFile(file, 'utf8')) as unknown
  } catch (error) {
    throw damaged(path.dirname(file), messageOf(error))
  }
}

function parse<T>(schema: z.ZodType<T>, value: unknown, file: string, task: Task): T {
  const parsed = schema.safeParse(value)
  if (parsed.success) return parsed.data
  throw damaged(
    path.dirname(file),
    `collect.json is not that of a task with verify = "${task.verify}" (${zodMessage(parsed.error)})`,
  )
}

const damaged = (directory: string, why: string): RunnerError =>
  new RunnerError('result_invalid', 'operator', `can't be graded again: ${why} (in ${directory})`)
