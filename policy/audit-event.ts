/**
 * One line of a lease's audit log. Sequence numbers start at 1 in each lease and have no gap. A `decision` is
 * written before a byte flows; a `close` repeats its `connection` with byte counts; a `census` event carries the
 * kernel's exact count of attempts on one address and port that no listener of ours could name; an `aggregate`
 * stands for `count` denials that were all equal. The fields of a line stand in the order of this schema, so that an
 * exported line has the bytes that the chain of `prev` was made from.
 */
import { z } from 'zod'
import { reasons } from './decision.ts'

const sha256 = z.string().regex(/^[0-9a-f]{64}$/, 'the 64 hex digits of a SHA-256')

export const auditEventSchema = z.strictObject({
  seq: z.int().positive(),
  time: z.iso.datetime(),
  lease: z.string(),
  trial: z.string().nullable(),
  kind: z.enum(['decision', 'close', 'census', 'lifecycle', 'aggregate']),
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
  /** Of an aggregate: when the first and the last of its denials came. */
  first: z.iso.datetime().optional(),
  last: z.iso.datetime().optional(),
  /** Hash of the policy in force. */
  policy: sha256.optional(),
  /** SHA-256 of the line before, without its newline; null in the first. Absent only in logs of before the chain. */
  prev: sha256.nullable().optional(),
})

export type AuditEvent = z.infer<typeof auditEventSchema>

/** What a listener hands to the log; the log adds seq, time, lease, trial, policy and prev. */
export type AuditRecord = Pick<AuditEvent, 'kind' | 'protocol' | 'action' | 'reason'> &
  Partial<Omit<AuditEvent, 'seq' | 'time' | 'lease' | 'trial' | 'policy' | 'prev'>>

/** Of one attempt or of several; a close only tells how a counted one went on. */
export const isAttempt = ({ kind }: Pick<AuditEvent, 'kind'>): boolean =>
  kind === 'decision' || kind === 'census' || kind === 'aggregate'
