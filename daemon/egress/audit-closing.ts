/**
 * What is noted beside a closed audit log, in one small file: how it ended, what it comes to, and what a search must
 * know to pass it over. It is written when the log is closed and removed when it is opened again; where it is missing
 * (the daemon was killed), reading the log gives the same.
 */
import { randomUUID } from 'node:crypto'
import { readFile, rename, rm, writeFile } from 'node:fs/promises'
import type { AuditEvent } from '../../policy/audit-event.ts'
import type { AuditTotals } from '../../policy/audit-summary.ts'

export interface AuditClosing {
  readonly v: 1
  readonly lease: string
  readonly trial: string | null
  /** Bytes of the log, and hash of its last line. */
  readonly bytes: number
  readonly head: string | null
  /** `kind protocol action reason` of its events, each once. */
  readonly tags: readonly string[]
  /** Every host and address in it; null where they are too many. */
  readonly hosts: readonly string[] | null
  readonly totals: AuditTotals
}

const maxHosts = 4096

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
    // Written by us, whole or not at all; a search over many logs would mostly be spent on validating it.
    const closing = JSON.parse(await readFile(closingFile(logFile), 'utf8')) as AuditClosing
    return closing.v === 1 ? closing : null
  } catch {
    return null
  }
}

export async function removeClosing(logFile: string): Promise<void> {
  await rm(closingFile(logFile), { force: true })
}
