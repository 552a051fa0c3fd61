/**
 * What can go wrong between the model gateway and its upstream, as `usage.fault.code`, and who is to blame. A fault
 * is never the agent's. What the agent caused itself (a refused request, a spent budget, a conversation that grew
 * beyond the model's context) is no fault and leaves `usage.fault` as it was.
 */
import type { Blame } from './errors.ts'

export const faultBlame = {
  /** No connection, or it broke before an answer. */
  upstream_unreachable: 'infra',
  /** No next byte within `upstreamTimeoutMs`. */
  upstream_timeout: 'infra',
  /** The answer or the stream was cut off. */
  upstream_broken: 'infra',
  /** Not what an answer of this API looks like. */
  upstream_invalid: 'infra',
  /** 5xx, or an error object in place of an answer. */
  upstream_error: 'infra',
  /** 429, or what the API has for `overloaded`. */
  upstream_busy: 'infra',
  /** 401, 402, 403: key, permission or credit. */
  upstream_auth: 'operator',
  /** 404, or another 4xx before the first good answer: the model's name, base URL or settings don't fit the provider. */
  upstream_rejected: 'operator',
  /** The answer shows that the provider ran a tool of its own, which nobody asked for: withheld, not a closed book. */
  upstream_grounded: 'operator',
  /** A good answer that doesn't say what it cost: withheld, since it can't be metered. */
  usage_missing: 'infra',
  /** The recording has no more calls. */
  replay_exhausted: 'operator',
  /** The sandbox is at another point of the conversation than the recording. */
  replay_mismatch: 'operator',
  /** The gateway itself failed. */
  gateway_error: 'infra',
} as const satisfies Record<string, Blame>

export type FaultCode = keyof typeof faultBlame
