/** What a plan says of its tasks' qualification and review; loose, since the plan's own schema is checked elsewhere. */
import { z } from 'zod'

const seenSchema = z.looseObject({
  qualification: z
    .looseObject({
      digest: z.string().nullish(),
      at: z.string().nullish(),
      review: z
        .looseObject({
          decision: z.string().nullish(),
          by: z.string().nullish(),
          at: z.string().nullish(),
        })
        .nullish(),
    })
    .nullish(),
})

export interface TaskQualification {
  readonly qualified: boolean
  readonly at: string | null
  readonly review: { readonly decision: string; readonly by: string } | null
}

/** null where the plan is of before qualifications. */
export function qualificationOf(task: object): TaskQualification | null {
  if (!('qualification' in task)) return null
  const parsed = seenSchema.safeParse(task)
  if (!parsed.success) return null
  const { qualification } = parsed.data
  const review = qualification?.review
  return {
    qualified: qualification != null,
    at: qualification?.at ?? null,
    review:
      review == null
        ? null
        : { decision: review.decision ?? 'unknown', by: review.by ?? 'unknown' },
  }
}
