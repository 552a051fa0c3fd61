/** What is asked of audit logs over the API, and what comes back beside the events themselves. */
import { z } from 'zod'
import { auditEventSchema } from '../../policy/audit-event.ts'
import { auditSummarySchema } from '../../policy/audit-summary.ts'
import { auditVerdictSchema } from '../../policy/audit-verify.ts'

const { kind, protocol, action } = auditEventSchema.shape
/** Not nullable here: who leaves it out asks for all. */
const reason = auditEventSchema.shape.reason.unwrap()
const instant = z.iso.datetime({ message: 'an instant such as 2026-01-31T12:00:00Z' })

/** Every condition must hold; none: every event of every lease. */
export const auditQuerySchema = z.strictObject({
  trial: z.string().min(1).optional(),
  lease: z.string().min(1).optional(),
  /** A name or an address, whole; `*.name` is every name below it. */
  host: z.string().min(1).max(512).optional(),
  kind: kind.optional(),
  protocol: protocol.optional(),
  action: action.optional(),
  reason: reason.optional(),
  /** First instant, and the first one no more. */
  since: instant.optional(),
  until: instant.optional(),
  /** What our own proof tried is left out unless it is asked for. */
  canaries: z.stringbool({ truthy: ['true'], falsy: ['false'] }).optional(),
  /** Ends after so many. */
  limit: z.coerce.number().int().positive().optional(),
})
export type AuditQuery = z.infer<typeof auditQuerySchema>

export const leaseAuditSchema = z.strictObject({
  lease: z.string(),
  trial: z.string().nullable(),
  /** Its log still grows. */
  open: z.boolean(),
  totals: auditSummarySchema,
})
export type LeaseAudit = z.infer<typeof leaseAuditSchema>

export const auditSummariesSchema = z.strictObject({ leases: z.array(leaseAuditSchema) })
export const auditVerdictsSchema = z.strictObject({ leases: z.array(auditVerdictSchema) })
