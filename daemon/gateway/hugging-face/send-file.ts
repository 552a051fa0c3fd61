/**
 * Bytes of an artifact to a client, in large pieces from two buffers in turn: one is filled while the other is sent. A
 * client that doesn't read holds these two and nothing else; one whose fetch fails sees the connection end early, which
 * its library takes for what it is.
 */
import type { ServerResponse } from 'node:http'
import type { Artifact } from '../artifact-cache/artifact.ts'

const pieceBytes = 512 * 1024

export interface SendOptions {
  readonly start: number
  readonly end: number
  readonly signal: AbortSignal
  readonly onBytes: (bytes: number) => void
}

/** Resolves when all is with the kernel; rejects when the artifact fails or the client goes. */
export async function sendFile(
  artifact: Artifact,
  response: ServerResponse,
  { start, end, signal, onBytes }: SendOptions,
): Promise<void> {
  const length = Math.min(pieceBytes, end - start)
  const buffers = [Buffer.allocUnsafeSlow(length), Buffer.allocUnsafeSlow(length)]
  let sending: Promise<void> = Promise.resolve()
  let turn = 0
  for (let at = start; at < end;) {
    const available = await artifact.available(at, { signal })
    const buffer = buffers[turn]
    if (buffer === undefined) throw new Error('two buffers take turns')
    const wanted = Math.min(buffer.length, Math.min(available, end) - at)
    const bytes = await artifact.read(buffer, at, wanted)
    if (bytes === 0) throw new Error('the artifact ended before its size')
    await sending
    sending = write(response, buffer.subarray(0, bytes), signal)
    sending.catch(() => {})
    onBytes(bytes)
    at += bytes
    turn = 1 - turn
  }
  await sending
  response.end()
}

/** Resolves when the buffer may be filled again. */
function write(response: ServerResponse, bytes: Buffer, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    signal.throwIfAborted()
    const abort = (): void => reject(signal.reason as Error)
    signal.addEventListener('abort', abort, { once: true })
    response.write(bytes, (error) => {
      signal.removeEventListener('abort', abort)
      if (error) reject(error)
      else resolve()
    })
  })
}
