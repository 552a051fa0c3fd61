/** Checks the log of one lease against itself, against how it ended, and against the lease's proof. */
import type { ProvenCanary } from '../../policy/audit-canaries.ts'
import { AuditVerifier, type AuditVerdict } from '../../policy/audit-verify.ts'
import { AuditSummary, type AuditTotals } from '../../policy/audit-summary.ts'
import { readClosing } from './audit-closing.ts'
import { linesOf, readAudit, readAuditChunks } from './read-audit.ts'

export interface CheckOptions {
  readonly lease: string
  readonly proof: readonly ProvenCanary[]
  /** Bytes to look at, of a log that grows. */
  readonly bytes?: number | undefined
  readonly signal?: AbortSignal
}

export async function checkAudit(
  file: string,
  { lease, proof, bytes, signal }: CheckOptions,
): Promise<AuditVerdict[]> {
  const closing = bytes === undefined ? await readClosing(file) : null
  const end = closing === null ? null : { events: closing.totals.events, head: closing.head }
  const verifier = new AuditVerifier(lease, () => ({ proof, end }))
  const chunks = readAuditChunks(file, { ...(bytes === undefined ? {} : { to: bytes }), signal })
  for (;;) {
    const next = await chunks.next()
    if (next.done === true) {
      if (next.value.length > 0) verifier.torn(next.value.length)
      return verifier.verdicts()
    }
    for (const { text } of linesOf(next.value.data)) verifier.add(text)
  }
}

/** Of a closed log: what was noted, else what it says itself. */
export async function totalsOf(
  file: string,
  options: { readonly signal?: AbortSignal },
): Promise<AuditTotals> {
  const closing = await readClosing(file)
  if (closing !== null) return closing.totals
  const summary = new AuditSummary()
  for await (const event of readAudit(file, options)) summary.add(event)
  return summary.totals()
}
