/** What our images are pinned to (digests.json): suite, packages, versions, wheel hashes. Read once, strictly. */
import { readFileSync } from 'node:fs'
import { z } from 'zod'

const sha256Schema = z.string().regex(/^sha256:[0-9a-f]{64}$/)
const programSchema = z.strictObject({
  tag: z.string(),
  program: z.string(),
  version: z.string(),
  /** Hash of the program's own wheel; the closure's are in requirements.lock. */
  wheel: sha256Schema,
  python: z.string(),
  platform: z.literal('linux/amd64'),
})
const repositorySchema = programSchema.extend({
  /** Follows from the wheel and the fixed author, date and message of sglang-cpu/build.sh. */
  baseCommit: z.string().regex(/^[0-9a-f]{40}$/),
})

const digestsSchema = z.strictObject({
  base: z.strictObject({
    tag: z.string(),
    suite: z.string(),
    packages: z.array(z.string().regex(/^[a-z0-9][a-z0-9.+-]*$/)).min(1),
  }),
  harness: programSchema,
  'sglang-cpu': repositorySchema,
  'sglang-radix': repositorySchema,
})
export type Digests = z.infer<typeof digestsSchema>

export const digests: Digests = digestsSchema.parse(
  JSON.parse(readFileSync(new URL('digests.json', import.meta.url), 'utf8')),
)
