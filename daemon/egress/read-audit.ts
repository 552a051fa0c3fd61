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
  /** As it stands there, without its newline. */
  readonly text: string
  /** Offset of the byte behind this line. */
  readonly end: number
}

/** Whole lines, as many as came in one piece. */
export interface AuditChunk {
  readonly data: Buffer
  /** Offset of its first byte. */
  readonly start: number
}

export interface ReadRange {
  /** Offset of the first byte; that of a line. */
  readonly from?: number
  /** Offset where reading ends; absent: the end that the file has when it is reached. */
  readonly to?: number
  readonly signal?: AbortSignal | undefined
}

/** Also gives the bytes of a last line without its newline, which are no line. */
export async function* readAuditChunks(
  file: string,
  { from = 0, to = Infinity, signal }: ReadRange = {},
): AsyncGenerator<AuditChunk, Buffer> {
  await using handle = await open(file, 'r')
  let pending: Buffer = Buffer.alloc(0)
  let position = from
  for (;;) {
    signal?.throwIfAborted()
    const chunk = Buffer.allocUnsafe(chunkBytes)
    const at = position + pending.length
    const { bytesRead } = await handle.read(chunk, 0, Math.min(chunkBytes, to - at), at)
    if (bytesRead === 0) return pending
    const data = Buffer.concat([pending, chunk.subarray(0, bytesRead)])
    const end = data.lastIndexOf(newline) + 1
    if (end > 0) yield { data: data.subarray(0, end), start: position }
    pending = data.subarray(end)
    position += end
    if (pending.length > maxLineBytes) throw corrupt(file, position + pending.length)
  }
}

/** Whole lines from `offset` to the end the file has when it is reached. */
export async function* readAuditLines(
  file: string,
  offset: number,
  signal?: AbortSignal,
): AsyncIterable<AuditLine> {
  for await (const { data, start } of readAuditChunks(file, { from: offset, signal }))
    for (const { text, end } of linesOf(data))
      yield { event: parseLine(file, start + end, text), text, end: start + end }
}

export async function* readAudit(
  file: string,
  options: { readonly signal?: AbortSignal } = {},
): AsyncIterable<AuditEvent> {
  for await (const line of readAuditLines(file, 0, options.signal)) yield line.event
}

/** The lines of whole ones, each without its newline, and the offset behind it. */
export function* linesOf(data: Buffer): Generator<{ text: string; end: number }> {
  let start = 0
  for (let stop = data.indexOf(newline); stop !== -1; stop = data.indexOf(newline, start)) {
    const text = data.toString('utf8', start, stop)
    start = stop + 1
    yield { text, end: start }
  }
}

export function parseLine(file: string, end: number, text: string): AuditEvent {
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
