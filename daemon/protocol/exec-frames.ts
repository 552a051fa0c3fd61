/**
 * `closedbook.exec.v1`: the wire format of one exec. The client sends an HTTP/1.1 request
 * `POST <path> ` with `Connection: Upgrade`, `Upgrade: closedbook.exec.v1`; the server answers 101 and both sides
 * speak frames: `type u8 · length u32 big-endian · payload`. A refusal before the upgrade is an ordinary JSON error.
 *
 * client → server   START json ExecStart (first, once) · STDIN bytes · STDIN_END (no payload) · KILL (no payload)
 * server → client   STARTED json {exec} · STDOUT / STDERR `offset u64 big-endian · bytes` · EXIT json ExecEnd ·
 *                   ERROR json {code, message, blame} · STDIN_ACK `u64 big-endian` bytes of STDIN taken so far
 * EXIT or ERROR is the last frame and follows the last output byte. A client that goes away before it ends the exec:
 * its whole process tree is killed, unless START said `onDisconnect: "continue"`.
 * STDIN_ACK comes to a client that asked for it (`stdinAcks`) and keeps at most `stdinWindowBytes` unacknowledged, so
 * that KILL and its own going away are never stuck behind input that the command does not read.
 * `merged: true` sends stderr as STDOUT, in the order the engine delivered it.
 */
import { z } from 'zod'

export const execProtocol = 'closedbook.exec.v1'

export const frameType = {
  start: 0,
  stdin: 1,
  stdinEnd: 2,
  kill: 3,
  started: 16,
  stdout: 17,
  stderr: 18,
  exit: 19,
  error: 20,
  stdinAck: 21,
} as const

export const stdinWindowBytes = 256 * 1024

export const execStartSchema = z.strictObject({
  argv: z.array(z.string()).min(1),
  env: z.record(z.string(), z.string()).default({}),
  user: z.string().optional(),
  workdir: z.string().optional(),
  stdin: z.boolean().default(false),
  stdinAcks: z.boolean().optional(),
  merged: z.boolean().default(false),
  /** Wall-clock limit; the whole process tree is killed at its end. Absent: no limit. */
  timeoutMs: z.int().positive().optional(),
  /** Bytes of output delivered; beyond them only totals are counted (the first half and the last half are kept). */
  outputLimitBytes: z.int().positive().optional(),
  onDisconnect: z.enum(['kill', 'continue']).default('kill'),
  /** Recorded in the lease's step events; the model's own number for this command where there is one. */
  label: z.string().max(200).optional(),
})
export type ExecStart = z.infer<typeof execStartSchema>
export type ExecStartInput = z.input<typeof execStartSchema>

/** How a process ended: never a bare number. */
export const exitSchema = z.union([
  z.strictObject({ code: z.int() }),
  z.strictObject({ signal: z.string() }),
  z.literal('unknown'),
])
export type Exit = z.infer<typeof exitSchema>

export const execEndSchema = z.strictObject({
  exec: z.string(),
  exit: exitSchema,
  /** Why it ended: by itself, by our timeout, by KILL or disconnect, or with its container. */
  cause: z.enum(['exited', 'timeout', 'killed', 'disconnected', 'container_gone', 'engine_lost']),
  stdout: z.strictObject({ totalBytes: z.int(), droppedBytes: z.int() }),
  stderr: z.strictObject({ totalBytes: z.int(), droppedBytes: z.int() }),
  /** True when processes that the command started were still alive at its end. */
  childrenLeft: z.boolean(),
  durationMs: z.number(),
})
export type ExecEnd = z.infer<typeof execEndSchema>

const headerBytes = 5
/** A frame larger than this is refused; senders split at 64 KiB. */
export const maxFrameBytes = 4 * 1024 * 1024

export function encodeFrame(type: number, payload: Uint8Array = Buffer.alloc(0)): Buffer {
  const frame = Buffer.allocUnsafe(headerBytes + payload.length)
  frame.writeUInt8(type, 0)
  frame.writeUInt32BE(payload.length, 1)
  frame.set(payload, headerBytes)
  return frame
}

export function encodeJsonFrame(type: number, value: unknown): Buffer {
  return encodeFrame(type, Buffer.from(JSON.stringify(value)))
}

/** Two buffers, so that output is not copied: header with offset, then the bytes themselves. */
export function outputHeader(type: number, offset: number, length: number): Buffer {
  const header = Buffer.allocUnsafe(headerBytes + 8)
  header.writeUInt8(type, 0)
  header.writeUInt32BE(length + 8, 1)
  header.writeBigUInt64BE(BigInt(offset), headerBytes)
  return header
}

export function decodeOutput(payload: Buffer): { offset: number; bytes: Buffer } {
  return { offset: Number(payload.readBigUInt64BE(0)), bytes: payload.subarray(8) }
}

/** Cuts a byte stream into frames; keeps at most one incomplete frame. Throws RangeError on an oversized frame. */
export class FrameReader {
  #pending: Buffer[] = []
  #size = 0

  #join(): Buffer {
    const all = Buffer.concat(this.#pending)
    this.#pending = [all]
    return all
  }

  *push(chunk: Buffer): Generator<{ type: number; payload: Buffer }> {
    this.#pending.push(chunk)
    this.#size += chunk.length
    while (this.#size >= headerBytes) {
      let head = this.#pending[0] as Buffer
      if (head.length < headerBytes) head = this.#join()
      const length = head.readUInt32BE(1)
      if (length > maxFrameBytes)
        throw new RangeError(`frame of ${length} bytes; the limit is ${maxFrameBytes}`)
      const end = headerBytes + length
      if (this.#size < end) return
      if (head.length < end) head = this.#join()
      const rest = head.subarray(end)
      this.#pending[0] = rest
      if (rest.length === 0) this.#pending.shift()
      this.#size -= end
      yield { type: head.readUInt8(0), payload: head.subarray(headerBytes, end) }
    }
  }
}
