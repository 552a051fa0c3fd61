/**
 * What the `closedbook` command's exit status means. `exec` is the exception: it passes on the status of the command
 * that ran in the sandbox (128 + n for a signal), and these only when no command could be run.
 */
import { ClosedbookError } from '../daemon/protocol/errors.ts'

export const exitCode = {
  ok: 0,
  /** Something failed, or a planned trial ended without a score. */
  failure: 1,
  usage: 2,
  /** A task, plan, ledger or result is not as it must be. */
  data: 65,
  /** No daemon, no engine or no store answers. */
  unavailable: 69,
  /** A bug of ours. */
  software: 70,
  /** A file can't be written: disk full, no permission. */
  cannotWrite: 73,
  /** Try again later: the job is locked, the host has no room, a port is busy. */
  temporary: 75,
  /** Must be run as root, or access was refused. */
  permission: 77,
  config: 78,
  /** `exec` only: the command was not found or could not be started. */
  notStarted: 127,
  interrupted: 130,
} as const

export type ExitCode = (typeof exitCode)[keyof typeof exitCode]

/** For `--help` and the manual. */
export const exitCodeMeanings: readonly (readonly [ExitCode, string])[] = [
  [exitCode.ok, 'done; for run: every planned trial is scored, whatever the verdicts'],
  [exitCode.failure, 'failed; for run: at least one planned trial is not scored'],
  [exitCode.usage, 'unknown command, option or argument'],
  [exitCode.data, 'a task, plan, ledger or result is invalid, or a task is not qualified'],
  [exitCode.unavailable, 'no daemon, engine or store answers'],
  [exitCode.software, 'a bug in Closedbook'],
  [exitCode.cannotWrite, 'a file could not be written (disk full, permissions)'],
  [exitCode.temporary, 'busy: job locked, no capacity, port in use; try again'],
  [exitCode.permission, 'root, or access to the daemon, is needed'],
  [exitCode.config, 'a configuration has an unknown key or a bad value'],
  [exitCode.notStarted, 'exec only: the command could not be started'],
  [exitCode.interrupted, 'interrupted by a signal'],
]

const byCode: Readonly<Record<string, ExitCode>> = {
  usage: exitCode.usage,
  bad_request: exitCode.usage,
  config_invalid: exitCode.config,
  task_invalid: exitCode.data,
  task_unsupported: exitCode.data,
  task_unqualified: exitCode.data,
  job_unknown: exitCode.data,
  trial_unknown: exitCode.data,
  plan_changed: exitCode.data,
  plan_invalid: exitCode.data,
  ledger_corrupt: exitCode.data,
  result_invalid: exitCode.data,
  result_missing: exitCode.data,
  image_not_pinned: exitCode.data,
  image_missing: exitCode.data,
  image_build_failed: exitCode.data,
  lease_unknown: exitCode.usage,
  not_found: exitCode.usage,
  lease_refused: exitCode.usage,
  job_locked: exitCode.temporary,
  lease_no_capacity: exitCode.temporary,
  gpu_unavailable: exitCode.temporary,
  port_busy: exitCode.temporary,
  daemon_running: exitCode.temporary,
  daemon_unreachable: exitCode.unavailable,
  engine_unreachable: exitCode.unavailable,
  engine_missing: exitCode.unavailable,
  store_unreachable: exitCode.unavailable,
  store_newer: exitCode.data,
  write_failed: exitCode.cannotWrite,
  disk_full: exitCode.cannotWrite,
  not_root: exitCode.permission,
  unauthenticated: exitCode.permission,
  ticket_refused: exitCode.permission,
  forbidden: exitCode.permission,
  host_refused: exitCode.permission,
  origin_refused: exitCode.permission,
  too_many_requests: exitCode.temporary,
  cancelled: exitCode.interrupted,
}

export function exitCodeOf(error: unknown): ExitCode {
  if (!(error instanceof ClosedbookError)) return exitCode.software
  return byCode[error.code] ?? exitCode.failure
}
