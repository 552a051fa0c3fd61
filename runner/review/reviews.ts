/**
 * `<task>/closedbook/reviews.jsonl`: people's decisions about a task, one a line, only ever appended. Each is bound to
 * the qualification and the digests it was made over, and to the line before it, so that a decision that was taken out
 * or edited shows. An inclusion holds as long as that qualification does, an exclusion until somebody decides anew.
 */
import { open, readFile } from 'node:fs/promises'
import path from 'node:path'
import { z } from 'zod'
import { zodMessage } from '../../daemon/protocol/zod-message.ts'
import { messageOf, RunnerError, systemCode } from '../errors.ts'
import { makeDirectory, writeError } from '../json-file.ts'
import { boundSchema, evidenceFile, sha256 } from '../qualify/document.ts'

export const reviewSchemaName = 'closedbook.review/1'
export const reviewsFile = (taskDir: string): string => evidenceFile(taskDir, 'reviews.jsonl')

const digest = z.string().regex(/^sha256:[0-9a-f]{64}$/)

export const reviewSchema = z.strictObject({
  schema: z.literal(reviewSchemaName),
  task: z.string(),
  at: z.iso.datetime(),
  decision: z.enum(['include', 'exclude']),
  by: z.string().min(1),
  reason: z.string().min(1),
  /** null: the task had none when it was excluded. */
  qualification: digest.nullable(),
  probe: digest.nullable(),
  digests: boundSchema.omit({ image: true, recipe: true }),
  closedbookVersion: z.string(),
  /** Of the line before; null in the first. */
  previous: digest.nullable(),
})
export type Review = z.infer<typeof reviewSchema>

export async function readReviews(taskDir: string): Promise<Review[]> {
  return (await readLines(reviewsFile(taskDir))).reviews
}

async function readLines(file: string): Promise<{ reviews: Review[]; last: string | null }> {
  const text = await readFile(file, 'utf8').catch((error: unknown) => {
    if (systemCode(error) === 'ENOENT' || systemCode(error) === 'ENOTDIR') return ''
    throw damaged(file, messageOf(error))
  })
  const reviews: Review[] = []
  let last: string | null = null
  for (const [index, line] of text.split('\n').entries()) {
    if (line === '') continue
    const where = `line ${index + 1}`
    const review = parse(file, where, line)
    if (review.previous !== last)
      throw damaged(file, `${where} does not follow the line before it: one was edited or removed`)
    reviews.push(review)
    last = sha256(line)
  }
  return { reviews, last }
}

function parse(file: string, where: string, line: string): Review {
  let value: unknown
  try {
    value = JSON.parse(line)
  } catch (error) {
    throw damaged(file, `${where}: ${messageOf(error)}`)
  }
  const parsed = reviewSchema.safeParse(value)
  if (!parsed.success) throw damaged(file, `${where}: ${zodMessage(parsed.error)}`)
  return parsed.data
}

const damaged = (file: string, why: string): RunnerError =>
  new RunnerError(
    'task_invalid',
    'operator',
    `${file}: ${why}; put the file back as it was (reviews are only ever appended)`,
    { facts: { path: file } },
  )

export async function appendReview(
  taskDir: string,
  review: Omit<Review, 'schema' | 'previous'>,
): Promise<Review> {
  const file = reviewsFile(taskDir)
  const { last } = await readLines(file)
  const whole = reviewSchema.parse({ schema: reviewSchemaName, ...review, previous: last })
  await makeDirectory(path.dirname(file))
  try {
    await using handle = await open(file, 'a', 0o644)
    await handle.writeFile(`${JSON.stringify(whole)}\n`)
    await handle.sync()
  } catch (error) {
    throw writeError(file, error)
  }
  return whole
}

/**
 * The last decision, where it holds: an inclusion was made over one qualification and says nothing of another; an
 * exclusion must not end because somebody qualified the task again.
 */
export function currentReview(
  reviews: readonly Review[],
  qualification: string | null,
): Review | null {
  const last = reviews.at(-1)
  if (last === undefined) return null
  return last.decision === 'exclude' || last.qualification === qualification ? last : null
}
