/**
 * A table of prices: what models cost on one day, so that all configurations of a comparison are reckoned by the same
 * prices, and a reader sees of when and from where. `estimate: true` marks what a host of open weights would have
 * taken, where nobody was paid. Prices are copied into the plan; a table that changes later changes no job.
 */
import { z } from 'zod'
import { priceSchema, type Price } from '../../daemon/protocol/lease.ts'
import { zodMessage } from '../../daemon/protocol/zod-message.ts'
import { configFailure, readDocument } from '../document.ts'

export const priceTableSchema = z.strictObject({
  version: z.literal(1),
  asOf: z.iso.date().describe('day on which these were the prices, for all that say no other'),
  source: z.string().min(1).max(500).optional().describe('where they were read'),
  models: z.record(z.string().min(1), priceSchema).describe('by the name sent to the provider'),
})

/** Throws RunnerError `config_invalid` for a table that is not well formed or has no such model. */
export async function priceFromTable(path: string, model: string): Promise<Price> {
  const parsed = priceTableSchema.safeParse(await readDocument(path, 'table of prices'))
  if (!parsed.success) throw configFailure(path, zodMessage(parsed.error), parsed.error)
  const { asOf, source, models } = parsed.data
  const price = Object.hasOwn(models, model) ? models[model] : undefined
  if (price === undefined)
    throw configFailure(path, `has no price of ${JSON.stringify(model)}; add it under models`)
  return { asOf, ...(source !== undefined && { source }), ...price }
}
