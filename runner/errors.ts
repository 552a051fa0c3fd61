/** The runner's own errors; those of the lease API arrive as `{code, message, blame}` and become one of these. */
import { ClosedbookError, type Blame } from '../daemon/protocol/errors.ts'

export const runnerErrorCodes = [
  // what people wrote
  'usage',
  'config_invalid',
  'task_invalid',
  'task_unsupported',
  'task_unqualified',
  // jobs and their records
  'job_unknown',
  'job_locked',
  'plan_changed',
  'plan_invalid',
  'ledger_corrupt',
  'result_invalid',
  'result_missing',
  'trial_unknown',
  'write_failed',
  // the store
  'store_unreachable',
  'store_newer',
  // the daemon
  'daemon_unreachable',
  'disk_full',
  'daemon_refused',
  'daemon_protocol',
  // the host
  'engine_missing',
  'not_root',
  // a trial's phases
  'harness_failed',
  'proof_failed',
  'collect_failed',
  'verify_failed',
  'transfer_failed',
  'cancelled',
] as const

export type RunnerErrorCode = (typeof runnerErrorCodes)[number]

export class RunnerError extends ClosedbookError {
  declare readonly code: RunnerErrorCode

  constructor(
    code: RunnerErrorCode,
    blame: Blame,
    message: string,
    options: { cause?: unknown; facts?: Record<string, unknown> } = {},
  ) {
    super(code, blame, message, options)
  }
}

export const messageOf = (error: unknown): string =>
  error instanceof Error ? error.message : String(error)

export const systemCode = (error: unknown): string | undefined =>
  error instanceof Error && 'code' in error && typeof error.code === 'string'
    ? error.code
    : undefined
