/** What a lease without a model gateway has used. */
import type { Usage } from '../protocol/lease.ts'

export const noUsage: Usage = {
  inputTokens: 0,
  cachedInputTokens: 0,
  outputTokens: 0,
  reasoningTokens: 0,
  calls: 0,
  refusedCalls: 0,
  failedCalls: 0,
  costUsd: 0,
  fault: null,
  budgetSpent: false,
}
