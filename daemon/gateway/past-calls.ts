/** What an earlier gateway of the same lease had metered, recorded and served. */
import type { Tokens } from '../protocol/model-cost.ts'

export interface PastCalls {
  readonly tokens: Tokens
  /** Answered. */
  readonly calls: number
  /** Lines of the exchange log. */
  readonly exchanges: number
  /** Of a recording, by kind. */
  readonly servedCalls: number
  readonly servedCounts: number
}
