/** Packs of jobs in the store, each once by its digest, whatever number of jobs names it. */
import { z } from 'zod'
import { RunnerError } from '../errors.ts'
import type { JobPacks } from '../job/pack.ts'
import { textDigest } from '../task/tree.ts'
import type { Store } from './store.ts'

const digest = z.string().regex(/^sha256:[0-9a-f]{64}$/)

/** What a plan's row says of its packs; null: not carried. */
export const packNamesSchema = z.strictObject({
  tasks: z.array(digest.nullable()),
  configurations: digest.nullable(),
})
export type PackNames = z.infer<typeof packNamesSchema>

export async function storePacks(store: Store, packs: JobPacks): Promise<PackNames> {
  const all = [...packs.tasks, packs.configurations].filter((one) => one !== null)
  await store.persist(async () => {
    const known = await store.database.rows<{ digest: string }>(
      'select digest from closedbook.packs where digest = any($1)',
      [all.map((one) => one.digest)],
    )
    for (const one of all)
      if (!known.some((row) => row.digest === one.digest))
        await store.database.rows(
          'insert into closedbook.packs (digest, bytes) values ($1, $2) on conflict do nothing',
          [one.digest, one.bytes],
        )
  })
  return {
    tasks: packs.tasks.map((one) => one?.digest ?? null),
    configurations: packs.configurations?.digest ?? null,
  }
}

export async function readPack(store: Store, name: string): Promise<Buffer> {
  const [row] = await store.database.rows<{ bytes: Buffer }>(
    'select bytes from closedbook.packs where digest = $1',
    [name],
  )
  if (row === undefined || textDigest(row.bytes) !== name)
    throw new RunnerError(
      'plan_invalid',
      'operator',
      `the store ${row === undefined ? 'lacks' : 'has other bytes for'} pack ${name}; bring the task to the path where it was planned`,
    )
  return row.bytes
}
