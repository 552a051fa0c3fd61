/**
 * Caps of one lease's way out, and of its audit log. A policy may set each within a range that the daemon can hold to;
 * what it leaves out is the daemon's default. They count what goes through the proxy and the transparent listeners:
 * the gateways have budgets of their own.
 */
import { z } from 'zod'

export const limitsSchema = z.strictObject({
  connections: z
    .int()
    .min(1)
    .max(1024)
    .optional()
    .describe('tunnels and requests under way at a time; default 64'),
  sockets: z
    .int()
    .min(8)
    .max(4096)
    .optional()
    .describe('sockets open at a time, idle ones too; default 512'),
  maxBytes: z
    .int()
    .positive()
    .optional()
    .describe('bytes of all tunnels and requests together, both ways; absent: no limit'),
  connectionBytes: z
    .int()
    .positive()
    .optional()
    .describe('bytes of one tunnel or request, both ways; absent: no limit'),
  idleSeconds: z
    .int()
    .min(1)
    .max(86_400)
    .optional()
    .describe('a tunnel or request ends after so long without a byte; default 600'),
  lifetimeSeconds: z
    .int()
    .min(1)
    .max(7 * 86_400)
    .optional()
    .describe('a tunnel or request ends after so long; default 28800'),
})
export type Limits = z.infer<typeof limitsSchema>

/** Room for the proof at both ends, with some to spare. */
const minAuditBytes = 64 * 1024

export const auditPolicySchema = z.strictObject({
  maxBytes: z
    .int()
    .min(minAuditBytes)
    .optional()
    .describe("size of the lease's audit log; a smaller limit of the daemon holds"),
  onFull: z
    .literal('stop')
    .default('stop')
    .describe(
      'what a full log means: the lease is closed, for what is not recorded can not happen',
    ),
})
export type AuditPolicy = z.infer<typeof auditPolicySchema>
