/**
 * `closedbook.pty.v1`: binary WebSocket messages of one attachment to a PTY session. The first byte is the type; offsets
 * count the bytes that the session has put out since it began (u64, big-endian). What is neither output nor input is
 * one JSON object (`control`; its shapes are in pty.ts). Nothing here needs Node: browsers use this file as it is.
 *
 * server → client   OUTPUT u64 offset, bytes · SNAPSHOT u64 offset, u16 columns, u16 rows, u8 flags, bytes ·
 *                   INPUT_ACK u32 number · CONTROL json
 * client → server   INPUT u32 number, bytes · ACK u64 offset · CONTROL json
 * A SNAPSHOT is what to write to a cleared terminal of that size to see what the session's screen showed at the offset.
 */
export const ptyProtocol = 'closedbook.pty.v1'

export const ptyFrame = {
  output: 1,
  snapshot: 2,
  input: 3,
  ack: 4,
  inputAck: 5,
  control: 16,
} as const

/** No message is larger, in either direction. */
export const maxMessageBytes = 1024 * 1024
/** Pastes are split at this. */
export const inputPieceBytes = 16 * 1024
/** Input that a client may have sent without an acknowledgement. */
export const inputWindowBytes = 256 * 1024
/** Output that a server sends without an acknowledgement, to clients that acknowledge. */
export const outputWindowBytes = 1024 * 1024
/** Clients acknowledge after so many bytes, or `ackAfterMs`; at most half of the low watermark, or both sides wait. */
export const ackBytes = 64 * 1024
export const ackAfterMs = 50

/** Close codes; from 4000 to 4099 a client doesn't try again. */
export const ptyClose = {
  ended: 1000,
  tooBig: 1009,
  /** The server goes away and comes back. */
  restart: 1012,
  badFrame: 4000,
  unauthorized: 4001,
  forbidden: 4003,
  noSession: 4004,
  inputFlood: 4008,
  replaced: 4009,
} as const

export const isFinalClose = (code: number): boolean =>
  code === ptyClose.ended || code === ptyClose.tooBig || (code >= 4000 && code < 4100)

export type PtyMessage =
  | { readonly type: 'output'; readonly offset: number; readonly bytes: Uint8Array }
  | ({ readonly type: 'snapshot'; readonly bytes: Uint8Array } & SnapshotFacts)
  | { readonly type: 'input'; readonly n: number; readonly bytes: Uint8Array }
  | { readonly type: 'ack'; readonly offset: number }
  | { readonly type: 'inputAck'; readonly n: number }
  | { readonly type: 'control'; readonly value: unknown }

export interface SnapshotFacts {
  readonly offset: number
  readonly cols: number
  readonly rows: number
  /** Bytes were left out when the screen was made: a flood was faster than it. */
  readonly approximate: boolean
}

export const outputHeaderBytes = 9
const snapshotHeaderBytes = 14
const inputHeaderBytes = 5

/** Into the first bytes of a message. */
export function writeOutputHeader(message: Uint8Array, offset: number): void {
  message[0] = ptyFrame.output
  viewOf(message).setBigUint64(1, BigInt(offset))
}

export function encodeOutput(offset: number, bytes: Uint8Array): Uint8Array {
  const header = new Uint8Array(outputHeaderBytes)
  writeOutputHeader(header, offset)
  return joined(header, bytes)
}

export function encodeSnapshot(facts: SnapshotFacts, bytes: Uint8Array): Uint8Array {
  const header = new Uint8Array(snapshotHeaderBytes)
  const view = viewOf(header)
  header[0] = ptyFrame.snapshot
  view.setBigUint64(1, BigInt(facts.offset))
  view.setUint16(9, facts.cols)
  view.setUint16(11, facts.rows)
  view.setUint8(13, facts.approximate ? 1 : 0)
  return joined(header, bytes)
}

export function encodeInput(n: number, bytes: Uint8Array): Uint8Array {
  const header = new Uint8Array(inputHeaderBytes)
  header[0] = ptyFrame.input
  viewOf(header).setUint32(1, n)
  return joined(header, bytes)
}

export function encodeAck(offset: number): Uint8Array {
  const frame = new Uint8Array(9)
  frame[0] = ptyFrame.ack
  viewOf(frame).setBigUint64(1, BigInt(offset))
  return frame
}

export function encodeInputAck(n: number): Uint8Array {
  const frame = new Uint8Array(5)
  frame[0] = ptyFrame.inputAck
  viewOf(frame).setUint32(1, n)
  return frame
}

export function encodeControl(value: object): Uint8Array {
  return joined(new Uint8Array([ptyFrame.control]), new TextEncoder().encode(JSON.stringify(value)))
}

/** Throws RangeError for what is no message of this protocol. */
export function decodeMessage(data: Uint8Array): PtyMessage {
  const type = data[0] ?? 0
  const view = viewOf(data)
  switch (type) {
    case ptyFrame.output:
      need(data, outputHeaderBytes)
      return { type: 'output', offset: offsetAt(view, 1), bytes: data.subarray(outputHeaderBytes) }
    case ptyFrame.snapshot:
      need(data, snapshotHeaderBytes)
      return {
        type: 'snapshot',
        offset: offsetAt(view, 1),
        cols: view.getUint16(9),
        rows: view.getUint16(11),
        approximate: view.getUint8(13) === 1,
        bytes: data.subarray(snapshotHeaderBytes),
      }
    case ptyFrame.input:
      need(data, inputHeaderBytes)
      return { type: 'input', n: view.getUint32(1), bytes: data.subarray(inputHeaderBytes) }
    case ptyFrame.ack:
      need(data, 9)
      return { type: 'ack', offset: offsetAt(view, 1) }
    case ptyFrame.inputAck:
      need(data, 5)
      return { type: 'inputAck', n: view.getUint32(1) }
    case ptyFrame.control:
      return { type: 'control', value: json(data.subarray(1)) }
    default:
      throw new RangeError(`a message of type ${String(type)} is none of ${ptyProtocol}`)
  }
}

function need(data: Uint8Array, bytes: number): void {
  if (data.length < bytes) throw new RangeError(`a message of ${data.length} bytes is cut short`)
}

function offsetAt(view: DataView, at: number): number {
  const offset = view.getBigUint64(at)
  if (offset > BigInt(Number.MAX_SAFE_INTEGER)) throw new RangeError('an offset beyond 2^53')
  return Number(offset)
}

function json(bytes: Uint8Array): unknown {
  try {
    return JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(bytes))
  } catch {
    throw new RangeError('a control message holds no JSON')
  }
}

function viewOf(bytes: Uint8Array): DataView {
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
}

function joined(header: Uint8Array, bytes: Uint8Array): Uint8Array {
  const whole = new Uint8Array(header.length + bytes.length)
  whole.set(header)
  whole.set(bytes, header.length)
  return whole
}
