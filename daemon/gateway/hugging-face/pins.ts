/**
 * The commits that one lease is served, fixed when it opens: a branch may move on the Hub while a trial runs, and after
 * a restart of the daemon, without the sandbox seeing another commit.
 */
import { readFile, rename, writeFile } from 'node:fs/promises'
import { z } from 'zod'
import { isCommit, type HuggingFacePolicy, type Pin } from '../../../policy/hugging-face.ts'
import { LeaseError } from '../../errors.ts'
import { HubError } from './hub-error.ts'
import type { Hub } from './hub.ts'

const frozenSchema = z.record(z.string(), z.string().regex(/^[0-9a-f]{40}$/))

/** Throws LeaseError: by the operator's fault where the Hub doesn't know the repository or revision, else infra's. */
export async function freezePins(
  policy: HuggingFacePolicy,
  { hub, pinsFile, signal }: { hub: Hub; pinsFile: string; signal: AbortSignal },
): Promise<Pin[]> {
  const frozen = await readFrozen(pinsFile)
  const before = frozen.size
  const pins = await Promise.all(
    policy.repos.map(async (entry): Promise<Pin> => {
      const { repo, revision } = entry
      if (isCommit(revision)) return { entry, commit: revision }
      const key = `${repo}@${revision}`
      const known = frozen.get(key)
      if (known !== undefined) return { entry, commit: known }
      const commit = await hub
        .commitOf(repo, revision, signal)
        .catch((error: unknown) => Promise.reject(openingError(error, `${repo} at ${revision}`)))
      frozen.set(key, commit)
      return { entry, commit }
    }),
  )
  if (frozen.size > before) {
    await writeFile(`${pinsFile}.new`, JSON.stringify(Object.fromEntries(frozen)))
    await rename(`${pinsFile}.new`, pinsFile)
  }
  return pins
}

async function readFrozen(file: string): Promise<Map<string, string>> {
  const text = await readFile(file, 'utf8').catch(() => '{}')
  return new Map(Object.entries(frozenSchema.parse(JSON.parse(text))))
}

/** What keeps a lease from opening, in words for the one who asked for it. */
export function openingError(error: unknown, what: string): unknown {
  if (!(error instanceof HubError)) return error
  const refused = error.fault === 'redirect' || (error.fault === 'answered' && error.status < 500)
  const code = error.code === null ? '' : `${error.code}: `
  return new LeaseError(
    refused && error.status !== 429 ? 'lease_refused' : 'seal_failed',
    refused && error.status !== 429 ? 'operator' : 'infra',
    `the model artifacts of ${what} can't be served: ${code}${error.message}`,
    { cause: error },
  )
}
