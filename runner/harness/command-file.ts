/**
 * A harness in a file, so that a new one needs no code of ours: what is mounted, what is started inside the task's
 * container, in which environment, and where it leaves its trajectory. Strict; paths in it are relative to the file.
 * `{{name}}` in argv, env and files stands for a fact of the trial; an unknown name is an error.
 */
import { createHash } from 'node:crypto'
import path from 'node:path'
import { z } from 'zod'
import { zodMessage } from '../../daemon/protocol/zod-message.ts'
import { canonicalJson } from '../../policy/hash.ts'
import { configFailure, readDocument } from '../document.ts'
import { insidePlaces } from './places.ts'

export const placeholders = [
  ...['instruction', 'workdir', 'model', 'steps', 'cost_usd', 'wall_time_seconds'],
  ...['command_timeout_seconds', 'openai_base_url', 'anthropic_base_url', 'api_key'],
  ...['harness_dir', 'config_dir', 'scratch_dir'],
] as const
export type Placeholders = Readonly<Record<(typeof placeholders)[number], string>>

const known = new Set<string>(placeholders)
const filled = z.string().superRefine((text, context) => {
  for (const [, name = ''] of text.matchAll(/\{\{(\w+)\}\}/g))
    if (!known.has(name))
      context.addIssue({
        code: 'custom',
        message: `{{${name}}} is unknown; there are ${placeholders.join(', ')}`,
      })
})
const fileName = z
  .string()
  .regex(/^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$/, 'a plain name: letters, digits, ".", "_" and "-"')

const commandFileSchema = z
  .strictObject({
    name: fileName.describe('shown in results'),
    version: z.string().min(1).max(100).default('unknown'),
    image: z
      .string()
      .min(1)
      .optional()
      .describe(`an image whose file system is mounted at ${insidePlaces.harness}`),
    directory: z
      .string()
      .min(1)
      .optional()
      .describe(`a directory that is mounted at ${insidePlaces.harness} instead`),
    argv: z.array(filled).min(1).describe('started in the working directory of the task'),
    env: z.record(z.string().regex(/^[A-Za-z_][A-Za-z0-9_]*$/), filled).default({}),
    files: z
      .record(fileName, filled)
      .default({})
      .describe(
        `texts at ${insidePlaces.config}; one that begins with #! can be started. instruction.md is always there`,
      ),
    trajectory: z
      .strictObject({
        path: z.string().startsWith('/').describe('in the container'),
        format: z.enum(['mini-swe-agent', 'other']).default('other'),
      })
      .optional(),
    silenceSeconds: z
      .int()
      .positive()
      .default(1800)
      .describe('a harness that has printed nothing for so long hangs, and is ended'),
  })
  .refine(({ image, directory }) => image === undefined || directory === undefined, {
    path: ['directory'],
    message: 'an image is named already; one of the two is mounted',
  })
export type CommandFile = z.infer<typeof commandFileSchema>

export async function readCommandFile(file: string): Promise<CommandFile> {
  const parsed = commandFileSchema.safeParse(await readDocument(file, 'harness'))
  if (!parsed.success) throw configFailure(file, zodMessage(parsed.error), parsed.error)
  const { directory } = parsed.data
  return directory === undefined
    ? parsed.data
    : { ...parsed.data, directory: path.resolve(path.dirname(file), directory) }
}

export const fill = (text: string, facts: Placeholders): string =>
  text.replaceAll(/\{\{(\w+)\}\}/g, (whole, name: string) =>
    known.has(name) ? facts[name as keyof Placeholders] : whole,
  )

/** Of everything that it says, where its directory lies left out; `content` is the digest of what is mounted. */
export const commandFileDigest = ({ directory: _where, ...rest }: CommandFile, content: string) =>
  createHash('sha256')
    .update(canonicalJson([rest, content]))
    .digest('hex')
