/**
 * What is noted beside a closed audit log, in one small file: how it ended, what it comes to, and what a search must
 * know to pass it over. It is written when the log is closed and removed when it is opened again; where it is missing
 * (the daemon was killed), reading the log gives the same.
 */
import { randomUUID } from 'node:crypto'
import { readFile, rename, rm, writeFile } from 'node:fs/promises'
import { z } from 'zod'
import type { AuditEvent } from '../../policy/audit-event.ts'
import { auditSummarySchema } from '../../policy/audit-summary.ts'

export const auditClosingSchema = z.strictObject({
  v: z.literal(1),
  lease: z.string(),
  trial: z.string().nullable(),
  /** Bytes of the log, and hash of its last line. */
  bytes: z.int(),
  head: z.string().nullable(),
  /** `kind protocol action reason` of its events, each once. */
  tags: z.array(z.string()),
  /** Every host and address in it; null where they are too many. */
  hosts: z.array(z.string()).nullable(),
  totals: auditSummarySchema,
})
export type AuditClosing = z.infer<typeof auditClosingSchema>

const maxHosts = 1024

/** Gathers what a search may want to know, as events come. */
export class AuditMarks {
  readonly #tags = new Set<string>()
  #hosts: Set<string> | null = new Set()

  add({ kind, protocol, action, reason, host, address }: AuditEvent): void {
    this.#tags.add(`${kind} ${protocol} ${action} ${reason}`)
    if (this.#hosts === null) return
    if (host !== null) this.#hosts.add(host)
    if (address !== null) this.#hosts.add(address)
    if (this.#hosts.size > maxHosts) this.#hosts = null
  }

  view(): Pick<AuditClosing, 'tags' | 'hosts'> {
    return { tags: [...this.#tags], hosts: this.#hosts === null ? null : [...this.#hosts] }
  }
}

export const closingFile = (logFile: string): string => logFile.replace(/\.jsonl$/, '.summary.json')

export async function writeClosing(logFile: string, closing: AuditClosing): Promise<void> {
  const file = closingFile(logFile)
  const temporary = `${file}.${randomUUID()}.tmp`
  await writeFile(temporary, `${JSON.stringify(closing)}\n`, { mode: 0o640 })
  await rename(temporary, file)
}

/** null where there is none, or none that can be read. */
export async function readClosing(logFile: string): Promise<AuditClosing | null> {
  try {
    return auditClosingSchema.parse(JSON.parse(await readFile(closingFile(logFile), 'utf8')))
  } catch {
    return null
  }
}

export async function removeClosing(logFile: string): Promise<void> {
  await rm(closingFile(logFile), { force: true })
}
