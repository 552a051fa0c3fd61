/** What can go wrong with a lease's audit log. Each of them closes the lease: what can't be recorded can't happen. */
import { ClosedbookError } from '../errors.ts'

export type AuditErrorCode = 'audit_write_failed' | 'audit_full' | 'audit_corrupt' | 'audit_closed'

export class AuditError extends ClosedbookError {
  declare readonly code: AuditErrorCode
}
