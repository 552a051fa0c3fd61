/**
 * What answers the sandbox's model calls: a live provider or a recording. Both give the same `Answer`, and everything
 * after it (metering, faults, what the sandbox sees) is one code path, so a replay ends as the live run did.
 */
import { ClosedbookError } from '../errors.ts'
import { faultBlame, type FaultCode } from '../protocol/model-fault.ts'
import type { ModelApi } from './api.ts'
import type { Json } from './json.ts'

/** One call that was asked for and allowed. */
export interface Ask {
  readonly api: ModelApi
  /** Below the upstream's base URL, with its query. */
  readonly path: string
  readonly model: string
  readonly assistantTurns: number
  /** As the sandbox sent it, parsed. */
  readonly body: Json
  /** Of the sandbox's headers, those that policy let through. */
  readonly headers: Readonly<Record<string, string>>
  readonly stream: boolean
}

export type StreamItem =
  | { readonly kind: 'payload'; readonly payload: unknown }
  | { readonly kind: 'comment' }
  | { readonly kind: 'done' }

interface Head {
  readonly status: number
  /** Only those that may reach the sandbox. */
  readonly headers: Readonly<Record<string, string>>
}

export type Answer = Head &
  ({ readonly body: unknown } | { readonly events: AsyncIterable<StreamItem> })

export interface Upstream extends AsyncDisposable {
  /** For the audit. */
  readonly host: string
  readonly port: number | null
  /** Claims the next answer; throws UpstreamError where a recording has none for this request. */
  prepare(ask: Ask): (options: { signal: AbortSignal }) => Promise<Answer>
}

/** The upstream failed; `status` is what the sandbox is told. */
export class UpstreamError extends ClosedbookError {
  declare readonly code: FaultCode
  readonly status: number

  constructor(code: FaultCode, status: number, message: string, options: { cause?: unknown } = {}) {
    super(code, faultBlame[code], message, options)
    this.status = status
  }
}
