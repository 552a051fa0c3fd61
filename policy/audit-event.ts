/**
 * One line of a lease's audit log. Sequence numbers start at 1 in each lease and have no gap. A `decision` is
 * written before a byte flows; a `close` repeats its `connection` with byte counts; a `census` event carries the
 * kernel's exact count of attempts on one address and port that no listener of ours could name.
 */
import { z } from 'zod'
import { reasons } from './decision.ts'

export const auditEventSchema = z.strictObject({
  seq: z.int().positive(),
  time: z.iso.datetime(),
  lease: z.string(),
  trial: z.string().nullable(),
  kind: z.enum(['decision', 'close', 'census', 'canary', 'lifecycle']),
  protocol: z.enum([
    'connect',
    'http',
    'tls',
    'dns',
    'tcp',
    'udp',
    'icmp',
    'other',
    'model',
    'exec',
    'hf',
    'none',
  ]),
  /** Name asked for, canonical where it could be parsed, else escaped and cut at 512 characters. */
  host: z.string().nullable(),
  /** Destination address as the sandbox used it. */
  address: z.string().nullable(),
  port: z.int().min(0).max(65535).nullable(),
  action: z.enum(['allow', 'deny', 'none']),
  reason: z.enum(reasons).nullable(),
  count: z.int().nonnegative(),
  bytesUp: z.int().nonnegative(),
  bytesDown: z.int().nonnegative(),
  /** Joins a decision with its close. */
  connection: z.int().nonnegative().optional(),
  /** One short line for people, e.g. the method and path, the model, or the query. */
  detail: z.string().max(1024).optional(),
  /** True for traffic that our own proof made, not the agent. */
  canary: z.boolean().optional(),
})

export type AuditEvent = z.infer<typeof auditEventSchema>

/** What a listener hands to the log; the log adds seq, time, lease and trial. */
export type AuditRecord = Pick<AuditEvent, 'kind' | 'protocol' | 'action' | 'reason'> &
  Partial<Omit<AuditEvent, 'seq' | 'time' | 'lease' | 'trial'>>
