/** The Hub, or what stands for it, didn't give what was asked for. */
import { SourceError } from '../artifact-cache/source.ts'

export type HubFault =
  /** It said no: `status` and `code` are its own. */
  | 'answered'
  | 'unreachable'
  | 'timeout'
  /** It answered, but not as the Hub does. */
  | 'garbled'
  /** It sent us where we don't go. */
  | 'redirect'

export interface HubErrorFacts {
  readonly fault: HubFault
  readonly status?: number
  /** X-Error-Code, e.g. GatedRepo. */
  readonly code?: string | null
  readonly retryAfterMs?: number | null
  readonly cause?: unknown
}

export class HubError extends SourceError {
  readonly fault: HubFault
  readonly status: number
  readonly code: string | null

  constructor(message: string, facts: HubErrorFacts) {
    super(message, { retryAfterMs: facts.retryAfterMs ?? null, cause: facts.cause })
    this.name = 'HubError'
    this.fault = facts.fault
    this.status = facts.status ?? 502
    this.code = facts.code ?? null
  }
}
