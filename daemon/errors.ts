/** The daemon's errors, by area, each with a closed union of codes; what they share is in protocol/errors.ts. */
import { ClosedbookError } from './protocol/errors.ts'

export { ClosedbookError, type Blame } from './protocol/errors.ts'

export type EngineErrorCode =
  | 'engine_unreachable'
  | 'engine_refused'
  | 'engine_timeout'
  | 'image_missing'
  | 'image_not_pinned'
  | 'image_build_failed'
  | 'container_gone'
  | 'exec_not_started'
  | 'path_missing'
  | 'disk_full'
  | 'spec_refused'

export class EngineError extends ClosedbookError {
  declare readonly code: EngineErrorCode
}

export type LeaseErrorCode =
  | 'lease_unknown'
  | 'lease_wrong_state'
  | 'lease_refused'
  | 'lease_no_capacity'
  | 'lease_expired'
  | 'seal_failed'
  | 'proof_failed'
  | 'freeze_failed'
  | 'close_incomplete'
  | 'gpu_lost'

export class LeaseError extends ClosedbookError {
  declare readonly code: LeaseErrorCode
}

export type RequestErrorCode =
  | 'bad_request'
  | 'not_found'
  | 'too_large'
  | 'unsupported'
  | 'board_conflict'

/** The caller sent something that can't be served; the message names the field and the fix. */
export class RequestError extends ClosedbookError {
  declare readonly code: RequestErrorCode
}

export type HostErrorCode =
  | 'config_invalid'
  | 'tool_missing'
  | 'not_root'
  | 'port_busy'
  | 'daemon_unreachable'
  | 'daemon_running'
  | 'journal_corrupt'
  | 'gpu_unavailable'

export class HostError extends ClosedbookError {
  declare readonly code: HostErrorCode
}
