/**
 * What the gateway of a daemon that died had metered and recorded, from the lease's own files, so that the budget of an
 * adopted lease goes on where it was. A call that was under way at the end was answered to nobody and is asked again.
 */
import { readFile, truncate } from 'node:fs/promises'
import type { PastCalls } from '../gateway/past-calls.ts'
import { addTokens, noTokens } from '../protocol/model-cost.ts'
import { recordedCallSchema } from '../protocol/recording.ts'
import type { EventLog } from './event-log.ts'

export async function readPastCalls(events: EventLog, exchangesFile: string): Promise<PastCalls> {
  let tokens = noTokens
  let calls = 0
  for await (const { event } of events.read(1, { follow: false })) {
    if (event.type !== 'model.call' || event.status < 200 || event.status > 299) continue
    tokens = addTokens(tokens, { ...noTokens, ...pick(event) })
    calls += 1
  }
  const served = await readServed(exchangesFile)
  return { tokens, calls, ...served }
}

const pick = ({
  inputTokens,
  cachedInputTokens,
  cacheWriteInputTokens,
  outputTokens,
  reasoningTokens,
}: {
  inputTokens: number
  cachedInputTokens: number
  cacheWriteInputTokens?: number | undefined
  outputTokens: number
  reasoningTokens: number
}) => ({
  ...{ inputTokens, cachedInputTokens, outputTokens, reasoningTokens },
  ...(cacheWriteInputTokens === undefined ? {} : { cacheWriteInputTokens }),
})

/** Of the exchanges that are whole; a line that the crash tore is cut off. */
async function readServed(
  file: string,
): Promise<Pick<PastCalls, 'exchanges' | 'servedCalls' | 'servedCounts'>> {
  const bytes = await readFile(file).catch(() => Buffer.alloc(0))
  const whole = bytes.lastIndexOf(0x0a) + 1
  if (whole < bytes.length) await truncate(file, whole)
  const lines = bytes.subarray(0, whole).toString('utf8').split('\n').slice(0, -1)
  const counts = lines.filter(
    (line) => recordedCallSchema.parse(JSON.parse(line)).api === 'anthropic.count',
  ).length
  return {
    exchanges: lines.length,
    servedCalls: lines.length - counts,
    servedCounts: counts,
  }
}
