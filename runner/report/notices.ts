/**
 * What a reader must know before believing a figure, in words: every form of the report prints all of it. An alarm is
 * about the score itself and stands first; a note qualifies a figure.
 */
import { z } from 'zod'
import type { ConfigurationFacts } from './entries.ts'

export interface Notice {
  readonly level: 'alarm' | 'note'
  readonly code: string
  readonly text: string
}

export const alarm = (code: string, text: string): Notice => ({ level: 'alarm', code, text })
export const noted = (code: string, text: string): Notice => ({ level: 'note', code, text })

/** What of a configuration's settings a report tells; settings of another version are no reason to fail. */
const settingsSchema = z.looseObject({
  policy: z
    .looseObject({
      connect: z.looseObject({ allow: z.array(z.string()).catch([]) }).nullish(),
      huggingface: z
        .looseObject({
          tunnel: z.boolean().catch(false),
          repos: z.array(z.looseObject({ repo: z.string() })).catch([]),
        })
        .nullish(),
    })
    .nullish(),
  model: z
    .looseObject({
      price: z
        .looseObject({
          estimate: z.boolean().nullish(),
          asOf: z.string().nullish(),
          source: z.string().nullish(),
        })
        .nullish(),
      upstream: z.looseObject({ kind: z.string() }).nullish(),
    })
    .nullish(),
  regrade: z.looseObject({ job: z.string() }).nullish(),
})

export interface Openings {
  /** Nobody was paid these prices. */
  readonly estimate: boolean
  readonly replayed: boolean
  readonly price: { readonly asOf: string | null; readonly source: string | null } | null
  /** What was open beside the closed book, in words; empty when nothing was. */
  readonly doors: readonly string[]
  /** The job whose patches were graded again. */
  readonly regradeOf: string | null
}

export function openingsOf({ settings }: Pick<ConfigurationFacts, 'settings'>): Openings {
  const parsed = settingsSchema.safeParse(settings)
  if (!parsed.success)
    return {
      estimate: false,
      replayed: false,
      price: null,
      doors: ['settings that this version can’t read'],
      regradeOf: null,
    }
  const { policy, model, regrade } = parsed.data
  const doors: string[] = []
  const hosts = policy?.connect?.allow ?? []
  if (hosts.length > 0) doors.push(`extra hosts: ${hosts.join(', ')}`)
  if (policy?.huggingface?.tunnel === true)
    doors.push('tunnel: the whole Hugging Face Hub, no path seen')
  const repos = policy?.huggingface?.repos ?? []
  if (repos.length > 0)
    doors.push(`model artifacts pinned by the policy: ${repos.map(({ repo }) => repo).join(', ')}`)
  const price = model?.price
  return {
    estimate: price?.estimate === true,
    replayed: model?.upstream?.kind === 'replay',
    price: price == null ? null : { asOf: price.asOf ?? null, source: price.source ?? null },
    doors,
    regradeOf: regrade?.job ?? null,
  }
}
