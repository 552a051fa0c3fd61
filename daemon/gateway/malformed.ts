/** What a gateway answers to bytes that are no HTTP: a refusal that is recorded, or nothing to a client that is gone. */
import type { Duplex } from 'node:stream'

export function refuseMalformed(
  error: Error,
  socket: Duplex,
  record: (detail: string) => void,
): void {
  const reset = 'code' in error && error.code === 'ECONNRESET'
  if (reset || !socket.writable) {
    socket.destroy()
    return
  }
  record(error.message)
  socket.end(
    'HTTP/1.1 400 Bad Request\r\nX-Closedbook-Reason: bad_request\r\nConnection: close\r\n\r\n',
  )
}
