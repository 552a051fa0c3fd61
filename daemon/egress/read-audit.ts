/**
 * Reading audit logs, also while they grow. A last line without its newline is still being written, or was torn
 * by a crash: it is not an event. Any other line that is no event is corruption, and said so.
 */
import { open } from 'node:fs/promises'
import type { AuditEvent } from '../../policy/audit-event.ts'
import { AuditError } from './audit-error.ts'

const chunkBytes = 256 * 1024
const newline = 0x0a
/** No event of ours comes near; reading on would only fill the memory. */
const maxLineBytes = 1024 * 1024

export interface AuditLine {
  readonly event: AuditEvent
  /** Offset of the byte behind this line. */
  readonly end: number
}

/** Whole lines from `offset` to the end the file has when it is reached. */
export async function* readAuditLines(
  file: string,
  offset: number,
  signal?: AbortSignal,
): AsyncIterable<AuditLine> {
  await using handle = await open(file, 'r')
  let pending: Buffer = Buffer.alloc(0)
  let position = offset
  for (;;) {
    signal?.throwIfAborted()
    const chunk = Buffer.allocUnsafe(chunkBytes)
    const { bytesRead } = await handle.read(chunk, 0, chunkBytes, position + pending.length)
    if (bytesRead === 0) return
    const data = Buffer.concat([pending, chunk.subarray(0, bytesRead)])
    let start = 0
    for (let stop = data.indexOf(newline); stop !== -1; stop = data.indexOf(newline, start)) {
      const text = data.toString('utf8', start, stop)
      start = stop + 1
      yield { event: parseLine(file, position + start, text), end: position + start }
    }
    pending = data.subarray(start)
    position += start
    if (pending.length > maxLineBytes) throw corrupt(file, position + pending.length)
  }
}

export async function* readAudit(
  file: string,
  options: { readonly signal?: AbortSignal } = {},
): AsyncIterable<AuditEvent> {
  for await (const line of readAuditLines(file, 0, options.signal)) yield line.event
}

function parseLine(file: string, end: number, text: string): AuditEvent {
  try {
    // Written by us from the same type; validating every field would make a long query several times slower.
    const event = JSON.parse(text) as AuditEvent
    if (Number.isSafeInteger(event.seq)) return event
  } catch {
    // told below
  }
  throw corrupt(file, end)
}

const corrupt = (file: string, end: number): AuditError =>
  new AuditError(
    'audit_corrupt',
    'infra',
    `the line that ends at byte ${end} of the audit log is no event; keep the file and close the lease`,
    { facts: { file, end } },
  )
